#include "cli/plan/figures.h"

#include <cmath>

#include <gtest/gtest.h>

#include "cli/outcome_testing.h"

namespace deltawire::cli::figures_test {
namespace {

using testing::failure_of;

InputTensor tensor_of(const std::string& name, std::size_t count) {
  InputTensor tensor;
  tensor.name = name;
  tensor.shape = {count};
  for (std::size_t i = 0; i < count; ++i) {
    tensor.values.push_back(std::sin(static_cast<float>(i) * 12.9898F) * 1e-3F);
  }
  return tensor;
}

Input input_of(std::vector<InputTensor> tensors) {
  Input input;
  input.steps.emplace_back().tensors = std::move(tensors);
  return input;
}

CodecFigures measured(const std::string& spec, const Input& input) {
  const auto candidates = candidates_of({spec});
  return measure_figures(candidates.front(), input, {}, 0).value();
}

std::string refusal_of(const Candidate& candidate, const InputTensor& tensor) {
  return failure_of([&] { return measure_figures(candidate, input_of({tensor}), {}, 0); }).message;
}

TEST(Candidates, HaveThePatternThatTheirSpecNames) {
  const auto found = candidates_of({"3lc", "gather(3lc)", "ring(gcomp)", "direct(3lc:s=1)", "gcomp"});
  ASSERT_EQ(found.size(), 3);  // two are others by another name
  EXPECT_EQ(found[0].text, "3lc");
  EXPECT_EQ(found[0].spec.pattern, "direct");
  EXPECT_EQ(found[0].spec.codecs, "3lc:s=1,mode=auto,runs=on");
  EXPECT_EQ(found[1].spec.pattern, "gather");
  EXPECT_EQ(found[2].spec.pattern, "ring");
  EXPECT_GT(candidates_of({"all"}).size(), 20);
}

TEST(Candidates, RefusalsNameTheText) {
  for (const char* text : {"nosuch", "direct(", "powersgd:rank=4", "powersgd:rank=4(fp32)", "ring(3lc)"}) {
    const Failure refusal = failure_of([&] { return candidates_of({text}); });
    EXPECT_EQ(refusal.exit_status, kExitUsage) << text;
    EXPECT_NE(refusal.message.find(text), std::string::npos) << refusal.message;
  }
  const Failure refusal = failure_of([] { return candidates_of({"powersgd:rank=4"}); });
  EXPECT_NE(refusal.message.find("no model of the pattern \"powersgd\""), std::string::npos);
}

TEST(Candidates, GoWithTheOptimizerOrSayWhyNot) {
  const auto by = [](const std::string& optimizer) { return candidates_of({"3lc", "int8"}, optimizer); };
  EXPECT_EQ(by("AdamW")[0].spec.codecs, "3lc:s=1,mode=auto,runs=on,pull=0.5");
  EXPECT_EQ(by("SGD")[0].spec.codecs, "3lc:s=1,mode=auto,runs=on");
  for (const char* fit : {"AdamW", "SGD"}) EXPECT_EQ(by(fit)[0].unfit, "") << fit;
  const auto lion = by("Lion");
  EXPECT_NE(lion[0].unfit.find("Lion"), std::string::npos) << lion[0].unfit;
  EXPECT_EQ(lion[1].unfit, "");
  EXPECT_EQ(refusal_of(lion[0], tensor_of("t", 500)), lion[0].unfit);
}

TEST(Cutting, PartsAreAsLongAsExchangesMakeThem) {
  InputTensor large = tensor_of("large", 200000);
  large.significance.assign(200000, 0.5F);
  InputTensor pairs = tensor_of("pairs", 100);
  pairs.pairs = true;
  pairs.keys = {3};
  pairs.pair_values = {1};
  const Input cut = cut_for_exchange(input_of({tensor_of("small", 10), large, pairs}));
  const std::vector<InputTensor>& parts = cut.steps.front().tensors;
  ASSERT_EQ(parts.size(), 5);
  EXPECT_EQ(parts[0].name, "small");
  EXPECT_EQ(parts[1].values.size(), 81920);
  EXPECT_EQ(parts[2].values.size(), 81920);
  EXPECT_EQ(parts[3].values.size(), 200000 - 2 * 81920);
  EXPECT_EQ(parts[3].significance.size(), parts[3].values.size());
  EXPECT_EQ(parts[2].values.front(), large.values[81920]);
  EXPECT_EQ(parts[3].values.back(), large.values.back());
  EXPECT_FALSE(parts[4].pairs) << "DDP's buckets are dense";
  EXPECT_EQ(parts[4].values.size(), 100);
}

TEST(Cutting, TensorsOfALargerModelAreLonger) {
  InputTensor weight = tensor_of("weight", 1000);
  weight.significance.assign(1000, 0.5F);
  const Input small = input_of({weight, tensor_of("bias", 10)});
  for (const auto& [parameters, times] :
       {std::pair<std::uint64_t, std::size_t>(10'200, 10), {1'000'000, 81}, {0, 1}, {900, 1}}) {
    const Input cut = cut_for_exchange(small, parameters);
    const std::vector<InputTensor>& parts = cut.steps.front().tensors;
    ASSERT_EQ(parts.size(), 2);
    EXPECT_EQ(parts[0].values.size(), 1000 * times);
    EXPECT_EQ(parts[0].significance.size(), 1000 * times);
    EXPECT_EQ(parts[0].values.back(), weight.values.back());
    EXPECT_EQ(parts[1].shape, std::vector<std::uint64_t>{10 * times});
  }
}

TEST(Tensors, AreThoseOfTheWidestStep) {
  Input input = input_of({tensor_of("a", 10)});
  input.steps.emplace_back().tensors = {tensor_of("a", 10), tensor_of("b", 20), tensor_of("empty", 0)};
  const auto tensors = tensors_of(input);
  ASSERT_EQ(tensors.size(), 2);
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].elements, 20);
}

TEST(Measuring, FollowsTheTextAndTheSignificance) {
  InputTensor tensor = tensor_of("weight", 20000);
  const auto bits = [&] { return measured("gcomp", cut_for_exchange(input_of({tensor}))).bits_per_value; };
  const double uncut = bits();
  tensor.significance.assign(20000, 1e4F);
  EXPECT_LT(bits(), 0.7 * uncut);
  EXPECT_EQ(measured("gather(3lc)", input_of({tensor})).spec, "gather(3lc)");
}

TEST(Measuring, ReportsWhatACodecRefuses) {
  InputTensor bad = tensor_of("weight", 1000);
  bad.values[7] = std::nanf("");
  EXPECT_TRUE(refusal_of(candidates_of({"3lc"}).front(), bad).starts_with("3lc: "));
}

constexpr const char* kFile = R"({
  "tensors": [{"name": "fc.weight", "elements": 1000}],
  "figures": [{"codec": "mine", "pattern": "ring", "tier": "near-lossless", "bits_per_value": 13.5,
    "encode_us_per_message": 2, "encode_ns_per_value": 0.5, "decode_us_per_message": 1,
    "decode_ns_per_value": 0.25, "shares_parts": true}]})";

TEST(FiguresFiles, AreRead) {
  const auto file = parse_figures(kFile, "x.json");
  ASSERT_EQ(file.tensors.size(), 1);
  EXPECT_EQ(file.tensors[0].name, "fc.weight");
  EXPECT_EQ(file.tensors[0].elements, 1000);
  ASSERT_EQ(file.codecs.size(), 1);
  const CodecFigures& codec = file.codecs[0];
  EXPECT_EQ(codec.spec, "mine");
  EXPECT_EQ(codec.pattern, Pattern::kRing);
  EXPECT_EQ(codec.tier, Tier::kNearLossless);
  EXPECT_DOUBLE_EQ(codec.bits_per_value, 13.5);
  EXPECT_DOUBLE_EQ(codec.encode.message_seconds, 2e-6);
  EXPECT_DOUBLE_EQ(codec.encode.value_seconds, 0.5e-9);
  EXPECT_DOUBLE_EQ(codec.decode.message_seconds, 1e-6);
  EXPECT_DOUBLE_EQ(codec.decode.value_seconds, 0.25e-9);
  EXPECT_TRUE(codec.shares_parts);
}

TEST(FiguresFiles, RefusalsNameTheField) {
  const struct {
    const char* from;
    const char* to;
    const char* named;
  } cases[] = {
      {"{", "", "is not JSON"},
      {"\"figures\"", "\"numbers\"", "has no \"figures\""},
      {"\"bits_per_value\": 13.5", "\"bits_per_value\": 0",
       "figures[0].bits_per_value is 0; it must be above 0"},
      {"\"bits_per_value\": 13.5", "\"bits_per_value\": \"13\"", "figures[0].bits_per_value is not a number"},
      {"\"encode_ns_per_value\": 0.5,", "", "figures[0].encode_ns_per_value is missing"},
      {"\"decode_ns_per_value\": 0.25", "\"decode_ns_per_value\": -1", "decode_ns_per_value is -1"},
      {"\"codec\": \"mine\"", "\"codec\": 3", "figures[0].codec"},
      {"\"ring\"", "\"star\"", "figures[0].pattern is \"star\""},
      {"\"mine\"", "\"3lc\"", "figures[0].codec: ring(3lc) codes a sum anew"},
      {"\"mine\"", "\"ring(qsgd:levels=1)\"", "figures[0].codec: ring(qsgd:levels=1) codes a sum anew"},
      {"\"near-lossless\"", "\"good\"", "figures[0].tier is \"good\""},
      {"1000}", "-1}", "tensors[0].elements"},
      {"1000}", "1e30}", "tensors[0].elements"},
      {"\"fc.weight\"", "null", "tensors[0].name"},
      {"[{\"name\"", "{\"x\":[{\"name\"", "is not JSON"},
      {"[{\"name\": \"fc.weight\", \"elements\": 1000}]", "7", "tensors is not a list"},
      {"[{\"name\": \"fc.weight\", \"elements\": 1000}]", "[7]", "tensors[0] is not an object"},
  };
  for (const auto& [from, to, named] : cases) {
    std::string text = kFile;
    text.replace(text.find(from), std::string(from).size(), to);
    const Failure refusal = failure_of([&] { return parse_figures(text, "x.json"); });
    EXPECT_TRUE(refusal.message.starts_with("x.json: ")) << refusal.message;
    EXPECT_NE(refusal.message.find(named), std::string::npos) << refusal.message;
  }
  EXPECT_THROW(parse_figures("[]", "x.json"), Failure);
  EXPECT_THROW(parse_figures(R"({"figures": [3]})", "x.json"), Failure);
}

}  // namespace
}  // namespace deltawire::cli::figures_test
