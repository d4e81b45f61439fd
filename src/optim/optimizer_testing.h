// For the optimizers' tests: specs, and random values.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "deltawire/optimizer.h"

namespace deltawire::testing {

// One spec of each kind, with no setting at its default.
inline constexpr std::string_view kOptimizerSpecs[] = {
    "sgd:lr=0.1,weight_decay=0.02",
    "momentum:lr=0.05,momentum=0.8,dampening=0.3,weight_decay=0.01",
    "nesterov:lr=0.05,momentum=0.7,weight_decay=0.01",
    "adagrad:lr=0.02,lr_decay=0.1,eps=1e-06,initial_accumulator=0.2,weight_decay=0.03",
    "rmsprop:lr=0.003,alpha=0.9,eps=1e-05,weight_decay=0.02",
    "adam:lr=0.004,beta1=0.8,beta2=0.95,eps=1e-06,weight_decay=0.02",
    "adamw:lr=0.004,beta1=0.85,beta2=0.97,eps=1e-06,weight_decay=0.05",
};

inline Optimizer optimizer_of(std::string_view spec) {
  auto made = make_optimizer(spec);
  if (!made) throw std::runtime_error(made.error().message);
  return *std::move(made);
}

// Values in -scale ... scale.
inline std::vector<float> random_values(std::size_t count, std::uint64_t seed, float scale = 1) {
  CounterRng random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = scale * static_cast<float>(2 * random.next_uniform() - 1);
  return values;
}

inline std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

}  // namespace deltawire::testing
