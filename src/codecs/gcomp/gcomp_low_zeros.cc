#include "codecs/gcomp/gcomp_low_zeros.h"

#include "base/bit_functions.h"

namespace deltawire::gcomp {

namespace {

constexpr std::uint32_t kRuns = 4;  // of values that are looked at first
constexpr std::uint32_t kRun = 256;
constexpr std::uint32_t kHighestLeveled = 233;  // exponents above have level 0: 21 more is still no infinity

// Whether at least half of some values other than +0 have the three zeros of level 1, as an eighth of random
// ones has: so that other chunks cost nothing but this look.
bool may_have_low_zeros(const Values& chunk) noexcept {
  std::uint32_t some = 0;
  std::uint32_t even = 0;
  for (std::uint32_t run = 0; run < kRuns; ++run) {
    const float* const in = chunk.in + run * (chunk.count / kRuns);
    for (std::uint32_t i = 0; i < kRun; ++i) {
      const auto bits = bit_cast<std::uint32_t>(in[i]);
      some += bits != 0 ? 1U : 0U;
      even += bits != 0 && (bits & 7) == 0 ? 1U : 0U;
    }
  }
  return some > 0 && 2 * even >= some;
}

// Writes a significance by which each value has the highest level that drops only zeros. False if there are
// tiny values, which have no level.
bool write_significance(const Values& chunk, float* out) noexcept {
  std::uint32_t tiny = 0;
  for (std::uint32_t i = 0; i < chunk.count; ++i) {
    const auto bits = bit_cast<std::uint32_t>(chunk.in[i]);
    const std::uint32_t exponent = (bits & kExponentMask) >> kMantissaBits;
    std::uint32_t zeros = 0;
    for (std::uint32_t level = 1; level < kLevels; ++level) {
      const std::uint32_t cut = kFloat32.cut_at(level);
      zeros += (bits & ((1U << cut) - 1)) == 0 ? kFloat32.step : 0U;
    }
    const std::uint32_t seen = (exponent + zeros) << kMantissaBits;
    out[i] = bit_cast<float>(exponent <= kHighestLeveled ? seen : 0U);
    tiny |= exponent == 0 ? bits : 0U;
  }
  return tiny == 0;
}

// Bits of a chunk, about: those of all values as of the counted ones, and the table.
std::uint64_t bits_of(const TableChoice& choice, const Values& chunk) noexcept {
  std::byte table[kMaxTableBytes];
  return (choice.bits << sample_share(chunk.count)) +
         std::uint64_t{8} * write_table(choice, chunk.rule.whole(), table);
}

}  // namespace

Values by_low_zeros(const Kernels& kernels, const Values& chunk, float* room, TableChoice& choice) {
  if (chunk.count < kRuns * kRun || !may_have_low_zeros(chunk) || !write_significance(chunk, room)) {
    return chunk;
  }
  Values leveled = chunk;
  leveled.significance = room;
  leveled.rule = {.keep = Keep::kSignificance};
  TableChoice other;
  choose_table(kernels, leveled, other);
  if (bits_of(other, leveled) + chunk.count / 2 > bits_of(choice, chunk)) return chunk;
  choice = other;
  return leveled;
}

}  // namespace deltawire::gcomp
