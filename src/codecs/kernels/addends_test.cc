// Sums and their largest magnitude, by every target: all lanes count, and what fills no vector.
#include "codecs/kernels/addends.h"

#include <vector>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"
#include "codecs/target_testing.h"

namespace deltawire::addends_test {
namespace {

using namespace testing;

class AddUp : public ::testing::TestWithParam<TargetId> {
 protected:
  // `in` is 1 but for one -7, each residual -0.5; `left` begins `shift` floats behind a boundary.
  void expect_found(std::size_t count, std::size_t place, std::size_t shift) {
    std::vector<float> in(count, 1);
    in[place] = -7;
    const std::vector<float> residual(count, -0.5F);
    for (const float* const added : {static_cast<const float*>(nullptr), residual.data()}) {
      const std::uint32_t largest = bits_of(added != nullptr ? 7.5F : 7);
      EXPECT_EQ(kernels_.add_up({in.data(), added, nullptr, count}), largest) << place;
      for (const bool streamed : {false, true}) {
        std::vector<float> left(shift + count + 1, 9);
        float* const to = left.data() + shift;
        EXPECT_EQ(kernels_.add_up({in.data(), added, to, count, streamed}), largest) << place;
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(to[i], added != nullptr ? in[i] - 0.5F : in[i]) << i;
        for (float* at = left.data(); at < to; ++at) ASSERT_EQ(*at, 9);
        ASSERT_EQ(left.back(), 9);
      }
    }
    std::vector<float> in_place = residual;
    EXPECT_EQ(kernels_.add_up({in.data(), in_place.data(), in_place.data(), count}), bits_of(7.5F)) << place;
    EXPECT_EQ(in_place[place], -7.5F);
  }

  const addends::Kernels& kernels_ = addends::kernels_for(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Targets, AddUp, ::testing::ValuesIn(runnable_targets()), target_name);

TEST_P(AddUp, FindsTheLargestInEveryPlace) {
  for (std::size_t place = 0; place < 150; ++place) expect_found(150, place, place % 17);
  for (std::size_t count = 1; count < 150; ++count) expect_found(count, count / 3, count % 17);
  EXPECT_EQ(kernels_.add_up({}), 0U);
}

TEST_P(AddUp, NaNIsTheLargest) {
  std::vector<float> in(100, kInf);
  in[70] = -kNan;
  EXPECT_GT(kernels_.add_up({in.data(), nullptr, nullptr, in.size()}), kInfinityBits);
}

}  // namespace
}  // namespace deltawire::addends_test
