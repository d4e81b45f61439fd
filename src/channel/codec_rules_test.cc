// Rules: which codec a part gets, what is refused, and that no residual is lost when a codec changes.
#include "channel/codec_rules.h"

#include <array>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "channel/channel_testing.h"
#include "deltawire/file.h"

namespace deltawire::codec_rules_test {
namespace {

using namespace testing;

const std::string k3lc = "3lc:s=1.75,mode=auto,runs=on";

CodecRules rules(std::string_view text) {
  Result<CodecRules> parsed = CodecRules::parse(text);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return std::move(*parsed);
}

std::string codec_of(const CodecRules& from, const Named& part, std::uint64_t step = 0) {
  return std::string(from.of(part, step).info().name);
}

Named part(std::string_view name, std::uint64_t count = 10) {
  return {name, {nullptr, count, DType::kF32}};
}

TEST(CodecRules, OneCodecForAllIsItsSpec) {
  for (const std::string text : {"3lc:s=1.75", "rest 3lc:s=1.75", " rest  3lc:s=1.75,mode=auto "}) {
    EXPECT_EQ(rules(text).spec(), k3lc) << text;
    EXPECT_EQ(codec_of(rules(text), part("w")), "3lc") << text;
  }
}

TEST(CodecRules, TheCanonicalTextNamesAllParametersAndReadsAsItself) {
  const std::string text = "conv*:  3lc:mode=auto,s=1.75 ,fc?  elements>=100  step<5: bf16,rest fp32";
  const std::string canonical = "conv*: " + k3lc + ", fc? elements>=100 step<5: bf16, rest fp32";
  EXPECT_EQ(rules(text).spec(), canonical);
  EXPECT_EQ(rules(canonical).spec(), canonical);
}

TEST(CodecRules, NamesMatchAsAWhole) {
  const auto takes = [](const std::string& pattern, std::string_view name) {
    return codec_of(rules(pattern + ": bf16, rest fp32"), part(name)) == "bf16";
  };
  EXPECT_TRUE(takes("conv*", "conv1.weight"));
  EXPECT_FALSE(takes("conv*", "a.conv1.weight"));
  EXPECT_TRUE(takes("*conv*", "a.conv1.weight"));
  EXPECT_TRUE(takes("fc?", "fc1"));
  EXPECT_FALSE(takes("fc?", "fc"));
  EXPECT_FALSE(takes("fc?", "fc12"));
  EXPECT_TRUE(takes("*", ""));
  EXPECT_TRUE(takes("*ab*c", "aab-abc-c"));
  EXPECT_FALSE(takes("*ab*c", "aab-abc-d"));
  EXPECT_TRUE(takes("w*", "w"));
  EXPECT_FALSE(takes("w", "ww"));
}

TEST(CodecRules, TheFirstThatFitsDecides) {
  const CodecRules three = rules("a*: bf16, *b: int8, rest fp32");
  EXPECT_EQ(codec_of(three, part("ab")), "bf16");
  EXPECT_EQ(codec_of(three, part("cb")), "int8");
  EXPECT_EQ(codec_of(three, part("c")), "fp32");
}

TEST(CodecRules, SayWhenAnotherCodecFollows) {
  const CodecRules some =
      rules("a* step<10: bf16, step<5: int8, step>=20 step<=24: int8, rest fp32 with clip=1");
  const auto changes = [&](std::string_view name, std::uint64_t step) {
    const std::uint64_t next = some.next_change(part(name), step);
    EXPECT_EQ(next == kNoStep, some.text_of(part(name), step) == "fp32 with clip=1" && step > 24);
    if (next != kNoStep) {
      EXPECT_EQ(some.text_of(part(name), next - 1), some.text_of(part(name), step));
      EXPECT_NE(some.text_of(part(name), next), some.text_of(part(name), step));
    }
    return next;
  };
  EXPECT_EQ(changes("a", 0), 10u);
  EXPECT_EQ(changes("a", 9), 10u);
  EXPECT_EQ(changes("a", 10), 20u);
  EXPECT_EQ(changes("b", 0), 5u);
  EXPECT_EQ(changes("b", 5), 20u);
  EXPECT_EQ(changes("b", 20), 25u);
  EXPECT_EQ(changes("b", 25), kNoStep);
}

TEST(CodecRules, AnotherRuleWithTheSameCodecIsNoChange) {
  EXPECT_EQ(rules("step<5: bf16, rest bf16").next_change(part("w"), 0), kNoStep);
  EXPECT_EQ(rules("step<5: bf16, rest bf16 with clip=1").next_change(part("w"), 0), 5u);
  EXPECT_EQ(rules("step>18446744073709551614: bf16, rest fp32").next_change(part("w"), 0), kNoStep);
}

// Each relation on both sides of its edge.
TEST(CodecRules, ComparisonsHoldUpToTheirEdges) {
  const auto takes = [](const std::string& condition, std::uint64_t elements) {
    return codec_of(rules(condition + ": bf16, rest fp32"), part("w", elements)) == "bf16";
  };
  EXPECT_TRUE(takes("elements<10", 9));
  EXPECT_FALSE(takes("elements<10", 10));
  EXPECT_TRUE(takes("elements<=10", 10));
  EXPECT_FALSE(takes("elements<=10", 11));
  EXPECT_TRUE(takes("elements=10", 10));
  EXPECT_FALSE(takes("elements=10", 9));
  EXPECT_FALSE(takes("elements=10", 11));
  EXPECT_TRUE(takes("elements>=10", 10));
  EXPECT_FALSE(takes("elements>=10", 9));
  EXPECT_TRUE(takes("elements>10", 11));
  EXPECT_FALSE(takes("elements>10", 10));
  EXPECT_TRUE(takes("elements>5 elements<=10", 10));
  EXPECT_FALSE(takes("elements>5 elements<=10", 5));
}

TEST(CodecRules, DimsAndStep) {
  const CodecRules both = rules("dims>=2 step>=3: bf16, rest fp32");
  const std::array<std::uint64_t, 2> dims{2, 5};
  Named matrix = part("w");
  matrix.tensor.dims = dims;
  EXPECT_EQ(codec_of(both, matrix, 3), "bf16");
  EXPECT_EQ(codec_of(both, matrix, 2), "fp32");
  EXPECT_EQ(codec_of(both, part("w"), 3), "fp32") << "no dims are one";
}

// An owner's or a message's share goes by the tensor that it was cut from, or replicas would change with the
// world.
TEST(CodecRules, APartOfATensorCountsAsTheWhole) {
  const CodecRules large = rules("elements>=1000 dims=3: bf16, rest fp32");
  Named cut = part("w", 10);
  EXPECT_EQ(codec_of(large, cut), "fp32");
  cut.elements_of_whole = 1000;
  cut.dims_of_whole = 3;
  EXPECT_EQ(codec_of(large, cut), "bf16");
}

TEST(CodecRules, PairsCountWithAllElements) {
  std::array<std::uint32_t, 1> keys{0};
  const Named pairs{"w", {nullptr, 1, DType::kF32, keys.data(), 5000}};
  EXPECT_EQ(codec_of(rules("elements=5000: fastsgd, rest fp32"), pairs), "fastsgd");
}

TEST(CodecRules, RefusalsSayWhatToDo) {
  const auto refusal = [](std::string_view text) {
    const auto parsed = CodecRules::parse(text);
    if (parsed) return "none: " + parsed->spec();
    EXPECT_TRUE(parsed.error().code == ErrorCode::kInvalidArgument ||
                parsed.error().code == ErrorCode::kUnknownCodec);
    return parsed.error().message;
  };
  EXPECT_NE(refusal("conv*: 3lc").find("end them with 'rest CODEC'"), std::string::npos);
  EXPECT_NE(refusal("rest fp32, conv*: 3lc").find("'conv*: 3lc' comes after"), std::string::npos);
  EXPECT_NE(refusal("3lc, rest fp32").find("'rest fp32' comes after"), std::string::npos);
  EXPECT_NE(refusal("conv*: nope, rest fp32").find("\"nope\""), std::string::npos);
  EXPECT_NE(refusal("3lc: s=1").find("parameters follow without spaces: '3lc:s=1'"), std::string::npos);
  EXPECT_NE(refusal("conv*: 3lc:s=9, rest fp32").find("s=9"), std::string::npos);
  for (const std::string bad :
       {"elements>", "elements>x", "size>5", "step<0", "dims>18446744073709551615",
        "dims>18446744073709551616", "a b", "step>1 a", "elements==5", "elements>-1", "elements>5x"}) {
    EXPECT_NE(refusal(bad + ": 3lc, rest fp32").find("is no condition"), std::string::npos) << bad;
  }
  EXPECT_FALSE(CodecRules::parse(""));
  EXPECT_FALSE(CodecRules::parse(": 3lc, rest fp32"));
}

TEST(CodecRules, ThePatternIsTheirsIfTheyHaveOne) {
  EXPECT_EQ(rules("a: 3lc, rest fp32").default_pattern(), "direct");
  EXPECT_EQ(rules("sbc").default_pattern(), "gather");
  EXPECT_EQ(rules("a: sbc, rest fp32").default_pattern(), "");
}

TEST(ChannelRules, OneMessageHoldsPartsOfSeveralCodecs) {
  const std::string text = "conv*: 3lc, fc*: bf16, rest fp32";
  const auto both = channel(text);
  std::vector<Values> in{numbers(3000, 1), numbers(2000, 2), numbers(500, 3)};
  std::vector<Values> out{Values(3000), Values(2000), Values(500)};
  const std::array<std::string, 3> names{"conv1", "fc1", "bn"};
  std::vector<Named> from;
  std::vector<Named> to;
  for (std::size_t i = 0; i < 3; ++i) {
    from.push_back(named(names[i], in[i]));
    to.push_back(named(names[i], out[i]));
  }
  const auto pieces = both->encode(from, step_id(0));
  ASSERT_TRUE(pieces) << pieces.error().message;
  const auto message = join(*pieces);
  auto frame = FrameReader::open(message);
  ASSERT_TRUE(frame);
  std::vector<std::uint16_t> ids;
  while (frame->segments_left() > 0) ids.push_back(frame->next()->segment.codec);
  EXPECT_EQ(ids,
            (std::vector<std::uint16_t>{(*make_codec("3lc"))->info().id, (*make_codec("bf16"))->info().id,
                                        (*make_codec("fp32"))->info().id}));
  ASSERT_TRUE(both->decode(message, to, step_id(0), Into::kOverwrite, 1.0F));
  EXPECT_EQ(out[2], in[2]);
  EXPECT_EQ(both->residual("conv1", 0).size(), 3000u);
  EXPECT_TRUE(both->residual("fc1", 0).empty());
  // Each as its codec alone would have coded it.
  const auto alone = channel("bf16");
  Values expected(2000);
  const Named slot = named("fc1", expected);
  ASSERT_TRUE(alone->decode(join(*alone->encode(std::span(&from[1], 1), step_id(0))), std::span(&slot, 1),
                            step_id(0), Into::kOverwrite, 1.0F));
  EXPECT_EQ(out[1], expected);
  // Other rules are other parameters.
  testing::expect_refused(
      channel("conv*: 3lc, fc*: fp32, rest fp32")->decode(message, to, step_id(0), Into::kOverwrite, 1.0F),
      ErrorCode::kMismatch, "params_hash");
}

// 3LC leaves a residual; fp32, which keeps none of its own, sends it with the next values. What goes in comes
// out, also when a step is taken back.
TEST(ChannelRules, AResidualLeavesWithTheCodecThatComesNext) {
  for (const Revert revert : {Revert::kFold, Revert::kExact}) {
    const auto both = channel("step<2: 3lc, rest fp32", revert);
    Values in(1000, 0.0F);
    Values sent(1000, 0.0F);
    Values given(1000, 0.0F);
    const Named from = named("w", in);
    const Named to = named("w", sent);
    for (std::uint64_t step = 0; step < 4; ++step) {
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>((7 * i + step) % 16);
      in[3] = 16;
      if (step == 2) {
        // Fails elsewhere, so it is taken back.
        ASSERT_TRUE(both->encode(std::span(&from, 1), step_id(step)));
        both->revert();
        if (revert == Revert::kFold) {
          for (std::size_t i = 0; i < in.size(); ++i) given[i] += in[i];
          in.assign(in.size(), 1e-30F);  // what waits would not leave with zeros
        }
      }
      const auto pieces = both->encode(std::span(&from, 1), step_id(step));
      ASSERT_TRUE(pieces) << pieces.error().message;
      ASSERT_TRUE(both->decode(*pieces, std::span(&to, 1), step_id(step), Into::kAccumulate, 1.0F));
      both->commit();
      for (std::size_t i = 0; i < in.size(); ++i) given[i] += in[i];
      Values left = copy(both->residual("w", 0));
      EXPECT_EQ(left.empty(), step >= 2);
      left.resize(in.size());
      for (std::size_t i = 0; i < in.size(); ++i) ASSERT_EQ(sent[i] + left[i], given[i]) << step << " " << i;
    }
    EXPECT_EQ(sent, given);
  }
}

TEST(ChannelRules, WithoutErrorFeedbackNothingIsKept) {
  const auto files = std::move(*make_channel("3lc", {.policy = {0}, .error_feedback = false}));
  Values values = numbers(1000, 1);
  const Named part = named("w", values);
  ASSERT_TRUE(files->encode(std::span(&part, 1), step_id(0)));
  files->commit();
  EXPECT_TRUE(files->residual("w", 0).empty());
}

// What a sender's and a receiver's rules see must be the same.
TEST(ChannelRules, OtherDimsAreAMismatch) {
  const auto both = channel("dims=2: 3lc, rest fp32");
  Values values = numbers(100, 1);
  Named tensor = named("w", values);
  const std::array<std::uint64_t, 2> dims{10, 10};
  tensor.tensor.dims = dims;
  const auto message = join(*both->encode(std::span(&tensor, 1), step_id(0)));
  const auto decode = [&](std::span<const std::uint64_t> expected) {
    tensor.tensor.dims = expected;
    return both->decode(message, std::span(&tensor, 1), step_id(0), Into::kOverwrite, 1.0F);
  };
  EXPECT_TRUE(decode(dims));
  testing::expect_refused(decode({}), ErrorCode::kMismatch, "other tensors");
  const std::array<std::uint64_t, 2> transposed{20, 5};
  EXPECT_FALSE(decode(transposed));
}

TEST(ChannelRules, FilesHaveOneCodec) {
  Values values = numbers(10, 1);
  const std::array<std::uint64_t, 1> shape{10};
  const TensorView view{values.data(), values.size(), DType::kF32};
  EXPECT_FALSE(encode_file(view, shape, "elements>5: bf16, rest fp32"));
  EXPECT_TRUE(encode_file(view, shape, "bf16"));
}

}  // namespace
}  // namespace deltawire::codec_rules_test
