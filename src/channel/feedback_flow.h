// How much of what was due a step has sent: the sums behind the figures that tell trouble early.
#pragma once

#include <cstdint>
#include <span>

#include "deltawire/channel.h"
#include "deltawire/codec.h"

namespace deltawire {

// Whether the flow of this step is measured: that of one in 64, because it takes a decoding.
constexpr bool measures_flow(std::uint64_t step) noexcept {
  return step % 64 == 15;
}

inline constexpr std::uint64_t kMostMeasured = std::uint64_t{1} << 22;  // elements; 16 MiB for a while

// The flow of one part that was just encoded: `given` is what came in besides the residual, `left` the
// residual now. No flow where memory is missing, and of more than kMostMeasured elements.
FeedbackFlow measure_flow(const Codec& codec, const TensorView& given, const PartView& encoded,
                          std::span<const float> left, const Exec& exec) noexcept;

// Adds those of another part of the same step.
void add_flow(const FeedbackFlow& part, FeedbackFlow& sum) noexcept;

}  // namespace deltawire
