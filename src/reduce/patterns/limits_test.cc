// Tensors and buckets beyond what a message may hold: cut into parts and messages of a bounded size.
#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "deltawire/codec.h"
#include "deltawire/frame.h"
#include "reduce/patterns/patterns.h"
#include "reduce/patterns/ring_plan.h"
#include "reduce/rank_threads_testing.h"
#include "reduce/sequential_testing.h"

namespace deltawire::limits_test {
namespace {

// No pattern's message comes near the transport's limit, whatever the codec, and the cuts fall between
// chunks.
TEST(Limits, TheLargestMessageOfEveryCodecFits) {
  EXPECT_EQ(kMostElements % kRingMessageElements, 0u);
  EXPECT_EQ(kMostElements % kCutElements, 0u);
  for (const CodecInfo* info : registered_codecs()) {
    const Named part{"w", {nullptr, kMostElements, DType::kF32}};
    EXPECT_LE((*make_channel(info->name))->message_bound(std::span(&part, 1), 0),
              std::min(kMaxFrameBytes, kMessageBytesMax))
        << info->name;
    if (info->chunk_elements == 0) continue;
    EXPECT_EQ(kMostElements % info->chunk_elements, 0u) << info->name;
  }
}

// By pattern and codec, with a limit that most tensors and every bucket pass.
class SmallMessages : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr std::uint64_t kMost = 10 * 320;
  static std::unique_ptr<Reducer> reducer() {
    const auto open = GetParam().find('(');
    const std::string codec = GetParam().substr(open + 1, GetParam().size() - open - 2);
    auto made = GetParam().starts_with("direct") ? make_direct_reducer(codec, {}, kMost)
                                                 : make_gather_reducer(codec, {}, kMost);
    EXPECT_TRUE(made);
    return std::move(*made);
  }
};

INSTANTIATE_TEST_SUITE_P(Specs, SmallMessages,
                         ::testing::Values("direct(fp32)", "direct(3lc)", "direct(sbc)", "direct(gcomp)",
                                           "gather(fp32)", "gather(3lc)", "gather(sbc)", "gather(fastsgd)"),
                         [](const auto& chosen) {
                           std::string name = chosen.param;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

TEST_P(SmallMessages, EqualTheSequentialReferenceBitForBit) {
  for (const int world : {1, 2, 3}) {
    const auto means = testing::reference_means(*testing::make_sequential(GetParam(), world, kMost), world);
    run_ranks(world, {},
              [&](int, Transport& transport) { testing::expect_means(*reducer(), means, transport); });
  }
}

// Momentum is masked in every part, and only where something was sent.
TEST_P(SmallMessages, MaskAllParts) {
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    std::vector<float> values(5 * kMost, 0.0F);
    for (std::size_t i = 0; i < values.size(); i += 100)
      values[i] = static_cast<float>(i + 1 + static_cast<std::size_t>(rank));
    const Named tensor{"w", {values.data(), values.size(), DType::kF32}};
    const auto made = reducer();
    ASSERT_TRUE(made->all_reduce(std::span(&tensor, 1), {}, transport, in_seconds(20)));
    std::vector<float> momentum(values.size(), 1.0F);
    ASSERT_TRUE(made->mask_sent("w", momentum));
    for (std::uint64_t first = 0; first < values.size(); first += kMost) {
      const auto kept = std::accumulate(momentum.begin() + static_cast<std::ptrdiff_t>(first),
                                        momentum.begin() + static_cast<std::ptrdiff_t>(first + kMost), 0.0F);
      const bool sparse =
          GetParam().find("sbc") != std::string::npos || GetParam().find("fastsgd") != std::string::npos;
      if (sparse) {
        EXPECT_LT(kept, static_cast<float>(kMost)) << "from " << first;
        EXPECT_GT(kept, static_cast<float>(kMost) / 2) << "from " << first;
      } else {
        EXPECT_EQ(kept, static_cast<float>(kMost)) << "from " << first;
      }
    }
  });
}

// What a codec hears of the shape: a whole tensor's dims, none of a tensor that is cut.
TEST_P(SmallMessages, PartsThatAreWholeTensorsHaveTheirDims) {
  run_ranks(1, {}, [](int, Transport& transport) {
    const auto code = [&](std::uint64_t count, std::vector<std::uint64_t> dims) {
      std::vector<float> values(count, 1.0F);
      Named tensor{"w", {values.data(), count, DType::kF32}};
      tensor.tensor.dims = dims;
      const auto made = reducer();
      const Status begun = made->begin(std::span(&tensor, 1), {}, transport, in_seconds(20));
      std::ranges::fill(dims, 0U);  // the caller's, and copied
      const auto reduced = begun ? made->finish() : Result<Report>(forward_error(begun));
      return reduced ? ErrorCode{} : reduced.error().code;
    };
    EXPECT_EQ(code(kMost, {32, 100}), ErrorCode{});
    EXPECT_EQ(code(3 * kMost, {32, 100}), ErrorCode{});
    EXPECT_EQ(code(kMost, {32, 99}), ErrorCode::kInvalidArgument);
  });
}

// `gather` never cuts the pairs of one tensor. No key is read but these two: that they don't grow, which
// would be the next error, ends the search.
TEST(Limits, TooManyPairsAreRefusedBeforeAnythingIsEncoded) {
  run_ranks(1, {}, [](int, Transport& transport) {
    std::array<std::uint32_t, 2> keys{1, 0};
    float value = 1.0F;
    Named tensor{"embedding",
                 {&value, std::uint64_t{1} << 30, DType::kF32, keys.data(), (std::uint64_t{1} << 32) - 1}};
    Pairs mean;
    testing::expect_refused(
        reducer_of("gather(fastsgd)")
            ->all_reduce({std::span(&tensor, 1), std::span(&mean, 1)}, {}, transport, in_seconds(5)),
        ErrorCode::kLimit, "embedding");
  });
}

}  // namespace
}  // namespace deltawire::limits_test
