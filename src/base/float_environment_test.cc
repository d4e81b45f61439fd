#include "base/float_environment.h"

#include <bit>
#include <limits>

#include <gtest/gtest.h>

namespace deltawire {
namespace {

constexpr std::uint64_t kCallers = FloatEnvironment::kFlushToZero | FloatEnvironment::kRoundUp;

// On other architectures there is no control word to test.
TEST(FloatEnvironment, HoldsTheDefinedModeAndGivesTheCallersBack) {
  const std::uint64_t before = FloatEnvironment::read_control();
  FloatEnvironment::write_control(before | kCallers);
  const std::uint64_t callers = FloatEnvironment::read_control();
  std::uint64_t inside = 0;
  {
    const FloatEnvironment environment;
    inside = FloatEnvironment::read_control();
  }
  const std::uint64_t after = FloatEnvironment::read_control();
  FloatEnvironment::write_control(before);
  EXPECT_EQ(inside & kCallers, 0u);
  EXPECT_EQ(after, callers);
}

TEST(FloatEnvironment, KeepsSubnormalsAndRoundsToNearest) {
  const std::uint64_t before = FloatEnvironment::read_control();
  FloatEnvironment::write_control(before | kCallers);
  float halved = 0;
  float sum = 0;
  {
    const FloatEnvironment environment;
    halved = FloatEnvironment::pinned(0x1p-126F) / 2;
    sum = FloatEnvironment::pinned(1.0F) + 0x1p-30F;
  }
  FloatEnvironment::write_control(before);
  EXPECT_EQ(halved, 0x1p-127F);
  EXPECT_EQ(sum, 1.0F);
}

// What CPUs do in ways of their own: docs/design/determinism.md says where it shows.
TEST(FloatEnvironment, ANanOfInfinitiesHasTheCpusSign) {
  const float infinity = FloatEnvironment::pinned(std::numeric_limits<float>::infinity());
  const float nan = infinity - FloatEnvironment::pinned(std::numeric_limits<float>::infinity());
  const auto bits = std::bit_cast<std::uint32_t>(nan);
#if defined(__x86_64__)
  EXPECT_EQ(bits, 0xFFC00000U);
#elif defined(__aarch64__)
  EXPECT_EQ(bits, 0x7FC00000U);
#else
  EXPECT_EQ(bits & 0x7FC00000U, 0x7FC00000U);
#endif
}

}  // namespace
}  // namespace deltawire
