// The rules of residuals: what is not sent waits, bit for bit; what a step leaves behind when it is reverted;
// and all of it alike under any floating-point mode of the caller.
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/float_environment.h"
#include "base/property_testing.h"
#include "base/refusal_testing.h"
#include "channel/channel_testing.h"
#include "deltawire/channel.h"
#include "deltawire/frame.h"
#include "wire/frame_testing.h"

namespace deltawire::testing::residual_rules_test {
namespace {

constexpr std::uint64_t kHeaderOfStep0 = 28 + 6;
constexpr std::uint64_t kFrameOfOneBareSegment = kHeaderOfStep0 + 4;  // of 128 to 16,383 elements

const std::vector<std::string> kWithout{
    "fp32", "bf16", "gcomp", "gcomp:cut=18", "gcomp:lossless=on", "fastsgd", "fastsgd:tau=64"};

// As the comment of Revert says: where encoding a value loses nothing that folding could miss.
bool folds_exactly(const std::string& spec) {
  return !spec.starts_with("sbc");
}

// The caller's floating-point mode.
class Mode {
 public:
  explicit Mode(std::uint64_t bits) : before_(FloatEnvironment::read_control()) {
    FloatEnvironment::write_control(before_ | bits);
  }
  ~Mode() { FloatEnvironment::write_control(before_); }
  Mode(const Mode&) = delete;
  Mode& operator=(const Mode&) = delete;

 private:
  std::uint64_t before_;
};

float last_place(float value) {
  const float size = std::fabs(value);
  return std::nextafter(size, std::numeric_limits<float>::infinity()) - size;
}

TEST(ResidualRules, ZerosAreNotSentAndWhatWaitsGoesOnWaiting) {
  for (const std::string& spec : kWithResidual) {
    const auto sender = channel(spec);
    Values first = numbers(3000, 1);
    const Named part = named("w", first);
    ASSERT_TRUE(sender->encode(std::span(&part, 1), step_id(0))) << spec;
    sender->commit();
    const Values before = copy(sender->residual("w", 0));
    Values zeros(3000, 0.0F);
    zeros[7] = -0.0F;
    const Named unused = named("w", zeros);
    const auto pieces = sender->encode(std::span(&unused, 1), step_id(1));
    ASSERT_TRUE(pieces) << spec;
    const auto message = join(*pieces);
    EXPECT_EQ(message.size(), kFrameOfOneBareSegment) << spec;
    sender->commit();
    EXPECT_TRUE(same_bits(before, sender->residual("w", 0))) << spec;
    Values slot(3000, -0.0F);
    const Named out = named("w", slot);
    ASSERT_TRUE(channel(spec)->decode(message, std::span(&out, 1), step_id(1), Into::kAccumulate, 0.5F));
    EXPECT_TRUE(same_bits(slot, Values(3000, -0.0F))) << spec;
    ASSERT_TRUE(channel(spec)->decode(message, std::span(&out, 1), step_id(1), Into::kOverwrite, -1.0F));
    EXPECT_TRUE(same_bits(slot, Values(3000, 0.0F))) << spec;
  }
}

// What one codec has left waits for values, also where the next one has no word for nothing.
TEST(ResidualRules, ZerosTakeNothingAlongOfWhatAnEarlierCodecLeft) {
  for (const std::string& later : kWithout) {
    const std::string spec = "step<1: 3lc, rest " + later;
    const auto sender = channel(spec);
    const auto send = [&](Values values, std::uint64_t step) {
      const Named part = named("w", values);
      const auto message = join(*sender->encode(std::span(&part, 1), step_id(step)));
      sender->commit();
      Values slot(values.size(), 1.0F);
      const Named out = named("w", slot);
      EXPECT_TRUE(channel(spec)->decode(message, std::span(&out, 1), step_id(step), Into::kOverwrite, 1.0F));
      return slot;
    };
    send(numbers(3000, 1), 0);
    const Values waits = copy(sender->residual("w", 0));
    EXPECT_EQ(send(Values(3000, 0.0F), 1), Values(3000, 0.0F)) << later;
    EXPECT_TRUE(same_bits(waits, sender->residual("w", 0))) << later;
    Values one(3000, 0.0F);
    one[2999] = 1e-30F;
    const Values sent = send(one, 2);
    EXPECT_TRUE(sender->residual("w", 0).empty()) << later;
    if (later != "fp32") continue;
    EXPECT_TRUE(same_bits(std::span(sent).first(2999), std::span(waits).first(2999)));
  }
}

TEST(ResidualRules, ASubnormalIsNoZeroWhateverTheCallersMode) {
  for (const std::uint64_t bits : {std::uint64_t{0}, FloatEnvironment::kFlushToZero}) {
    const auto sender = channel("3lc");
    Values tiny(3000, 0.0F);
    tiny[2999] = std::numeric_limits<float>::denorm_min();
    const Named part = named("w", tiny);
    std::vector<std::byte> message;
    {
      const Mode mode(bits);
      message = join(*sender->encode(std::span(&part, 1), step_id(0)));
    }
    Values slot(3000, 1.0F);
    const Named out = named("w", slot);
    ASSERT_TRUE(sender->decode(message, std::span(&out, 1), step_id(0), Into::kOverwrite, 1.0F));
    EXPECT_TRUE(same_bits(slot, tiny));
  }
}

// A bare segment is believed only where its part is whole and may wait.
TEST(ResidualRules, BareSegmentsThatDoNotFitAreRefused) {
  const auto sender = channel("3lc");
  Values zeros(3000, 0.0F);
  const Named part = named("w", zeros);
  const auto good = join(*sender->encode(std::span(&part, 1), step_id(0)));
  // Its bytes: the state, the part, and 3,000 as 0xB8 0x17.
  const auto outcome = [&](std::uint64_t at, unsigned value, Channel& receiver) {
    auto message = good;
    message[kHeaderOfStep0 + at] = static_cast<std::byte>(value);
    repair_crc(message);
    const Status status = receiver.decode(message, std::span(&part, 1), step_id(0), Into::kOverwrite, 1.0F);
    return status ? std::optional<ErrorCode>{} : status.error().code;
  };
  EXPECT_EQ(outcome(2, 0xB8, *sender), std::nullopt);
  EXPECT_EQ(outcome(2, 0xB7, *sender), ErrorCode::kCorrupt) << "2,999 elements";
  EXPECT_EQ(outcome(2, 0xB9, *sender), ErrorCode::kCorrupt) << "3,001 elements";
  EXPECT_EQ(outcome(1, 1, *sender), ErrorCode::kCorrupt) << "another part";
  EXPECT_EQ(outcome(0, 2, *sender), ErrorCode::kCorrupt) << "not finite, which this policy never says";
  const auto without = make_channel("3lc", {.policy = {0}, .error_feedback = false});
  EXPECT_EQ(outcome(2, 0xB8, **without), std::nullopt) << "a receiver needs no residual";
  EXPECT_EQ(outcome(2, 0xB7, **without), ErrorCode::kCorrupt) << "2,999 elements";
}

// Momentum is cleared where something was sent, of either sign, and nowhere else.
TEST(ResidualRules, MaskingKnowsWhatWasSent) {
  const auto sender = channel("sbc:p=0.01", Revert::kFold, 256);
  Values negative(1000, 0.0F);
  for (const std::size_t at : {3u, 400u, 999u}) negative[at] = -5.0F;
  Values few(20, 1.0F);
  Values zeros(1000, 0.0F);
  const std::vector<Named> parts{named("w", negative), named("bias", few), named("unused", zeros)};
  ASSERT_TRUE(sender->encode(parts, step_id(0)));
  sender->commit();
  Values momentum(1000, -2.0F);
  ASSERT_TRUE(sender->mask_sent("w", 0, momentum));
  for (std::size_t i = 0; i < 1000; ++i) EXPECT_EQ(momentum[i], negative[i] == 0.0F ? -2.0F : 0.0F) << i;
  Values raw_momentum(20, 2.0F);
  ASSERT_TRUE(sender->mask_sent("bias", 0, raw_momentum));
  EXPECT_EQ(raw_momentum, Values(20, 2.0F));
  Values unused_momentum(1000, 2.0F);
  ASSERT_TRUE(sender->mask_sent("unused", 0, unused_momentum));
  EXPECT_EQ(unused_momentum, Values(1000, 2.0F));
}

// What has no residual can't wait: zeros are values like others, and -0 keeps its sign where a codec says so.
TEST(ResidualRules, ZerosWithoutAResidualAreSent) {
  for (const std::string& spec : kWithout) {
    Values zeros(3000, 0.0F);
    const Named part = named("w", zeros);
    const auto message = join(*channel(spec)->encode(std::span(&part, 1), step_id(0)));
    EXPECT_GT(message.size(), kFrameOfOneBareSegment) << spec;
  }
  Values few(20, -0.0F);
  const Named raw = named("w", few);
  const auto message = join(*channel("3lc", Revert::kFold, 256)->encode(std::span(&raw, 1), step_id(0)));
  EXPECT_EQ(message.size(), kHeaderOfStep0 + 5 + 5 + 80);
}

// A step that is folded waits whole, but for what its codec loses of any input; then all of it leaves with
// the next step, and the channel is as one that has had a single step with both inputs.
TEST(ResidualRules, WithoutErrorFeedbackAFoldWaitsForTheNextStep) {
  for (const std::string& spec : kWithout) {
    for (const bool is_encoded : {true, false}) {
      const auto sender = channel(spec);
      const auto other = channel(spec);
      const auto empty = *sender->save();
      Values first = numbers(3000, 1);
      Values second = numbers(3000, 2);
      const Named failed = named("w", first);
      const Named next = named("w", second);
      Values sent(3000);
      const Named slot = named("w", sent);
      const auto once = join(*other->encode(std::span(&failed, 1), step_id(0)));
      ASSERT_TRUE(other->decode(once, std::span(&slot, 1), step_id(0), Into::kOverwrite, 1.0F));
      other->commit();
      ASSERT_TRUE(sender->prepare(std::span(&failed, 1), 0));
      if (is_encoded) {
        ASSERT_TRUE(sender->encode(std::span(&failed, 1), step_id(0))) << spec;
      } else {
        sender->keep(std::span(&failed, 1), step_id(0));
      }
      sender->revert();
      EXPECT_EQ(copy(sender->residual("w", 0)), is_encoded ? sent : first) << spec;

      Values both(3000);
      for (std::size_t i = 0; i < both.size(); ++i) both[i] = second[i] + sender->residual("w", 0)[i];
      const auto saved = channel(spec);
      ASSERT_TRUE(saved->load(*sender->save())) << spec;
      const Named whole = named("w", both);
      const auto wanted = join(*other->encode(std::span(&whole, 1), step_id(1)));
      for (Channel* each : {sender.get(), saved.get()}) {
        EXPECT_EQ(join(*each->encode(std::span(&next, 1), step_id(1))), wanted) << spec;
        each->commit();
        EXPECT_TRUE(each->residual("w", 0).empty()) << spec;
        EXPECT_EQ(*each->save(), empty) << spec;
      }
    }
  }
}

TEST(ResidualRules, WithoutErrorFeedbackAnExactRevertLeavesNothing) {
  for (const std::string& spec : kWithout) {
    const auto sender = channel(spec, Revert::kExact);
    const auto before = *sender->save();
    Values values = numbers(3000, 1);
    const Named part = named("w", values);
    ASSERT_TRUE(sender->encode(std::span(&part, 1), step_id(0))) << spec;
    sender->revert();
    EXPECT_TRUE(sender->residual("w", 0).empty()) << spec;
    EXPECT_EQ(*sender->save(), before) << spec;
  }
}

// Several failures in a row, and one that hits a step which brings earlier ones along.
TEST(ResidualRules, RawPartsAreFoldedLikeAllOthers) {
  const auto sender = channel("3lc", Revert::kFold, 256);
  Values few(255, 1.0F);
  Named part = named("bias", few);
  for (std::uint64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(sender->encode(std::span(&part, 1), step_id(step)));
    sender->revert();
    EXPECT_EQ(copy(sender->residual("bias", 0)), Values(255, static_cast<float>(step + 1)));
  }
  const auto message = join(*sender->encode(std::span(&part, 1), step_id(3)));
  sender->commit();
  EXPECT_TRUE(sender->residual("bias", 0).empty());
  Values slot(255);
  part = named("bias", slot);
  ASSERT_TRUE(sender->decode(message, std::span(&part, 1), step_id(3), Into::kOverwrite, 1.0F));
  EXPECT_EQ(slot, Values(255, 4.0F));
}

TEST(ResidualRules, AFoldIsOfAStepsScale) {
  const auto sender = channel("fp32");
  Values values{1.0F, -2.0F};
  const Named part = named("w", values);
  ASSERT_TRUE(sender->encode(std::span(&part, 1), {.step = 0, .scale = 4.0F}));
  sender->revert();
  const MessageId next{.step = 1, .scale = 1.0F};
  const auto message = join(*sender->encode(std::span(&part, 1), next));
  Values slot(2);
  const Named out = named("w", slot);
  ASSERT_TRUE(sender->decode(message, std::span(&out, 1), next, Into::kOverwrite, 1.0F));
  EXPECT_EQ(slot, (Values{1.25F, -2.5F}));
}

TEST(ResidualRules, WhatMeansNothingLaterIsNotFolded) {
  const auto sender = channel("fp32");
  Values values(300, 1.0F);
  Named part = named("w/P", values);
  part.is_transient = true;
  const auto before = *sender->save();
  ASSERT_TRUE(sender->prepare(std::span(&part, 1), 0));
  ASSERT_TRUE(sender->encode(std::span(&part, 1), step_id(0)));
  sender->keep(std::span(&part, 1), step_id(0));
  sender->revert();
  EXPECT_EQ(*sender->save(), before);
}

TEST(ResidualRules, KeyValuePartsAreTheCallersToSendAgain) {
  for (const std::string spec : {"fastsgd", "fastsgd:tau=64"}) {
    Values values{1.0F, -2.0F, 3.0F};
    std::vector<std::uint32_t> keys{5, 300, 70000};
    const Named part{"w", {values.data(), 3, DType::kF32, keys.data(), 100000}, 0};
    const auto sender = channel(spec, Revert::kExact);
    const auto before = *sender->save();
    EXPECT_TRUE(sender->takes_pairs(part, 0));
    ASSERT_TRUE(sender->encode(std::span(&part, 1), step_id(0)));
    sender->revert();
    EXPECT_TRUE(sender->residual("w", 0).empty()) << spec;
    EXPECT_EQ(*sender->save(), before) << spec;

    const auto folding = channel(spec);
    EXPECT_FALSE(folding->takes_pairs(part, 0));
    testing::expect_refused(folding->encode(std::span(&part, 1), step_id(0)), ErrorCode::kInvalidArgument,
                            "take the exact revert");
  }
}

TEST(ResidualRules, WithoutResidualsNothingCanBeFolded) {
  testing::expect_refused(
      make_channel("3lc", {.policy = {}, .revert = Revert::kFold, .error_feedback = false}),
      ErrorCode::kInvalidArgument);
}

// Whether the residual is what waited before plus what was put in, as exactly as the comment of Revert says.
bool holds_both(const std::string& spec, std::span<const float> residual, const Values& waiting,
                const Values& input) {
  if (residual.size() != input.size()) return false;
  float largest = 0;
  for (std::size_t i = 0; i < input.size(); ++i) {
    largest = std::max(largest, std::fabs(waiting[i]));
    if (std::isfinite(input[i])) largest = std::max(largest, std::fabs(input[i]));
  }
  const float unit = folds_exactly(spec) ? 0.0F : last_place(2 * largest);
  for (std::size_t i = 0; i < input.size(); ++i) {
    // What is not finite is dropped; the residual keeps what it held.
    const float x = std::isfinite(input[i]) ? waiting[i] + input[i] : waiting[i];
    if (!(std::fabs(residual[i] - x) <= unit)) return false;
  }
  return true;
}

// After a folding revert: residual + input, rounded once, for each part, in whatever mode the caller is.
PROPERTY(ResidualRules, AFoldLeavesResidualPlusInput) {
  const auto& spec = drawn_of(kWithResidual);
  const auto counts = drawn_list(3, 1, 5000);
  const auto steps = drawn_list(5, 0, 2);
  const auto seed = drawn(0, 1000000);
  constexpr std::uint64_t kModes[] = {0, FloatEnvironment::kFlushToZero, FloatEnvironment::kRoundUp};
  const std::uint64_t bits = drawn_of(kModes);
  const int spoiled = static_cast<int>(drawn(0, 4)) - 1;  // the part that makes reverted steps fail to encode
  const std::vector<std::string> names{"a", "b", "c"};
  const auto sender = channel(spec);
  std::vector<Values> waiting;
  for (const std::size_t count : counts) waiting.emplace_back(count, 0.0F);
  for (std::size_t step = 0; step < steps.size(); ++step) {
    std::vector<Values> inputs;
    std::vector<Named> parts;
    for (std::size_t i = 0; i < 3; ++i) inputs.push_back(numbers(counts[i], seed + 10 * step + i));
    const bool fails = !steps[step] && spoiled >= 0;
    if (fails) inputs[static_cast<std::size_t>(spoiled)][0] = std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < 3; ++i) parts.push_back(named(names[i], inputs[i]));
    {
      const Mode mode(bits);
      HOLDS(sender->encode(parts, step_id(step)).has_value() == !fails);
      steps[step] ? sender->commit() : sender->revert();
    }
    for (std::size_t i = 0; i < 3; ++i) {
      const auto residual = sender->residual(names[i], 0);
      HOLDS(steps[step] || holds_both(spec, residual, waiting[i], inputs[i]));
      waiting[i] = copy(residual);
    }
  }
}

TEST(ResidualRules, TheCallersModeChangesNoBitOfAFold) {
  for (const std::string& spec : kWithResidual) {
    std::vector<Values> results;
    for (const std::uint64_t bits :
         {std::uint64_t{0}, FloatEnvironment::kFlushToZero, FloatEnvironment::kRoundUp}) {
      const auto sender = channel(spec);
      for (std::uint64_t step = 0; step < 3; ++step) {
        Values values = numbers(5000, step);
        const Named part = named("w", values);
        const Mode mode(bits);
        ASSERT_TRUE(sender->encode(std::span(&part, 1), step_id(step))) << spec;
        step == 1 ? sender->commit() : sender->revert();
      }
      results.push_back(copy(sender->residual("w", 0)));
    }
    EXPECT_TRUE(same_bits(results[0], results[1])) << spec;
    EXPECT_TRUE(same_bits(results[0], results[2])) << spec;
  }
}

// A NaN that may pass as NaN is a step like others, which counts; what waited goes on waiting, bit for bit,
// also where the codec had begun to write the new residual.
TEST(ResidualRules, WhatWaitsOutlivesAStepWithNan) {
  for (const std::string& spec : kWithResidual) {
    for (const Revert revert : {Revert::kFold, Revert::kExact}) {
      const auto sender = *make_channel(spec, {.policy = {0, NonFinite::kPass}, .revert = revert});
      Values values = numbers(3000, 1);
      const Named part = named("w", values);
      for (const std::uint64_t step : {0U, 1U}) {
        ASSERT_TRUE(sender->encode(std::span(&part, 1), step_id(step))) << spec;
        sender->commit();
      }
      const Values waiting = copy(sender->residual("w", 0));
      values[2999] = std::numeric_limits<float>::quiet_NaN();
      ASSERT_TRUE(sender->encode(std::span(&part, 1), step_id(2))) << spec;
      sender->commit();
      EXPECT_TRUE(same_bits(sender->residual("w", 0), waiting)) << spec;
    }
  }
}

TEST(ResidualRules, AnExactRevertAfterAFailedEncodeRestoresEveryBit) {
  for (const std::string& spec : kWithResidual) {
    const auto sender = channel(spec, Revert::kExact);
    Values good = numbers(3000, 1);
    Values bad = numbers(3000, 2);
    const std::vector<Named> parts{named("a", good), named("b", bad), named("c", good)};
    ASSERT_TRUE(sender->encode(parts, step_id(0))) << spec;
    sender->commit();
    const auto before = *sender->save();
    bad[2999] = std::numeric_limits<float>::quiet_NaN();
    ASSERT_FALSE(sender->encode(parts, step_id(1))) << spec;
    sender->revert();
    EXPECT_EQ(before, *sender->save()) << spec;
  }
}

}  // namespace
}  // namespace deltawire::testing::residual_rules_test
