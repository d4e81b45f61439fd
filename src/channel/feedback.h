// What a gradient goes through before its codec, besides the residual: the pieces of Deep Gradient
// Compression (Lin et al., ICLR 2018, section 3) and decays of residuals, named behind a codec's spec:
//
//   topk:k=0.1% with clip=2,momentum=0.9,masking=on
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/spec_text.h"
#include "deltawire/codec.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

struct Feedback {
  float clip = 0;        // the largest L2 norm of a tensor's gradient, by which it is scaled down; 0: any
  float momentum = 0;    // u = momentum * u + gradient is coded in the gradient's place; 0: none
  bool masking = false;  // u becomes 0 where a sparse codec has sent something
  float decay = 1;       // the residual is multiplied by this before it is added
  float pull_decay = 1;  // the same, of the residuals of means, which owners keep

  // Whether something else than the gradient is coded.
  bool changes_input() const noexcept { return clip != 0 || momentum != 0; }
  bool is_none() const noexcept { return !changes_input() && decay == 1 && pull_decay == 1; }

  // Of means: the gradients that they are of have been through the rest.
  Feedback of_means() const noexcept { return {.decay = pull_decay}; }

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
inline constexpr ParameterInfo kPullDecayPiece = {"pull_decay", "0 <= pull_decay < 1", "none",
                                                  "the decay of what owners keep of means"};

// The pieces among the parameters of `spec`, and those of `defaults` where it has none. kInvalidArgument for
// a number out of range.
Result<Feedback> read_feedback(const ParsedSpec& spec, const Feedback& defaults);

// "clip=2,momentum=0.9". kInvalidArgument for an unknown piece, a number out of range, masking without
// momentum.
Result<Feedback> parse_feedback(std::string_view pieces);

// Momentum before compression, of one part: what is coded is u = momentum * u + gradient, the gradient
// clipped (Lin et al., "Deep Gradient Compression", ICLR 2018, sections 3.1 and 3.2, algorithm 1).
//
// A step writes the new u next to the old one, so that a step which is taken back has changed nothing.
class Velocity {
 public:
  // Takes the memory that all the others need: for `count` values.
  void prepare(std::uint64_t count);

  struct Step {
    const Feedback& feedback;
    std::uint64_t elements_of_whole = 0;  // of the tensor that the part was cut from: clip is for all of it
    float scale = 1;                      // the gradient is so many times what it means (MessageId::scale)
    bool drops_nonfinite = false;         // NaN and Inf count as 0, as does what passes 2^128
  };

  // The new u, in after(); says how: momentum * u in float32, one rounding, plus the gradient, another one.
  // REQUIRES: prepare() for so many values.
  void advance(const TensorSlot& gradient, const Step& step) noexcept;
  std::span<const float> after() const noexcept { return after_; }

  // Memory of as many values, whose content has no meaning once u has advanced.
  std::span<float> scratch() noexcept { return before_; }
  void clear(std::size_t i) noexcept { after_[i] = 0.0F; }

  // The step stands: the new u replaces the old one, if there is a new one. Or it is taken back.
  void settle() noexcept;
  void drop() noexcept { has_advanced_ = false; }

  bool has_advanced() const noexcept { return has_advanced_; }
  std::uint64_t bytes() const noexcept { return sizeof(float) * (before_.capacity() + after_.capacity()); }

  // As it stands between steps, for saved states; empty before the first one.
  std::span<const float> values() const noexcept { return before_; }
  float scale() const noexcept { return scale_; }
  void load(std::vector<float> values, float scale);

 private:
  std::vector<float> before_;
  std::vector<float> after_;
  float scale_ = 1;  // before_ is so many times what it means
  float next_scale_ = 1;
  bool has_advanced_ = false;
  bool is_kept_ = false;  // not without momentum: then after_ is the clipped gradient
};

}  // namespace deltawire
