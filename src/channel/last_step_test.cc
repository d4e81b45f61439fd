// What a channel says of the parts: the codec that they get, and what the last committed step took.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "channel/channel_testing.h"
#include "wire/hashes.h"

namespace deltawire::last_step_test {
namespace {

using namespace testing;

constexpr std::uint64_t kCount = 3000;

std::uint64_t bytes_of(std::span<const Bytes> pieces) {
  std::uint64_t sum = 0;
  for (const Bytes piece : pieces) sum += piece.size();
  return sum;
}

// Encodes both parts, and gives the message's bytes.
std::uint64_t encode(Channel& channel, std::span<const Named> parts, std::uint64_t step) {
  const auto pieces = channel.encode(MessageLayout(parts), step_id(step));
  EXPECT_TRUE(pieces) << pieces.error().message;
  return bytes_of(*pieces);
}

TEST(LastStep, CountsThePayloadOfEveryPart) {
  for (const std::string spec : {"fp32", "3lc", "sbc:p=10%"}) {
    Values first = numbers(kCount, 1);
    Values second = numbers(2 * kCount, 2);
    const std::vector<Named> parts{named("a", first), named("b", second)};
    const auto sender = channel(spec);
    for (std::uint64_t step = 0; step < 3; ++step) {
      EXPECT_EQ(sender->last_step().size(), step == 0 ? 0u : 2u) << spec;
      const std::uint64_t whole = encode(*sender, parts, step);
      sender->commit();
      const std::span<const PartUse> uses = sender->last_step();
      ASSERT_EQ(uses.size(), 2u);
      const std::uint64_t payload = uses[0].payload_bytes + uses[1].payload_bytes;
      EXPECT_LT(payload, whole);
      EXPECT_LT(whole, payload + 400);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(uses[i].name_hash, name_hash(parts[i]));
        EXPECT_EQ(uses[i].elements, parts[i].tensor.count);
        EXPECT_LE(uses[i].payload_bytes, sender->plan(parts[i], step).payload_bytes);
      }
      if (spec == "fp32") {
        EXPECT_EQ(uses[1].payload_bytes, 8 * kCount);
      }
    }
  }
}

TEST(LastStep, CountsResidualsAndMomentum) {
  Values values = numbers(kCount, 1);
  const std::vector<Named> parts{named("a", values)};
  struct Case {
    std::string spec;
    Revert revert;
    std::uint64_t residuals, momenta;  // a part's
  };
  for (const Case& each : {Case{"bf16", Revert::kExact, 0, 0}, Case{"bf16", Revert::kFold, 1, 0},
                           Case{"3lc", Revert::kFold, 1, 0}, Case{"3lc", Revert::kExact, 2, 0},
                           Case{"3lc with momentum=0.9", Revert::kFold, 1, 2}}) {
    const auto sender = channel(each.spec, each.revert);
    for (std::uint64_t step = 0; step < 2; ++step) {
      encode(*sender, parts, step);
      sender->commit();
    }
    EXPECT_EQ(sender->last_step()[0].residual_bytes, 4 * kCount * each.residuals) << each.spec;
    EXPECT_EQ(sender->last_step()[0].momentum_bytes, 4 * kCount * each.momenta) << each.spec;
  }
}

TEST(LastStep, APartThatIsNotSentTakesNothing) {
  Values values = numbers(kCount, 1);
  const std::vector<Named> parts{named("a", values)};
  const auto sender = channel("3lc");
  encode(*sender, parts, 0);
  sender->commit();
  std::fill(values.begin(), values.end(), 0.0F);
  encode(*sender, parts, 1);
  sender->commit();
  ASSERT_EQ(sender->last_step().size(), 1u);
  EXPECT_EQ(sender->last_step()[0].payload_bytes, 0u);
  EXPECT_EQ(sender->last_step()[0].residual_bytes, 4 * kCount);
}

// What was reverted never happened; and what was loaded is of other steps.
TEST(LastStep, StaysWithARevertAndGoesWithALoad) {
  Values first = numbers(kCount, 1);
  Values second = numbers(kCount, 2);
  for (const std::string spec : {"3lc", "sbc"}) {
    const auto sender = channel(spec);
    encode(*sender, std::vector<Named>{named("a", first)}, 0);
    sender->commit();
    encode(*sender, std::vector<Named>{named("b", second)}, 1);
    sender->revert();
    ASSERT_EQ(sender->last_step().size(), 1u);
    EXPECT_EQ(sender->last_step()[0].name_hash, name_hash(named("a", first)));
    const auto state = sender->save();
    ASSERT_TRUE(state && sender->load(*state));
    EXPECT_TRUE(sender->last_step().empty());
  }
}

TEST(Plan, NamesTheCodecAndWhatStandsBeforeIt) {
  Values values(kCount);
  const auto sender = channel("w step<7: sbc:p=5% with momentum=0.9, rest bf16 with clip=2", {}, 100);
  const Named whole = named("w", values);
  EXPECT_EQ(sender->plan(whole, 6).codec, sender->codec_of(whole, 6).spec() + " with momentum=0.9");
  EXPECT_EQ(sender->plan(whole, 6).changes_at, 7u);
  EXPECT_EQ(sender->plan(whole, 7).codec, "bf16 with clip=2");
  EXPECT_EQ(sender->plan(whole, 7).changes_at, kNoStep);
  EXPECT_EQ(sender->plan(whole, 7).payload_bytes, 2 * kCount);
  values.resize(99);
  EXPECT_EQ(sender->plan(named("w", values), 0).codec, "fp32 with momentum=0.9");
  EXPECT_EQ(sender->plan(named("w", values), 0).changes_at, 7u) << "what stands before it changes";
  EXPECT_TRUE(sender->plan(named("w", values), 0).is_raw);
  const auto same_before = channel("step<3: sbc, step<5: int8, rest bf16 with clip=2", {}, 100);
  EXPECT_EQ(same_before->plan(named("w", values), 0).changes_at, 5u) << "raw, with another codec from 3 on";
}

}  // namespace
}  // namespace deltawire::last_step_test
