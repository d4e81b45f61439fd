// Reference kernels: the elements from some magnitude on, their values as codes, and where values go.
#include <cstddef>
#include <cstdint>

#include "base/prefetch.h"
#include "codecs/kernels/addends.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

Collected collect(const Addends& x, std::uint64_t from, std::uint32_t least, std::uint32_t* positions,
                  float* values) {
  Collected found{0, from};
  for (; found.next < x.count && found.count < kChunkPositions; ++found.next) {
    const float sum = sum_at(x, found.next);
    positions[found.count] = static_cast<std::uint32_t>(found.next);
    values[found.count] = sum;
    found.count += magnitude_bits(sum) >= least ? 1U : 0U;
  }
  return found;
}

void encode_values(float* values, std::uint64_t count, const ValueCode& code, std::byte* out) {
  const std::uint32_t bytes = value_bytes(code.format);
  for (std::uint64_t i = 0; i < count; ++i) {
    put_value(values[i], code, out + i * bytes);
    values[i] = value_of(out + i * bytes, code);
  }
}

std::uint64_t find_bad_value(const std::byte* codes, std::uint64_t count, const ValueCode& code) {
  const std::uint32_t bytes = value_bytes(code.format);
  std::uint64_t i = 0;
  while (i < count && is_value_code(codes + i * bytes, code)) ++i;
  return i;
}

void decode_values(const std::byte* codes, std::uint64_t count, const ValueCode& code, float* values) {
  const std::uint32_t bytes = value_bytes(code.format);
  for (std::uint64_t i = 0; i < count; ++i) values[i] = value_of(codes + i * bytes, code);
}

void subtract_elements(float* left, const Elements& sent) {
  constexpr std::uint64_t kAhead = 256;
  for (std::uint64_t i = 0; i < sent.count; ++i) {
    if (i + kAhead < sent.count) prefetch_far(left + sent.positions[i + kAhead]);
    left[sent.positions[i]] -= sent.values[i];
  }
}

void scatter(const Elements& elements, const ScatterTarget& target) {
  constexpr std::uint64_t kAhead = 64;
  for (std::uint64_t i = 0; i < elements.count; ++i) {
    if (i + kAhead < elements.count) prefetch_far(target.slot + elements.positions[i + kAhead]);
    const float value = elements.values[i];
    if (value == 0) continue;
    float& slot = target.slot[elements.positions[i]];
    slot = target.accumulate ? slot + target.scale * value : target.scale * value;
  }
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
