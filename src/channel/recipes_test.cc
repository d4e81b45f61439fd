// Recipes by name, and the rules that they stand for.
#include <string>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "channel/codec_rules.h"
#include "deltawire/channel.h"

namespace deltawire {
namespace {

std::string spec_of(std::string_view text) {
  const auto rules = CodecRules::parse(text);
  EXPECT_TRUE(rules) << rules.error().message;
  return rules ? rules->spec() : "";
}

// Deep Gradient Compression by its name: 25 %, 6.25 %, 1.5625 % and 0.390625 % in the quarters of the
// warm-up.
TEST(Recipes, DgcStandsForItsRules) {
  const auto topk = [](const std::string& k, const std::string& feedback) {
    return spec_of("topk:k=" + k) + feedback;
  };
  const std::string usual = " with momentum=0.9,masking=on";
  EXPECT_EQ(spec_of("dgc"), topk("0.001", usual));
  EXPECT_EQ(spec_of("dgc:p=1%,clip=2,momentum=0.5"), topk("0.01", " with clip=2,momentum=0.5,masking=on"));
  EXPECT_EQ(spec_of("dgc:momentum=0"), topk("0.001", ""));
  EXPECT_EQ(spec_of("conv*: dgc:p=0.1%,warmup=1001, rest fp32"),
            "conv* step<250: " + topk("0.25", usual) + ", conv* step<500: " + topk("0.0625", usual) +
                ", conv* step<750: " + topk("0.015625", usual) + ", conv* step<1001: " +
                topk("0.00390625", usual) + ", conv*: " + topk("0.001", usual) + ", rest " + spec_of("fp32"));
  EXPECT_EQ(spec_of("dgc:p=6.25%,warmup=8"),
            "step<2: " + topk("0.25", usual) + ", rest " + topk("0.0625", usual));
  EXPECT_EQ(spec_of("dgc:warmup=2"), "step<1: " + topk("0.0625", usual) + ", step<2: " +
                                         topk("0.00390625", usual) + ", rest " + topk("0.001", usual));
  for (const std::string wrong : {"dgc:p=1", "dgc:warmup=0.5", "dgc:k=1%", "dgc:clip=0"}) {
    testing::expect_refused(make_channel(wrong), ErrorCode::kInvalidArgument, "dgc");
  }
}

// A warm-up of a codec that sends a share: DGC's quarters, with the codec's other parameters and feedback in
// every stage. Feedback that doesn't follow " with " is none.
TEST(Recipes, AWarmupOfASparseCodecStandsForItsRules) {
  const auto sbc = [](const std::string& p) { return spec_of("sbc:p=" + p + ",positions=auto"); };
  EXPECT_EQ(spec_of("sbc:positions=auto,warmup=400"),
            "step<100: " + sbc("0.25") + ", step<200: " + sbc("0.0625") + ", step<300: " + sbc("0.015625") +
                ", rest " + sbc("0.01"));
  const auto topk = [](const std::string& k) {
    return spec_of("topk:k=" + k + ",values=int8") + " with momentum=0.5,masking=on";
  };
  EXPECT_EQ(spec_of("fc* step<900: topk:warmup=10,k=10%,values=int8 with momentum=0.5,masking=on, rest fp32"),
            "fc* step<900 step<2: " + topk("0.25") + ", fc* step<900: " + topk("0.1") + ", rest " +
                spec_of("fp32"));
  EXPECT_EQ(spec_of("randomk:k=50%,warmup=8"), spec_of("randomk:k=0.5"));
  EXPECT_EQ(spec_of("topk:k=1%,warmup=0"), spec_of("topk:k=1%"));
  EXPECT_EQ(spec_of("topk:warmup=4"), spec_of("topk:k=1%,warmup=4"));
  for (const std::string wrong :
       {"sbc:warmup=0.5", "topk:k=2,warmup=8", "randomk:warmup=-1", "topk:values=x,warmup=8"}) {
    testing::expect_refused(make_channel(wrong), ErrorCode::kInvalidArgument, wrong.substr(0, 3));
  }
}

TEST(Recipes, SparseLoCoIsTopkInBlocksAndADecay) {
  const std::string sparseloco = "topk:values=2bit,positions=auto,chunk=4096,k=";
  EXPECT_EQ(spec_of("sparseloco"), spec_of(sparseloco + "0.015625") + " with decay=0.95,pull_decay=0.5");
  EXPECT_EQ(
      spec_of("dims>=2: sparseloco:k=1%,decay=0.9,pull_decay=0, rest fp32"),
      "dims>=2: " + spec_of(sparseloco + "0.01") + " with decay=0.9,pull_decay=0, rest " + spec_of("fp32"));
  EXPECT_EQ(spec_of("sparseloco:pull=4%"),
            spec_of(sparseloco + "0.015625,pull=4%") + " with decay=0.95,pull_decay=0.5");
  for (const std::string wrong :
       {"sparseloco:pull=2", "sparseloco:k=2", "sparseloco:decay=1", "sparseloco:momentum=0.9"}) {
    testing::expect_refused(make_channel(wrong), ErrorCode::kInvalidArgument, "sparseloco");
  }
}

// k=1 is none of topk's, so "all" is the largest k below it that its text shows. The float32 of it times a
// block's 4,096 elements, or fewer, rounds to all of them.
TEST(Recipes, MuLoCoSendsEveryElementInTwoBits) {
  const std::string all = spec_of("topk:k=0.999999,values=2bit,positions=auto,chunk=4096");
  EXPECT_EQ(spec_of("muloco"), all + " with decay=0.9,pull_decay=0");
  EXPECT_EQ(spec_of("dims>=2: muloco:decay=0.5,pull_decay=0.25, rest fp32"),
            "dims>=2: " + all + " with decay=0.5,pull_decay=0.25, rest " + spec_of("fp32"));
  for (const std::string wrong : {"muloco:k=1%", "muloco:decay=1", "muloco:decay=-1"}) {
    testing::expect_refused(make_channel(wrong), ErrorCode::kInvalidArgument, "muloco");
  }
}

TEST(Recipes, PulseLoCoIsOfLocalStepsAlone) {
  for (const std::string spec : {"pulseloco", "dims>=2: pulseloco, rest fp32", "pulseloco:t=1"}) {
    testing::expect_refused(make_channel(spec), ErrorCode::kInvalidArgument, "deltawire.torch.LocalSteps");
  }
}

}  // namespace
}  // namespace deltawire
