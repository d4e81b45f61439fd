// Which rank owns which part. A function of (name, element count, world size) alone, never of buckets, so
// that another bucket size or a bucket rebuild changes no byte and orphans no residual.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace deltawire {

// Tensors below this many elements have one owner; docs/format.md, "Parts", states it: it is on the wire.
inline constexpr std::uint64_t kWholeTensorElements = 16384;

// Cuts fall on multiples of this (a row of 3LC), so that a cut costs no padding.
inline constexpr std::uint64_t kCutElements = 320;

struct OwnedRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  int owner = 0;
};

// The parts of a tensor, in order, none of them empty. A tensor without elements has none.
std::vector<OwnedRange> owned_ranges(std::string_view name, std::uint64_t count, int world_size);

}  // namespace deltawire
