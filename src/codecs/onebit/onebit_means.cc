#include "codecs/onebit/onebit_means.h"

#include <bit>
#include <string>
#include <string_view>

#include "codecs/spec_string.h"

namespace deltawire::onebit {

namespace {

float mean_of(double sum, std::uint64_t count) noexcept {
  return static_cast<float>(sum / static_cast<double>(count));
}

Status bad_mean(std::string_view which, std::uint32_t bits, std::string_view wanted) {
  return fail(ErrorCode::kCorrupt, "onebit: the mean \"" + std::string(which) + "\" is " +
                                       number_text(std::bit_cast<float>(bits)) + ", not " +
                                       std::string(wanted));
}

}  // namespace

Means means_of(const Sides& sides, std::uint64_t count) noexcept {
  const std::uint64_t others = count - sides.negatives;
  return {others > 0 ? mean_of(sides.high, others) : 0,
          sides.negatives > 0 ? -mean_of(sides.low, sides.negatives) : 0};
}

Status check_means(std::uint32_t high, std::uint32_t low) {
  if (high >= kInfinityBits) return bad_mean("high", high, "a finite number >= 0");
  const std::uint32_t magnitude = low & kMagnitudeMask;
  if (low != 0 && (low == magnitude || magnitude == 0 || magnitude >= kInfinityBits)) {
    return bad_mean("low", low, "a finite number below 0, or 0 without negative values");
  }
  return {};
}

Status check_padding(const PartView& in, std::uint64_t count) {
  if (count % 8 == 0 || std::to_integer<unsigned>(in.payload.back()) >> count % 8 == 0) return {};
  return fail(ErrorCode::kCorrupt, "onebit: bits follow the last element");
}

}  // namespace deltawire::onebit
