#include "cli/measure/replay.h"

#include <cmath>

#include <gtest/gtest.h>

#include "cli/measure/method.h"
#include "cli/outcome_testing.h"

namespace deltawire::cli::replay_test {
namespace {

constexpr Policy kAll{0};  // small tensors are coded, too

InputTensor tensor_of(const char* name, std::vector<float> values) {
  InputTensor tensor;
  tensor.name = name;
  tensor.shape = {values.size()};
  tensor.values = std::move(values);
  return tensor;
}

InputStep step_of(std::vector<InputTensor> tensors) {
  return InputStep{1, std::move(tensors)};
}

// bf16 keeps 7 bits behind the point: of 1 + 2^-9 nothing but 1.
TEST(Replay, AddsUpWhatIsLostWithoutErrorFeedback) {
  auto replay = Replay::make("bf16", kAll);
  const InputStep step = step_of({tensor_of("a", {1 + 0x1p-9F, -1 - 0x1p-9F}), tensor_of("b", {0, 0})});
  for (std::uint64_t number = 1; number <= 3; ++number) {
    const auto done = replay->take(step, number);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_DOUBLE_EQ(done->errors.relative_l2(), 0x1p-9 / (1 + 0x1p-9));
    EXPECT_DOUBLE_EQ(done->so_far, 0x1p-9 / (1 + 0x1p-9));
    EXPECT_DOUBLE_EQ(done->errors.max_error(), 0x1p-9);
    EXPECT_EQ(done->errors.bias(), 0);
    EXPECT_EQ(done->values, 4U);
    EXPECT_GT(done->bytes, 8U);
  }
  EXPECT_EQ(replay->lost_share(), 0);
}

// onebit sends each side's mean: of (1, 3) twice 2, and (-1, 1) waits; of (1, 3) + (-1, 1) the 2 again.
TEST(Replay, BringsBackWhatWaits) {
  auto replay = Replay::make("onebit", kAll);
  const InputStep step = step_of({tensor_of("a", {1, 3, -4})});
  const auto first = replay->take(step, 1);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_DOUBLE_EQ(first->errors.relative_l2(), std::sqrt(2.0 / 26));
  EXPECT_DOUBLE_EQ(first->so_far, std::sqrt(2.0 / 26));
  const auto second = replay->take(step, 2);  // encodes (0, 4, -4)
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_DOUBLE_EQ(second->so_far, std::sqrt(8.0 / (4 * 26)));
  EXPECT_LT(replay->lost_share(), 1e-6);
}

TEST(Replay, TensorsMayBeAwayForAStep) {
  auto replay = Replay::make("onebit", kAll);
  ASSERT_TRUE(replay->take(step_of({tensor_of("a", {1, 3, -4}), tensor_of("b", {5})}), 1));
  const auto done = replay->take(step_of({tensor_of("b", {5})}), 2);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->values, 1U);
  EXPECT_DOUBLE_EQ(done->so_far, std::sqrt(2.0 / (26 + 100)));
}

InputStep step_of_pairs() {
  InputTensor pairs = tensor_of("e", std::vector<float>(100'000));
  pairs.pairs = true;
  pairs.keys = {7, 99'999};
  pairs.pair_values = {1, -2};
  pairs.values[7] = 1;
  pairs.values[99'999] = -2;
  return step_of({pairs});
}

TEST(Parts, PairsGoAsPairsWhereTheCodecTakesThem) {
  const InputStep step = step_of_pairs();
  for (const CodecInfo* info : registered_codecs()) {
    std::vector<std::string_view> specs{info->name};
    specs.insert(specs.end(), info->examples.begin(), info->examples.end());
    for (const std::string_view spec : specs) {
      const auto channel = make_channel(spec, {kAll});
      const CodecInfo& made = (*make_codec(spec))->info();
      const Parts parts(step, **channel, 1);
      EXPECT_EQ(parts.sent().parts[0].tensor.has_keys(), made.key_value && !made.error_feedback) << spec;
      EXPECT_EQ(parts.sent().hash, parts.slots().hash) << spec;
      auto replay = Replay::make(spec, kAll);
      const auto done = replay->take(step, 1);
      ASSERT_TRUE(done) << spec << ": " << done.error().message;
      EXPECT_EQ(done->values, 100'000U);
      EXPECT_EQ(replay->channel().residual("e", 0).empty(), !made.error_feedback) << spec;
    }
  }
}

MeasureOptions quick() {
  MeasureOptions options;
  options.policy = kAll;
  options.seconds = 0;
  return options;
}

TEST(Method, OfOneThatRefusesHasARow) {
  Input input;
  input.steps.push_back(step_of({tensor_of("a", {1, std::nanf(""), 3})}));
  const auto row = measure_method({"int8", "int8"}, input, quick(), [](const char*) {});
  ASSERT_TRUE(row);
  EXPECT_NE(row->failed.find("NaN"), std::string::npos) << row->failed;
  EXPECT_TRUE(std::isnan(row->bits_per_value));
}

TEST(Method, OfOneThatDrawsLotsIsTheMeanOfItsStreams) {
  const auto input = synthetic_input("synthetic:constant:n=1000", false);
  MeasureOptions options = quick();
  const auto row = measure_method({"r", "randomk:k=0.5,unbiased=on"}, input, options, [](const char*) {});
  ASSERT_TRUE(row && row->failed.empty());
  EXPECT_EQ(row->streams, 8);
  EXPECT_NEAR(row->bias, 0, 0.01);  // a half of the values, doubled
  EXPECT_NEAR(row->relative_l2, 1, 0.01);
  // Twenty draws of each value: the deviation of their mean is 1/sqrt(20).
  EXPECT_NEAR(row->feedback_relative_l2, 1 / std::sqrt(20.0), 0.02);
  options.streams = 1;
  EXPECT_EQ(measure_method({"r", "randomk"}, input, options, [](const char*) {})->streams, 1);
  EXPECT_EQ(measure_method({"i", "int8"}, input, quick(), [](const char*) {})->streams, 1);
}

TEST(Method, TakesTheStepsOfATraceInTurn) {
  Input input;  // what the first step leaves, the second brings back
  input.steps.push_back({10, {tensor_of("a", {1 + 0x1p-9F})}});
  input.steps.push_back({20, {tensor_of("a", {-1 - 0x1p-9F}), tensor_of("b", {1})}});
  const auto row = measure_method({"bf16", "bf16"}, input, quick(), [](const char*) {});
  ASSERT_TRUE(row && row->failed.empty()) << row->failed;
  EXPECT_DOUBLE_EQ(row->feedback_relative_l2, 0);
  EXPECT_NEAR(row->relative_l2, 0x1p-9 * std::sqrt(2.0) / std::sqrt(3.0), 1e-5);
  EXPECT_GT(row->encode_gb_s, 0);
  EXPECT_GT(row->decode_to_copy, 0);
}

TEST(Method, AllAreTheRegistrysEachOnce) {
  const auto all = methods_of({"all"});
  EXPECT_GE(all.size(), registered_codecs().size());
  EXPECT_EQ(methods_of({"all", "all", "fp32", "3lc:s=1"}).size(), all.size());
  EXPECT_EQ(methods_of({"3lc:s=1", "3lc"}).front().spec, "3lc:s=1");
  EXPECT_EQ(methods_of({"a*: 3lc, rest fp32"}).size(), 1U);
  const Failure refusal = testing::failure_of([] { return methods_of({"fp32", "4lc"}); });
  EXPECT_EQ(refusal.exit_status, kExitUsage);
  EXPECT_NE(refusal.message.find("4lc"), std::string::npos);
}

}  // namespace
}  // namespace deltawire::cli::replay_test
