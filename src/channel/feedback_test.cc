// What stands behind "with": clip, momentum, masking, decay, against the algorithm of the paper written out
// over a channel that has none of it; and that a step which is taken back has changed nothing.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/bits.h"
#include "base/refusal_testing.h"
#include "channel/channel_testing.h"
#include "channel/codec_rules.h"
#include "deltawire/channel.h"

namespace deltawire::testing::feedback_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string spec_of(std::string_view text) {
  const auto rules = CodecRules::parse(text);
  EXPECT_TRUE(rules) << rules.error().message;
  return rules ? rules->spec() : "";
}

Values encode(Channel& channel, Values values, MessageId id, std::uint64_t whole = 0) {
  Named part = named("w", values);
  part.elements_of_whole = whole;
  const auto pieces = channel.encode(std::span(&part, 1), id);
  EXPECT_TRUE(pieces) << pieces.error().message;
  if (!pieces) return {};
  const auto message = join(*pieces);
  Values back(values.size());
  Named slot = named("w", back);
  slot.elements_of_whole = whole;
  const auto decoded = channel.decode(message, std::span(&slot, 1), id, Into::kOverwrite, 1.0F);
  EXPECT_TRUE(decoded) << decoded.error().message;
  return back;
}

// Of step `step`; many values are zero.
Values gradient(std::uint64_t step, std::size_t count = 500) {
  Values values = numbers(count, step + 100);
  for (std::size_t i = step % 3; i < count; i += 3) values[i] = 0.0F;
  return values;
}

// Algorithm 1 of Lin et al. over a channel that knows nothing of momentum.
class Model {
 public:
  Model(const std::string& codec, float momentum, bool masking)
      : channel_(channel(codec)), momentum_(momentum), masking_(masking) {}

  Values send(const Values& gradient, std::uint64_t step) {
    u_.resize(gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const float kept = momentum_ * u_[i];
      u_[i] = kept + gradient[i];
    }
    const Values sent = encode(*channel_, u_, step_id(step));
    channel_->commit();
    for (std::size_t i = 0; i < sent.size() && masking_; ++i) {
      if (sent[i] != 0.0F) u_[i] = 0.0F;
    }
    return sent;
  }
  Values residual() const { return copy(channel_->residual("w", 0)); }

 private:
  std::unique_ptr<Channel> channel_;
  float momentum_;
  bool masking_;
  Values u_;
};

TEST(Feedback, HasACanonicalText) {
  const std::string sbc = spec_of("sbc");
  EXPECT_EQ(spec_of("sbc with momentum=.9"), sbc + " with momentum=0.9");
  EXPECT_EQ(spec_of("a*: sbc  with  pull_decay=.25,decay=0.5,masking=on,momentum=0.9,clip=2 , rest fp32"),
            "a*: " + sbc + " with clip=2,momentum=0.9,masking=on,decay=0.5,pull_decay=0.25, rest fp32");
  EXPECT_EQ(spec_of("sbc with momentum=0"), sbc);
  const std::string text = spec_of("step<5: sbc with momentum=0.9, rest 3lc with clip=0.5");
  EXPECT_EQ(spec_of(text), text);
}

TEST(Feedback, RefusesWhatItDoesNotKnow) {
  const std::pair<std::string_view, std::string_view> kCases[] = {
      {"sbc with velocity=1", "has no parameter \"velocity\""},
      {"sbc with momentum=1", "momentum=1 is out of range"},
      {"sbc with momentum=-0.1", "out of range"},
      {"sbc with clip=0", "clip=0 is out of range"},
      {"sbc with decay=1", "decay=1 is out of range"},
      {"sbc with pull_decay=1", "pull_decay=1 is out of range"},
      {"sbc with masking=on", "is for a momentum"},
      {"sbc with masking=yes,momentum=0.9", "give off or on"},
      {"sbc with momentum", "is not a parameter"},
  };
  for (const auto& [text, message] : kCases) {
    testing::expect_refused(make_channel(text), ErrorCode::kInvalidArgument, message);
  }
}

TEST(Feedback, IsTheAlgorithmOfThePaper) {
  for (const std::string codec : {"sbc:p=0.1", "randomk:k=30%", "3lc", "int8"}) {
    for (const bool masking : {false, true}) {
      for (const Revert revert : {Revert::kFold, Revert::kExact}) {
        const auto sender = channel(codec + " with momentum=0.9" + (masking ? ",masking=on" : ""), revert);
        const bool is_sparse = codec.find('k') != std::string::npos || codec.starts_with("sbc");
        Model model(codec, 0.9F, masking && is_sparse);
        for (std::uint64_t step = 0; step < 12; ++step) {
          const Values sent = encode(*sender, gradient(step), step_id(step));
          sender->commit();
          ASSERT_TRUE(same_bits(sent, model.send(gradient(step), step))) << codec << step;
          ASSERT_TRUE(same_bits(sender->residual("w", 0), model.residual())) << codec << step;
        }
      }
    }
  }
}

// A part that is too small for a codec travels as float32, and its momentum with it.
TEST(Feedback, MomentumIsForRawPartsToo) {
  const auto sender = channel("sbc with momentum=0.5,masking=on", Revert::kFold, 1000);
  Values u(8, 0.0F);
  for (std::uint64_t step = 0; step < 5; ++step) {
    const Values given = numbers(8, step);
    for (std::size_t i = 0; i < u.size(); ++i) u[i] = 0.5F * u[i] + given[i];
    EXPECT_TRUE(same_bits(encode(*sender, given, step_id(step)), u)) << step;
    sender->commit();
  }
}

TEST(Feedback, SixteenBitsAreWidenedFirst) {
  const auto sender = channel("fp32 with momentum=0.5");
  std::vector<std::uint16_t> one(1, 0x3F80);                  // bfloat16
  const std::uint16_t expected[] = {0x3F80, 0x3FC0, 0x3FE0};  // 1, 1.5, 1.75
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Named part{"w", {one.data(), 1, DType::kBF16}, 0};
    const auto message = join(*sender->encode(std::span(&part, 1), step_id(step)));
    std::uint16_t back = 0;
    const Named slot{"w", {&back, 1, DType::kBF16}, 0};
    ASSERT_TRUE(sender->decode(message, std::span(&slot, 1), step_id(step), Into::kOverwrite, 1.0F));
    EXPECT_EQ(back, expected[step]);
    sender->commit();
  }
}

TEST(Feedback, ClipsTheNormOfATensor) {
  const auto clipped = [](Values values, std::uint64_t whole, float scale) {
    MessageId id = step_id(0);
    id.scale = scale;
    return encode(*channel("fp32 with clip=5"), std::move(values), id, whole);
  };
  EXPECT_EQ(clipped({6, 8}, 0, 1), (Values{3, 4}));
  EXPECT_EQ(clipped({3, 4}, 0, 1), (Values{3, 4}));
  EXPECT_EQ(clipped({12, 16}, 0, 2), (Values{6, 8})) << "a scale is of gradient and limit";
  EXPECT_EQ(clipped({6, 8}, 8, 1), (Values{1.5F, 2})) << "a part of a quarter may have half the norm";
  Values many(1003, 1.0F);
  const Values less = clipped(many, 0, 1);
  double square = 0;
  for (const float value : less) square += double{value} * double{value};
  EXPECT_NEAR(std::sqrt(square), 5, 1e-5);
  EXPECT_TRUE(std::ranges::all_of(less, [&](float value) { return value == less[0]; }));
}

// The gradient is clipped, not the momentum; and clipping alone leaves no state but the residual.
TEST(Feedback, ClipsBeforeMomentum) {
  const auto both = channel("fp32 with clip=5,momentum=0.5");
  EXPECT_EQ(encode(*both, {6, 8}, step_id(0)), (Values{3, 4}));
  both->commit();
  EXPECT_EQ(encode(*both, {6, 8}, step_id(1)), (Values{4.5F, 6}));
  const auto alone = channel("fp32 with clip=5");
  EXPECT_EQ(encode(*alone, {6, 8}, step_id(0)), (Values{3, 4}));
  alone->commit();
  EXPECT_EQ(encode(*alone, {0, 1}, step_id(1)), (Values{0, 1}));
  const auto later = channel("step<1: fp32 with clip=5, rest fp32 with momentum=0.5");
  EXPECT_EQ(encode(*later, {6, 8}, step_id(0)), (Values{3, 4}));
  later->commit();
  EXPECT_EQ(encode(*later, {1, 1}, step_id(1)), (Values{1, 1}));
}

TEST(Feedback, DecayIsOfTheResidual) {
  const auto sender = channel("3lc with decay=0.5");
  const auto plain = channel("3lc");
  Values lost(500, 0.0F);
  for (std::uint64_t step = 0; step < 8; ++step) {
    Values given = gradient(step);
    const Values sent = encode(*sender, given, step_id(step));
    sender->commit();
    for (std::size_t i = 0; i < given.size(); ++i) given[i] += 0.5F * lost[i];
    ASSERT_TRUE(same_bits(sent, encode(*channel("3lc"), given, step_id(step)))) << step;
    for (std::size_t i = 0; i < given.size(); ++i) lost[i] = given[i] - sent[i];
    ASSERT_TRUE(same_bits(sender->residual("w", 0), lost)) << step;
  }
}

// What owners keep of means decays by pull_decay, and by nothing else.
TEST(Feedback, PullDecayIsOfTheResidualOfMeans) {
  const std::string codec = "topk:k=2%,pull=5%";
  const std::pair<bool, std::string> kSame[] = {{true, "topk:k=5% with decay=0.5"},
                                                {false, "topk:k=2% with decay=0.75"}};
  for (const auto& [means, alone] : kSame) {
    const ChannelOptions options{.policy = {}, .revert = Revert::kFold, .means = means};
    const auto both =
        *make_channel(codec + " with clip=1000,momentum=0.5,decay=0.75,pull_decay=0.5", options);
    const auto one = channel(means ? alone : alone + ",clip=1000,momentum=0.5", Revert::kFold);
    for (std::uint64_t step = 0; step < 8; ++step) {
      const Values sent = encode(*both, gradient(step), step_id(step));
      ASSERT_TRUE(same_bits(sent, encode(*one, gradient(step), step_id(step)))) << means << step;
      step % 3 == 2 ? both->revert() : both->commit();
      step % 3 == 2 ? one->revert() : one->commit();
      ASSERT_TRUE(same_bits(both->residual("w", 0), copy(one->residual("w", 0)))) << means << step;
    }
  }
}

// What went in = what came out + what waits + what decayed of each residual: (1 - decay) of it.
TEST(Feedback, DecayLosesItsShareOfEachResidual) {
  const auto sender = channel("sparseloco:k=5%,decay=0.75");
  std::vector<double> balance(500, 0.0);
  Values waits(500, 0.0F);
  for (std::uint64_t step = 0; step < 12; ++step) {
    const Values given = gradient(step);
    const Values sent = encode(*sender, given, step_id(step));
    if (step % 3 == 2) {
      sender->revert();  // folds: nothing came out, and nothing is lost but what decayed
    } else {
      sender->commit();
    }
    for (std::size_t i = 0; i < balance.size(); ++i) {
      balance[i] += given[i] - 0.25 * waits[i] - (step % 3 == 2 ? 0.0F : sent[i]);
    }
    waits = copy(sender->residual("w", 0));
    for (std::size_t i = 0; i < balance.size(); ++i) ASSERT_NEAR(waits[i], balance[i], 1e-5) << step;
  }
  const auto other = channel("sparseloco:k=5%,decay=0.75");
  ASSERT_TRUE(other->load(*sender->save()));
  const Values next = encode(*sender, gradient(12), step_id(12));
  EXPECT_TRUE(same_bits(encode(*other, gradient(12), step_id(12)), next));
}

TEST(Feedback, AnExactRevertTakesAllOfItBack) {
  const auto sender = channel("sbc:p=0.1 with clip=3,momentum=0.9,masking=on,decay=0.9", Revert::kExact);
  for (std::uint64_t step = 0; step < 3; ++step) {
    encode(*sender, gradient(step), step_id(step));
    sender->commit();
  }
  const auto before = *sender->save();
  const Values once = encode(*sender, gradient(3), step_id(3));
  sender->revert();
  EXPECT_EQ(*sender->save(), before);
  EXPECT_TRUE(same_bits(encode(*sender, gradient(3), step_id(3)), once));
}

// Folding, momentum moves on as in a step that sends nothing, and what it came to waits in the residual.
TEST(Feedback, AFoldingRevertKeepsMomentumAndItsInput) {
  for (const bool is_encoded : {true, false}) {
    const auto sender = channel("3lc with momentum=0.5");
    encode(*sender, Values{4, 2, -3}, step_id(0));
    sender->commit();
    const Values waits = copy(sender->residual("w", 0));
    Values given{1, 1, 1};
    const Named part = named("w", given);
    if (is_encoded) {
      encode(*sender, given, step_id(1));
    } else {
      sender->keep(std::span(&part, 1), step_id(1));
    }
    sender->revert();
    const Values u{3, 2, -0.5F};
    Values expected = waits;
    for (std::size_t i = 0; i < 3; ++i) expected[i] += u[i];
    EXPECT_TRUE(same_bits(sender->residual("w", 0), expected)) << is_encoded;
    const Values next = encode(*sender, given, step_id(2));
    sender->commit();
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_FLOAT_EQ(next[i] + sender->residual("w", 0)[i], expected[i] + 0.5F * u[i] + 1) << is_encoded;
    }
  }
}

// Also of a raw part, which has no residual without momentum: its message stays until the step ends.
TEST(Feedback, AFoldingRevertKeepsWhatTravelledRaw) {
  const auto sender = channel("fp32 with momentum=0.5");
  Values given{4, 2, -3};
  Values other{9, 9, 9};
  const Named part = named("w", given);
  const Named later = named("later", other);
  const auto pieces = sender->encode(std::span(&part, 1), step_id(0), 1000);
  ASSERT_TRUE(pieces);
  sender->release(*pieces);
  ASSERT_TRUE(sender->encode(std::span(&later, 1), step_id(0), 1000));
  sender->revert();
  EXPECT_EQ(copy(sender->residual("w", 0)), given);
  EXPECT_EQ(copy(sender->residual("later", 0)), other);
}

// Elements that are not finite are dropped from what is kept; momentum goes on without them.
TEST(Feedback, WhatIsNotFiniteIsRefusedAndDropped) {
  for (const std::string codec : {"3lc", "fp32"}) {
    const auto sender = channel(codec + " with momentum=0.5");
    encode(*sender, Values{4, 2, -3}, step_id(0));
    sender->commit();
    const Values waits = copy(sender->residual("w", 0));
    Values given{1, kNan, 1};
    const Named part = named("w", given);
    testing::expect_refused(sender->encode(std::span(&part, 1), step_id(1)), ErrorCode::kNotFinite,
                            "element 1");
    sender->revert();
    EXPECT_EQ(copy(sender->residual("w", 0)), (Values{waits[0] + 3, waits[1] + 1, waits[2] - 0.5F})) << codec;
  }
}

// With NonFinite::kPass the step is taken back by all ranks.
TEST(Feedback, WhatIsNotFiniteMayPassAndLeavesNothing) {
  for (const std::string codec : {"3lc", "fp32"}) {
    const auto sender = std::move(*make_channel(codec + " with momentum=0.5",
                                                {.policy = {0, NonFinite::kPass}, .revert = Revert::kExact}));
    encode(*sender, Values{4, 2, -3}, step_id(0));
    sender->commit();
    const auto before = *sender->save();
    const Values passed = encode(*sender, Values{1, kNan, 1}, step_id(1));
    EXPECT_TRUE(std::isnan(passed[1])) << codec;
    // What the codec could not carry has left nothing to take back.
    codec == "3lc" ? sender->commit() : sender->revert();
    EXPECT_EQ(*sender->save(), before) << codec;
  }
}

TEST(Feedback, APartOfZerosLeavesMomentumAsItIs) {
  for (const std::string codec : {"sbc:p=0.1", "fp32"}) {
    const auto sender = channel(codec + " with momentum=0.5");
    encode(*sender, Values{4, 2, -3}, step_id(0));
    sender->commit();
    const auto before = *sender->save();
    EXPECT_EQ(encode(*sender, Values(3, 0.0F), step_id(1)), Values(3, 0.0F)) << codec;
    sender->commit();
    EXPECT_EQ(*sender->save(), before) << codec;
  }
}

TEST(Feedback, FollowsTheScaleOfAStep) {
  const auto plain = channel("sbc:p=0.1 with clip=2,momentum=0.75,masking=on");
  const auto scaled = channel("sbc:p=0.1 with clip=2,momentum=0.75,masking=on");
  const Values scales{1024, 512, 512, 4096, 0.25F, 1};
  for (std::uint64_t step = 0; step < scales.size(); ++step) {
    Values values = gradient(step);
    for (float& value : values) value = std::fabs(value) < 1e-20F ? 0.0F : value;
    const Values sent = encode(*plain, values, step_id(step));
    for (float& value : values) value *= scales[step];
    MessageId id = step_id(step);
    id.scale = scales[step];
    const Values larger = encode(*scaled, values, id);
    for (std::size_t i = 0; i < sent.size(); ++i) ASSERT_EQ(sent[i], larger[i] / scales[step]) << step;
    step == 2 ? plain->revert() : plain->commit();
    step == 2 ? scaled->revert() : scaled->commit();
  }
}

TEST(Feedback, ASavedChannelGoesOnAlike) {
  const std::string spec = "sbc:p=0.1 with clip=3,momentum=0.9,masking=on,decay=0.9";
  const auto first = channel(spec);
  for (std::uint64_t step = 0; step < 3; ++step) {
    encode(*first, gradient(step), step_id(step));
    first->commit();
  }
  const auto second = channel(spec);
  ASSERT_TRUE(second->load(*first->save()));
  EXPECT_EQ(*second->save(), *first->save());
  for (std::uint64_t step = 3; step < 6; ++step) {
    ASSERT_TRUE(same_bits(encode(*first, gradient(step), step_id(step)),
                          encode(*second, gradient(step), step_id(step))));
    first->commit();
    second->commit();
  }
  EXPECT_FALSE(channel("sbc:p=0.1")->load(*first->save())) << "another spec's state";
}

TEST(Feedback, MeansAreNotPutThroughItAgain) {
  const auto means =
      std::move(*make_channel("3lc with clip=1,momentum=0.9,decay=0.5", {.policy = {}, .means = true}));
  const auto plain = channel("3lc");
  for (std::uint64_t step = 0; step < 4; ++step) {
    ASSERT_TRUE(same_bits(encode(*means, gradient(step), step_id(step)),
                          encode(*plain, gradient(step), step_id(step))));
    means->commit();
    plain->commit();
  }
}

// What owners send back, each by its codec's mean_spec(); messages and states are that codec's.
TEST(Feedback, MeansHaveACodecOfTheirOwn) {
  const std::string spec = "w: 3lc:s=1.5,pull=0.5 with clip=1, rest 3lc";
  const auto means = std::move(*make_channel(spec, {.policy = {}, .means = true}));
  EXPECT_EQ(means->spec(), "w: 3lc:s=0.5,mode=auto,runs=on with clip=1, rest 3lc:s=1,mode=auto,runs=on");
  const auto fine = channel("3lc:s=0.5");
  for (std::uint64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(same_bits(encode(*means, gradient(step), step_id(step)),
                          encode(*fine, gradient(step), step_id(step))));
    means->commit();
    fine->commit();
  }
  EXPECT_EQ(channel(spec)->spec(),
            "w: 3lc:s=1.5,mode=auto,runs=on,pull=0.5 with clip=1, rest "
            "3lc:s=1,mode=auto,runs=on");
}

TEST(Feedback, APartMovesOnceAStep) {
  const auto sender = channel("sbc with momentum=0.9");
  encode(*sender, gradient(0), step_id(0));
  Values again = gradient(0);
  const Named part = named("w", again);
  testing::expect_refused(sender->encode(std::span(&part, 1), step_id(0)), ErrorCode::kState);
}

TEST(Feedback, IsNotForKeysAndValues) {
  const auto sender = channel("fastsgd with momentum=0.9");
  Values values{1, 2};
  std::vector<std::uint32_t> keys{3, 5};
  const Named part{"w", {values.data(), 2, DType::kF32, keys.data(), 10}, 0};
  testing::expect_refused(sender->encode(std::span(&part, 1), step_id(0)), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deltawire::testing::feedback_test
