// What a gradient goes through before its codec, besides the residual: the pieces of Deep Gradient
// Compression (Lin et al., ICLR 2018, section 3) and a decay of the residual, named behind a codec's spec:
//
//   topk:k=0.1% with clip=2,momentum=0.9,masking=on
#pragma once

#include <string>
#include <string_view>

#include "base/spec_text.h"
#include "deltawire/codec.h"
#include "deltawire/result.h"

namespace deltawire {

struct Feedback {
  float clip = 0;        // the largest L2 norm of a tensor's gradient, by which it is scaled down; 0: any
  float momentum = 0;    // u = momentum * u + gradient is coded in the gradient's place; 0: none
  bool masking = false;  // u becomes 0 where a sparse codec has sent something
  float decay = 1;       // the residual is multiplied by this before it is added

  // Whether something else than the gradient is coded.
  bool changes_input() const noexcept { return clip != 0 || momentum != 0; }
  bool is_none() const noexcept { return !changes_input() && decay == 1; }

  // " with clip=2,momentum=0.9", only what isn't the default; "" where all is.
  std::string text() const;
};

// What comes between a codec's spec and its feedback.
inline constexpr std::string_view kFeedbackFollows = " with ";

// The pieces that a recipe has, too.
inline constexpr ParameterInfo kClipPiece = {"clip", "0.000001 <= clip < 1000000", "none",
                                             "the largest L2 norm of a tensor's gradient"};
inline constexpr ParameterInfo kMomentumPiece = {"momentum", "0 <= momentum < 1", "0",
                                                 "momentum before compression"};
inline constexpr ParameterInfo kDecayPiece = {"decay", "0 <= decay < 1", "none",
                                              "by which the residual is multiplied in each step"};

// The pieces among the parameters of `spec`, and those of `defaults` where it has none. kInvalidArgument for
// a number out of range.
Result<Feedback> read_feedback(const ParsedSpec& spec, const Feedback& defaults);

// "clip=2,momentum=0.9". kInvalidArgument for an unknown piece, a number out of range, masking without
// momentum.
Result<Feedback> parse_feedback(std::string_view pieces);

}  // namespace deltawire
