// Reference kernels: candidates are found and dropped.
#include <cstdint>
#include <cstring>

#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kGroup = 16;

// The bits of x, and zeros behind them that fill a group.
void load_block(const SelectInput& input, const Block& block, std::uint32_t* bits) noexcept {
  float x[kSelectBlock];
  std::memcpy(x, input.in + block.at, block.count * sizeof(float));
  if (input.residual != nullptr) {
    for (std::uint32_t i = 0; i < block.count; ++i) x[i] += input.residual[block.at + i];
  }
  if (input.left != nullptr) std::memcpy(input.left + block.at, x, block.count * sizeof(float));
  std::memcpy(bits, x, block.count * sizeof(float));
  for (std::uint32_t i = block.count; i % kGroup != 0; ++i) bits[i] = 0;
}

// Whether any magnitude of a group is above. As signed numbers, which every vector unit compares; magnitudes
// have 31 bits.
bool any_above(const std::uint32_t* bits, std::uint32_t below) noexcept {
  std::int32_t any = 0;
  for (std::uint32_t i = 0; i < kGroup; ++i) {
    any |= static_cast<std::int32_t>(bits[i] & kMagnitudeMask) > static_cast<std::int32_t>(below) ? -1 : 0;
  }
  return any != 0;
}

}  // namespace

void find_candidates(const SelectInput& input, const Block& block, Candidates* lists) {
  const std::uint32_t lower = block.below[0] < block.below[1] ? block.below[0] : block.below[1];
  std::uint32_t bits[kSelectBlock];
  load_block(input, block, bits);
  for (std::uint32_t first = 0; first < block.count; first += kGroup) {
    if (!any_above(bits + first, lower)) continue;
    append_above(bits + first, kGroup, block.at + first, block, lists);
  }
}

void end_stream() {}

void drop_smaller(Candidates& list, const Threshold& threshold) {
  std::uint64_t ties = threshold.ties;
  std::uint64_t kept = 0;
  for (std::uint64_t i = 0; i < list.count; ++i) {
    const std::uint32_t magnitude = list.magnitudes[i];
    if (magnitude < threshold.magnitude) continue;
    if (magnitude == threshold.magnitude) {
      if (ties == 0) continue;
      --ties;
    }
    list.positions[kept] = list.positions[i];
    list.magnitudes[kept++] = magnitude;
  }
  list.count = kept;
}

std::uint64_t count_above(const std::uint32_t* magnitudes, std::uint64_t count, std::uint32_t least) {
  std::uint64_t above = 0;
  for (std::uint64_t i = 0; i < count; ++i) above += magnitudes[i] > least ? 1 : 0;
  return above;
}

std::uint64_t collect_range(const std::uint32_t* magnitudes, std::uint64_t count, const Range& range,
                            std::uint32_t* out) {
  std::uint64_t found = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (magnitudes[i] >= range.low && magnitudes[i] <= range.high) out[found++] = magnitudes[i];
  }
  return found;
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
