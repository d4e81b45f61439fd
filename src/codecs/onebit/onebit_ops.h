// The kernels of onebit. REQUIRES of all: buffers of `count` values, payload of ceil(count / 8) bytes, and
// the thread in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codecs/kernels/addends.h"
#include "codecs/kernels/element_bits.h"
#include "codecs/target_id.h"

namespace deltawire::onebit {

using Means = SideValues;

struct Sides {
  std::uint32_t largest = 0;  // bits of the largest magnitude; at least kInfinityBits if any x isn't finite
  double high = 0;            // sums of magnitudes
  double low = 0;
  std::uint64_t negatives = 0;
};

// The columns of a matrix: element i is in column i mod count.
inline constexpr std::uint64_t kColumnBytes = 8;  // of a column's means on the wire: high, low

struct ColumnSides {
  Sides* at = nullptr;
  std::uint64_t count = 0;
};

struct ColumnMeans {
  const std::byte* at = nullptr;
  std::uint64_t count = 0;
};

struct ColumnTarget {
  float* slot = nullptr;
  std::uint64_t count = 0;
  float scale = 1;
  bool accumulate = false;
};

namespace DELTAWIRE_TARGET {
// See Kernels.
std::uint32_t split_columns(const Addends& x, const ColumnSides& columns, std::byte* payload);
void take_column_means(const Addends& x, const ColumnMeans& columns);
std::uint64_t find_without_mean(const std::byte* payload, std::uint64_t count, const ColumnMeans& columns);
void decode_columns(const std::byte* payload, const ColumnMeans& columns, const ColumnTarget& target);
}  // namespace DELTAWIRE_TARGET

struct Kernels {
  // payload = a bit for each x, 1 where it is negative; left = x where that is wanted. Returns what there is
  // on each side of 0.
  Sides (*split)(const Addends& x, std::byte* payload);

  // left = what the means leave of x.
  void (*take_means)(const Addends& x, Means means);

  // The first byte that isn't 0, or `bytes`.
  std::uint64_t (*find_set)(const std::byte* payload, std::uint64_t bytes);

  // slot = the side's value.
  void (*decode_overwrite)(const std::byte* payload, std::uint64_t count, Means values, float* slot);

  // slot = slot + the side's value.
  void (*decode_accumulate)(const std::byte* payload, std::uint64_t count, Means values, float* slot);

  // split(), with the sums of each column. Returns the bits of the largest magnitude.
  std::uint32_t (*split_columns)(const Addends& x, const ColumnSides& columns, std::byte* payload);

  // left = what its column's means leave of x.
  void (*take_column_means)(const Addends& x, const ColumnMeans& columns);

  // The first element whose bit is 1 although its column has no mean for it, or `count`.
  std::uint64_t (*find_without_mean)(const std::byte* payload, std::uint64_t count,
                                     const ColumnMeans& columns);

  // slot = scale * value, or slot + scale * value, two roundings.
  void (*decode_columns)(const std::byte* payload, const ColumnMeans& columns, const ColumnTarget& target);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::onebit
