// For tests of channels: one tensor, numbers of every size, comparisons bit by bit.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "deltawire/channel.h"

namespace deltawire::testing {

using Values = std::vector<float>;

inline const std::vector<std::string> kWithResidual{
    "3lc",       "3lc:s=1.75",          "3lc:s=1.5,mode=paper",      "3lc:runs=off", "int8", "sbc",
    "sbc:p=0.5", "fastsgd:residual=on", "fastsgd:b=1.5,residual=on", "randomk:k=30%"};
inline std::unique_ptr<Channel> channel(std::string_view spec, Revert revert = Revert::kFold,
                                        std::uint64_t min_elements = 0) {
  auto made = make_channel(spec, {.policy = {min_elements}, .revert = revert});
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

inline Named named(std::string_view name, Values& values) {
  return {name, {values.data(), values.size(), DType::kF32}, 0};
}

inline std::vector<std::byte> join(std::span<const Bytes> pieces) {
  std::vector<std::byte> all;
  for (const Bytes piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
  return all;
}

inline MessageId step_id(std::uint64_t step) {
  return {step};
}

// Numbers of every size down to subnormals; a few zeros.
inline Values numbers(std::size_t count, std::uint64_t seed) {
  CounterRng rng(seed);
  Values values(count);
  for (float& value : values) {
    const double u = rng.next_uniform() - 0.5;
    const double size = rng.next_uniform();
    value = static_cast<float>(size < 0.1 ? 0.0 : size < 0.4 ? u * 1e-38 : u * u * u);
  }
  return values;
}

inline Values copy(std::span<const float> values) {
  return {values.begin(), values.end()};
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
  }
  return true;
}

}  // namespace deltawire::testing
