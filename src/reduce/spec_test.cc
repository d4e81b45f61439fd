#include "deltawire/spec.h"

#include <gtest/gtest.h>

#include "deltawire/reducer.h"

namespace deltawire {
namespace {

Spec parsed(std::string_view text, const SpecDefaults& defaults = {}) {
  auto spec = Spec::parse(text, defaults);
  EXPECT_TRUE(spec) << text << ": " << spec.error().message;
  return spec ? *spec : Spec{};
}

std::string refusal(std::string_view text, const SpecDefaults& defaults = {}) {
  const auto spec = Spec::parse(text, defaults);
  EXPECT_FALSE(spec) << text;
  return spec ? std::string() : spec.error().message;
}

TEST(Spec, OneCodecForAll) {
  const Spec spec = parsed("3lc");
  EXPECT_EQ(spec.text, (*make_reducer("3lc"))->spec());
  EXPECT_EQ(spec.given, "3lc");
  EXPECT_EQ(spec.pattern, "direct");
  EXPECT_EQ(spec.pattern_name, "direct");
  EXPECT_FALSE(spec.names_pattern);
  EXPECT_EQ("direct(" + spec.codecs + ")", spec.text);
  ASSERT_EQ(spec.rules.size(), 1);
  const SpecRule& rule = spec.rules[0];
  EXPECT_EQ(rule.text, spec.codecs);
  EXPECT_EQ(rule.codec, spec.codecs);
  EXPECT_EQ(rule.codec_alone, spec.codecs);
  EXPECT_EQ(rule.info->name, "3lc");
  EXPECT_EQ(rule.codec_parameters.name, "3lc");
  EXPECT_EQ(rule.codec_parameters.value("mode"), "auto");
  EXPECT_EQ(rule.codec_parameters.value("mod"), "");
  EXPECT_EQ(rule.recipe, "");
  EXPECT_FALSE(rule.is_late);
  EXPECT_TRUE(rule.matches("any tensor"));
  EXPECT_TRUE(spec.keeps_residual);
}

TEST(Spec, Rules) {
  const Spec spec = parsed(
      "gather( conv* elements>=4096: topk:k=1% with momentum=0.5,masking=on,\n dims<2: bf16, rest fp32 )");
  EXPECT_TRUE(spec.names_pattern);
  EXPECT_EQ(spec.pattern, "gather");
  ASSERT_EQ(spec.rules.size(), 3);
  std::string together;
  for (const SpecRule& rule : spec.rules) together += (together.empty() ? "" : ", ") + rule.text;
  EXPECT_EQ(together, spec.codecs);

  EXPECT_EQ(spec.rules[0].name_pattern, "conv*");
  EXPECT_EQ(spec.rules[0].codec, spec.rules[0].codec_alone + " with momentum=0.5,masking=on");
  EXPECT_EQ(spec.rules[0].codec_parameters.value("k"), "0.01");
  EXPECT_EQ(spec.rules[0].momentum, 0.5F);
  EXPECT_TRUE(spec.rules[0].changes_input);
  EXPECT_TRUE(spec.rules[0].matches("conv1.weight"));
  EXPECT_FALSE(spec.rules[0].matches("fc.conv"));
  EXPECT_EQ(spec.rules[1].name_pattern, "");
  EXPECT_TRUE(spec.rules[1].matches("fc.conv"));
  EXPECT_EQ(spec.rules[2].text, "rest fp32");
}

TEST(Spec, LateIsWhatWaitsAndMeetsTheOptimizersMomentum) {
  const auto late = [](std::string_view codec) { return parsed(codec).rules.back().is_late; };
  EXPECT_TRUE(late("topk:k=1%"));
  EXPECT_TRUE(late("sbc:p=1% with decay=0.9"));
  EXPECT_TRUE(late("topk:k=1% with clip=2"));
  EXPECT_FALSE(late("topk:k=1% with momentum=0.9"));
  EXPECT_FALSE(late("signsgd:feedback=off"));
  EXPECT_FALSE(late("int8"));
  EXPECT_FALSE(late("fp32"));
}

TEST(Spec, Patterns) {
  EXPECT_TRUE(parsed("ring(bf16)").sends_sums);
  EXPECT_TRUE(parsed("ring(bf16)").takes_backend);
  EXPECT_FALSE(parsed("gather(bf16)").sends_sums);
  EXPECT_FALSE(parsed("gather(bf16)").keeps_residual);

  const Spec low_rank = parsed("powersgd");
  EXPECT_TRUE(low_rank.names_pattern);
  EXPECT_TRUE(low_rank.keeps_residual);
  EXPECT_FALSE(low_rank.takes_backend);
  EXPECT_EQ(low_rank.pattern_name, "powersgd");
  EXPECT_EQ(low_rank.codecs, "fp32");

  const Spec groups = parsed("hierarchical:group=host,within=bf16(3lc)", {.ranks_of_host = 4});
  EXPECT_EQ(
      groups.pattern,
      (*make_reducer("hierarchical:group=4,within=bf16(3lc)"))->spec().substr(0, groups.pattern.size()));
  EXPECT_EQ(groups.pattern_name, "hierarchical");
  EXPECT_TRUE(groups.sends_sums);
  EXPECT_NE(refusal("hierarchical:group=host(3lc)").find("LOCAL_WORLD_SIZE"), std::string::npos);
}

TEST(Spec, CodecsAloneTakeTheDefaultPattern) {
  EXPECT_EQ(parsed("int8", {.pattern = "gather"}).pattern, "gather");
  EXPECT_FALSE(parsed("int8", {.pattern = "gather"}).names_pattern);
  EXPECT_EQ(parsed("direct(int8)", {.pattern = "gather"}).pattern, "direct");
  EXPECT_EQ(parsed("powersgd", {.pattern = "gather"}).pattern_name, "powersgd");
}

// However a recipe is written, it is the same value.
TEST(Spec, RecipesAreNotText) {
  for (const std::string text :
       {"sparseloco", " sparseloco", "rest sparseloco", "direct( sparseloco )", "direct(rest sparseloco)"}) {
    const Spec spec = parsed(text, {.pattern = "direct"});
    EXPECT_EQ(spec.text, (*make_reducer("direct(sparseloco)"))->spec()) << text;
    ASSERT_EQ(spec.rules.size(), 1) << text;
    EXPECT_EQ(spec.rules[0].recipe, "sparseloco") << text;
    EXPECT_TRUE(spec.keeps_inner_momentum) << text;
    EXPECT_FALSE(spec.holds_back) << text;
  }
  const Spec warm = parsed("dgc:p=1%,warmup=8");
  for (const SpecRule& rule : warm.rules) EXPECT_EQ(rule.recipe, "dgc") << rule.text;
  EXPECT_FALSE(warm.keeps_inner_momentum);
  EXPECT_TRUE(parsed("muloco").keeps_inner_momentum);
}

TEST(Spec, WhatHoldsBackIsForThoseWhoLookForIt) {
  for (const std::string text : {"pulseloco", "rest pulseloco", "direct( pulseloco )", "gather(pulseloco)"}) {
    const Spec spec = parsed(text);
    ASSERT_EQ(spec.rules.size(), 1) << text;
    EXPECT_TRUE(spec.holds_back) << text;
    EXPECT_TRUE(spec.keeps_inner_momentum) << text;
    EXPECT_EQ(spec.rules[0].info->name, "threshold") << text;
    EXPECT_TRUE(make_reducer(spec.text)) << text;
    EXPECT_FALSE(make_reducer(text)) << text;
  }
  for (const std::string text : {"pulseloco:t=1", "dims>=2: pulseloco, rest fp32"}) {
    EXPECT_NE(refusal(text).find("deltawire.torch.LocalSteps"), std::string::npos) << text;
  }
}

TEST(Spec, WithPullIsForCodecsThatLeaveItOpen) {
  const Spec spec = parsed("direct(conv*: 3lc with clip=2, fc*: 3lc:pull=1, dims<2: bf16, rest 3lc:s=1.5)");
  const auto finer = spec.with_pull(0.5F);
  ASSERT_TRUE(finer) << finer.error().message;
  EXPECT_EQ(finer->text,
            "direct(conv*: 3lc:s=1,mode=auto,runs=on,pull=0.5 with clip=2, fc*: "
            "3lc:s=1,mode=auto,runs=on,pull=1, dims<2: bf16, rest 3lc:s=1.5,mode=auto,runs=on,pull=0.5)");
  EXPECT_EQ(finer->rules[0].codec_parameters.value("pull"), "0.5");
  EXPECT_EQ(finer->given, spec.given);
  EXPECT_EQ(finer->with_pull(0.75F)->text, finer->text);
  EXPECT_FALSE(spec.with_pull(2));
}

TEST(Spec, WithPullLeavesOthersAsTheyAre) {
  for (const char* text : {"gather(3lc)", "topk:k=1%", "direct(3lc:pull=0.7)"}) {
    EXPECT_EQ(parsed(text).with_pull(0.5F)->text, parsed(text).text) << text;
  }
  EXPECT_EQ(parsed("hierarchical:group=2(3lc)").with_pull(0.5F)->text,
            "hierarchical:group=2,within=fp32(3lc:s=1,mode=auto,runs=on,pull=0.5)");
  const Spec recipe = parsed("conv*: sparseloco, rest 3lc", {.pattern = "direct"});
  EXPECT_EQ(recipe.with_pull(0.5F)->rules[0].recipe, "sparseloco");
  EXPECT_EQ(recipe.with_pull(0.5F)->keeps_inner_momentum, recipe.keeps_inner_momentum);
}

TEST(Spec, RefusesWhatNoReducerTakes) {
  for (const std::string text : {"", "3lc:s=9", "nothing", "direct(3lc", "ring(topk with momentum=0.9)",
                                 "far(3lc)", "a: 3lc", "direct()", "hierarchical(3lc)", "powersgd(3lc)"}) {
    const auto spec = Spec::parse(text);
    const auto reducer = make_reducer(text);
    ASSERT_FALSE(spec) << text;
    ASSERT_FALSE(reducer) << text;
    EXPECT_EQ(spec.error().code, reducer.error().code) << text;
  }
}

TEST(Spec, NamedParameters) {
  const auto given = parse_named_parameters("auto:wait=5%");
  ASSERT_TRUE(given);
  EXPECT_EQ(given->name, "auto");
  EXPECT_EQ(given->value("wait"), "5%");
  EXPECT_FALSE(parse_named_parameters("auto:wait"));
  EXPECT_FALSE(parse_named_parameters(""));
}

}  // namespace
}  // namespace deltawire
