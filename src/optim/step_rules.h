// The steps of the seven optimizers on one tensor, after PyTorch's torch.optim (the `_single_tensor` forms):
// float32, each operation rounded; constants of the tensor are computed in double beforehand.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "deltawire/optimizer.h"

namespace deltawire {

// Adam's bias correction, 1 - beta^steps, by repeated squaring: the last bit of pow() depends on the
// mathematics library.
inline double bias_correction(double beta, std::uint64_t steps) noexcept {
  double power = 1;
  for (double square = beta; steps > 0; steps >>= 1, square *= square) {
    if ((steps & 1) != 0) power *= square;
  }
  return 1 - power;
}

// The arrays of a step. keys = nullptr: gradient[i] belongs to element i, otherwise to keys[i].
struct StepArrays {
  float* parameters = nullptr;
  float* first = nullptr;
  float* second = nullptr;
  const float* gradient = nullptr;
  const std::uint32_t* keys = nullptr;
  std::size_t count = 0;  // of gradient
};

void for_each_element(const StepArrays& a, const auto& update) {
  if (a.keys == nullptr) {
    for (std::size_t i = 0; i < a.count; ++i) update(i, a.gradient[i]);
  } else {
    for (std::size_t i = 0; i < a.count; ++i) update(a.keys[i], a.gradient[i]);
  }
}

// The gradient plus weight decay; bit for bit the gradient if there is none.
class DecayedGradient {
 public:
  explicit DecayedGradient(double weight_decay) : decay_(static_cast<float>(weight_decay)) {}
  float operator()(float gradient, float parameter) const {
    return decay_ == 0.0F ? gradient : gradient + decay_ * parameter;
  }

 private:
  float decay_;
};

inline void step_sgd(const OptimizerSettings& s, const StepArrays& a) {
  const DecayedGradient decayed(s.weight_decay);
  const auto rate = static_cast<float>(s.learning_rate);
  for_each_element(a, [=](std::size_t i, float gradient) {
    a.parameters[i] -= rate * decayed(gradient, a.parameters[i]);
  });
}

inline void step_momentum(const OptimizerSettings& s, const StepArrays& a, std::uint64_t t) {
  const DecayedGradient decayed(s.weight_decay);
  const auto rate = static_cast<float>(s.learning_rate);
  const auto mu = static_cast<float>(s.momentum);
  // PyTorch's first step takes the gradient as it is: no dampening.
  const auto share = t == 1 ? 1.0F : static_cast<float>(1 - s.dampening);
  for_each_element(a, [=](std::size_t i, float gradient) {
    const float b = mu * a.first[i] + share * decayed(gradient, a.parameters[i]);
    a.first[i] = b;
    a.parameters[i] -= rate * b;
  });
}

inline void step_nesterov(const OptimizerSettings& s, const StepArrays& a) {
  const DecayedGradient decayed(s.weight_decay);
  const auto rate = static_cast<float>(s.learning_rate);
  const auto mu = static_cast<float>(s.momentum);
  for_each_element(a, [=](std::size_t i, float gradient) {
    const float g = decayed(gradient, a.parameters[i]);
    const float b = mu * a.first[i] + g;
    a.first[i] = b;
    a.parameters[i] -= rate * (g + mu * b);
  });
}

inline void step_adagrad(const OptimizerSettings& s, const StepArrays& a, std::uint64_t t) {
  const DecayedGradient decayed(s.weight_decay);
  const auto rate = static_cast<float>(s.learning_rate / (1 + static_cast<double>(t - 1) * s.lr_decay));
  const auto eps = static_cast<float>(s.eps);
  for_each_element(a, [=](std::size_t i, float gradient) {
    const float g = decayed(gradient, a.parameters[i]);
    const float r = a.second[i] + g * g;
    a.second[i] = r;
    a.parameters[i] -= rate * (g / (std::sqrt(r) + eps));
  });
}

inline void step_rmsprop(const OptimizerSettings& s, const StepArrays& a) {
  const DecayedGradient decayed(s.weight_decay);
  const auto rate = static_cast<float>(s.learning_rate);
  const auto alpha = static_cast<float>(s.alpha);
  const auto share = static_cast<float>(1 - s.alpha);
  const auto eps = static_cast<float>(s.eps);
  for_each_element(a, [=](std::size_t i, float gradient) {
    const float g = decayed(gradient, a.parameters[i]);
    const float v = alpha * a.second[i] + share * g * g;
    a.second[i] = v;
    a.parameters[i] -= rate * (g / (std::sqrt(v) + eps));
  });
}

// Adam, and AdamW, whose weight decay shrinks the parameter instead of entering the gradient.
inline void step_adam(const OptimizerSettings& s, const StepArrays& a, std::uint64_t t) {
  const bool decoupled = s.kind == OptimizerKind::kAdamW;
  const DecayedGradient decayed(decoupled ? 0 : s.weight_decay);
  const auto shrink = static_cast<float>(decoupled ? 1 - s.learning_rate * s.weight_decay : 1.0);
  const auto rate = static_cast<float>(s.learning_rate / bias_correction(s.beta1, t));
  const auto share1 = static_cast<float>(1 - s.beta1);
  const auto beta2 = static_cast<float>(s.beta2);
  const auto share2 = static_cast<float>(1 - s.beta2);
  const auto correction = static_cast<float>(std::sqrt(bias_correction(s.beta2, t)));
  const auto eps = static_cast<float>(s.eps);
  for_each_element(a, [=](std::size_t i, float gradient) {
    const float g = decayed(gradient, a.parameters[i]);
    const float m = a.first[i] + share1 * (g - a.first[i]);
    const float v = beta2 * a.second[i] + share2 * g * g;
    a.first[i] = m;
    a.second[i] = v;
    a.parameters[i] = shrink * a.parameters[i] - rate * (m / (std::sqrt(v) / correction + eps));
  });
}

}  // namespace deltawire
