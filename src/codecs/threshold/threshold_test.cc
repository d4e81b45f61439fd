#include <cmath>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"

namespace deltawire::threshold_test {
namespace {

using namespace testing;

const testing::Expects kExpects{{
    .codec = "threshold",
    .error_bound = [](const testing::EncodedValue& value) { return std::fabs(value.x()); },
    .conservation_bound = [](const testing::EncodedValue&) { return 0.0; },
    .tiny_signs = {0, 0, 0, 0},
    .skips_zeros = true,
    .limits = {"threshold:t=0.000000000001"},
    .refused = {"t=0", "t=-1", "t=1e12", "t=inf", "t=nan", "values=fp16", "positions=raw", "values=2bit"},
}};

TEST(Threshold, ByHand) {
  // 2 and -2 are sent, 1.9 isn't: positions 1 and 3, a gap of 1 in a span of 2, so b = 0 and the gap is 1, 0.
  const auto codec = codec_of("threshold:t=2,values=bf16");
  const Floats values = {0, 2, 1.9F, -2, 0};
  EXPECT_EQ(to_ints(testing::encode(*codec, values)->payload),
            (Ints{0, 2, 0, 1, 0, 0, 0, 0b01, 0x00, 0x40, 0x00, 0xC0}));
  EXPECT_EQ(to_ints(testing::encode(*codec, Floats(5, 1.9F))->payload), (Ints{0, 0, 0}));
}

// All of at least the threshold, in chunks; around a chunk's border, too. Residuals lie in place and apart.
TEST(Threshold, SendsWhatReachesItAndKeepsTheRest) {
  for (const char* spec :
       {"threshold:t=0.75", "threshold:t=0.75,values=bf16,positions=auto", "threshold:t=0.75,values=int8"}) {
    const auto codec = codec_of(spec);
    for (const std::uint64_t large : {0U, 1U, 16383U, 16384U, 16385U, 32768U, 40000U}) {
      Floats values(41000, 0.5F);
      Floats before(41000, -0.125F);
      for (std::uint64_t i = 0; i < large; ++i) values[i] = i % 2 == 0 ? 0.875F : -0.75F;
      Floats residual = before;
      const auto part = *testing::encode(*codec, values, residual);
      EXPECT_EQ(part.chunk_ends.size(), std::max<std::uint64_t>(1, (large + 16383) / 16384));
      EXPECT_EQ(part.scalar != 0, std::string_view(spec).ends_with("int8") && large > 0);
      const Floats back = *testing::decode(*codec, part.view(), values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float x = values[i] + before[i];
        ASSERT_EQ(back[i] != 0, std::fabs(x) >= 0.75F) << i;
        ASSERT_EQ(residual[i], x - back[i]) << i;
      }
    }
  }
}

TEST(Threshold, TheBoundHoldsForAllElements) {
  const auto codec = codec_of("threshold:t=0.001");
  for (const std::uint64_t count : {1U, 2U, 16384U, 100003U}) {
    EXPECT_TRUE(testing::encode(*codec, Floats(count, 1.0F)));  // into room of exactly that size
    EXPECT_TRUE(testing::encode(*codec, testing::sparse_values(count, 0.5, 1)));
    EXPECT_TRUE(testing::encode(*codec, testing::sparse_values(count, 0.9, 1)));
  }
}

}  // namespace
}  // namespace deltawire::threshold_test
