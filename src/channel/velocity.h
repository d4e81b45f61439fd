// Momentum before compression, of one part: what is coded is u = momentum * u + gradient, the gradient
// clipped (Lin et al., "Deep Gradient Compression", ICLR 2018, sections 3.1 and 3.2, algorithm 1).
//
// A step writes the new u next to the old one, so that a step which is taken back has changed nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "channel/feedback.h"
#include "deltawire/tensor.h"

namespace deltawire {

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
