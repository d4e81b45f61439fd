#include "deltawire/codec_trial.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/float16.h"

namespace deltawire::codec_trial_test {
namespace {

using Values = std::vector<float>;

Values values_of(std::size_t count) {
  Values values;
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back(std::sin(static_cast<float>(i) * 12.9898F) * 1e-3F);
  }
  return values;
}

Named part_of(std::string_view name, Values& values) {
  Named part{name, TensorSlot{values.data(), values.size()}};
  return part;
}

CodecTrial trial_of(const std::string& spec) {
  return CodecTrial::make(Spec::parse(spec).value()).value();
}

CodecFigures measured(const std::string& spec, std::span<const Named> parts) {
  CodecTrial trial = trial_of(spec);
  for (std::size_t round = 0; round < 20; ++round) {
    const Status done = trial.advance(parts);
    EXPECT_TRUE(done) << done.error().message;
  }
  return trial.figures();
}

CodecFigures measured(const std::string& spec) {
  Values weight = values_of(100'000);
  return measured(spec, std::vector{part_of("weight", weight)});
}

TEST(CodecTrial, TakesBitsTiersAndTimes) {
  const CodecFigures exact = measured("fp32");
  EXPECT_EQ(exact.spec, "direct(fp32)");
  EXPECT_EQ(exact.pattern, Pattern::kDirect);
  EXPECT_NEAR(exact.bits_per_value, 32, 0.05);
  EXPECT_EQ(exact.tier, Tier::kLossless);
  EXPECT_GT(exact.encode.value_seconds, 0);
  EXPECT_GT(exact.decode.value_seconds, 0);
  EXPECT_LT(exact.encode.of(1e5), 0.1);
  EXPECT_NEAR(measured("bf16").bits_per_value, 16, 0.05);
  EXPECT_EQ(measured("bf16").tier, Tier::kNearLossless);
  EXPECT_EQ(measured("3lc").tier, Tier::kLossy);
  EXPECT_EQ(measured("gcomp:lossless=on").tier, Tier::kLossless);
  EXPECT_EQ(measured("gcomp").tier, Tier::kNearLossless);
  EXPECT_EQ(measured("gcomp:cut=18").tier, Tier::kLossy);
  EXPECT_EQ(measured("gather(zstd)").pattern, Pattern::kGather);
}

TEST(CodecTrial, TellsWhetherThreadsShareParts) {
  Values weight = values_of(5000);
  Values bias = values_of(10);
  const std::vector<Named> parts = {part_of("weight", weight), part_of("bias", bias)};
  EXPECT_TRUE(measured("gcomp", parts).shares_parts);  // though the bias travels raw
  EXPECT_FALSE(measured("sbc", parts).shares_parts);   // its chunks follow the data
}

TEST(CodecTrial, CountsMeansThatHaveOtherBits) {
  const auto bits = [](const char* spec) { return measured(spec).bits_per_value; };
  EXPECT_GT(bits("3lc:s=0.5"), 1.1 * bits("3lc"));
  EXPECT_NEAR(bits("3lc:pull=0.5"), (bits("3lc") + bits("3lc:s=0.5")) / 2, 1e-6);
  EXPECT_NEAR(bits("gather(3lc:pull=0.5)"), bits("gather(3lc)"), 1e-3);
}

TEST(CodecTrial, CountsTheSecondHalfOfTheFirstMessages) {
  Values weight = values_of(100'000);
  const std::vector<Named> parts = {part_of("weight", weight)};
  CodecTrial trial = trial_of("dropping:k=1%");
  EXPECT_EQ(trial.least_rounds(), 8);
  EXPECT_EQ(trial_of("bf16").least_rounds(), 4);
  std::vector<double> bits;
  for (int round = 0; round < 25; ++round) {
    ASSERT_TRUE(trial.advance(parts));
    bits.push_back(trial.figures().bits_per_value);
  }
  EXPECT_EQ(bits.back(), bits[19]);
}

TEST(CodecTrial, RulesAreAsGoodAsTheirWorstCodec) {
  Values weight = values_of(5000);
  Values bias = values_of(3000);
  const std::vector<Named> parts = {part_of("weight", weight), part_of("bias", bias)};
  EXPECT_EQ(measured("bias: fp32, rest 3lc", parts).tier, Tier::kLossy);
  EXPECT_EQ(measured("direct(bias: fp32, rest gcomp:lossless=on)", parts).tier, Tier::kLossless);
}

TEST(CodecTrial, GCompsCutsAreUnseenWhateverTheirError) {
  Values weight = values_of(20'000);
  const Values significance(weight.size(), 1e4F);  // so large weights that next to nothing is seen
  std::vector<Named> parts = {part_of("weight", weight)};
  parts[0].tensor.significance = significance.data();
  EXPECT_EQ(measured("gcomp", parts).tier, Tier::kNearLossless);
  EXPECT_LT(measured("gcomp", parts).bits_per_value, 16);
}

TEST(CodecTrial, TakesHalves) {
  const Values weight = values_of(20'000);
  std::vector<std::uint16_t> halves(weight.size());
  ASSERT_EQ(narrow(weight.data(), weight.size(), DType::kBF16, halves.data()), weight.size());
  const std::vector<Named> parts = {Named{"weight", TensorSlot{halves.data(), halves.size(), DType::kBF16}}};
  EXPECT_NEAR(measured("fp32", parts).bits_per_value, 16, 0.2);
  EXPECT_EQ(measured("fp32", parts).tier, Tier::kLossless);
  EXPECT_EQ(measured("3lc", parts).tier, Tier::kLossy);
}

TEST(CodecTrial, RefusesWhatHasNoFigures) {
  Values weight = values_of(1000);
  weight[7] = std::nanf("");
  CodecTrial trial = trial_of("3lc");
  EXPECT_EQ(trial.advance(std::vector{part_of("weight", weight)}).error().code, ErrorCode::kNotFinite);
  Values none;
  EXPECT_EQ(trial_of("3lc").advance(std::vector{part_of("weight", none)}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(trial_of("3lc").advance({}).error().code, ErrorCode::kInvalidArgument);
  const auto unknown = CodecTrial::make(Spec::parse("powersgd:rank=4").value());
  EXPECT_NE(unknown.error().message.find("no model of the pattern"), std::string::npos);
}

}  // namespace
}  // namespace deltawire::codec_trial_test
