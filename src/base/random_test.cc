#include "base/random.h"

#include <array>
#include <set>

#include <gtest/gtest.h>

namespace deltawire {
namespace {

TEST(CounterRng, NextWalksTheCounters) {
  CounterRng walking(42);
  const CounterRng fixed(42);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(walking.next(), fixed.at(i));
  for (std::uint64_t i = 100; i < 200; ++i) EXPECT_EQ(walking.next_uniform(), fixed.uniform_at(i));
}

TEST(CounterRng, ValuesArePinned) {
  // Recorded streams and seeded tests depend on these numbers: a different generator needs a different name.
  // They come from a second implementation of the same formula, in Python.
  const CounterRng zero(0);
  EXPECT_EQ(zero.at(0), 0xA706DD2F4D197E6Fu);
  EXPECT_EQ(zero.at(1), 0xB382A305F4414F5Eu);
  EXPECT_EQ(CounterRng(12345, 6).at(789), 0x9BE0BC94B5B8137Au);
}

TEST(CounterRng, IsKnownAtCompileTime) {
  constexpr std::uint64_t kValue = CounterRng(1, 2).at(3);
  EXPECT_EQ(kValue, CounterRng(1, 2).at(3));
}

TEST(CounterRng, SeedsAndStreamsDiffer) {
  std::set<std::uint64_t> first_values;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    for (std::uint64_t stream = 0; stream < 50; ++stream) first_values.insert(CounterRng(seed, stream).at(0));
  }
  EXPECT_EQ(first_values.size(), 2500u);
}

TEST(CounterRng, UniformStaysBelowOneAndFillsTheRange) {
  CounterRng random(7);
  std::array<int, 16> histogram{};
  constexpr int kDraws = 16000;
  for (int i = 0; i < kDraws; ++i) {
    const double value = random.next_uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    ++histogram[static_cast<std::size_t>(value * 16)];
  }
  // 1,000 are expected in each; the standard deviation is 31.
  for (const int count : histogram) EXPECT_NEAR(count, kDraws / 16, 200);
}

TEST(CounterRng, EveryBitIsSetHalfOfTheTime) {
  CounterRng random(8);
  std::array<int, 64> set_bits{};
  for (int i = 0; i < 4000; ++i) {
    const std::uint64_t value = random.next();
    for (std::size_t bit = 0; bit < 64; ++bit) set_bits[bit] += static_cast<int>((value >> bit) & 1);
  }
  for (const int count : set_bits) EXPECT_NEAR(count, 2000, 200);
}

}  // namespace
}  // namespace deltawire
