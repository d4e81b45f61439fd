// Residuals follow the scale of a step's tensors, and ranks must agree on it.
#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "channel/channel_testing.h"
#include "deltawire/channel.h"

namespace deltawire::testing::scale_test {
namespace {

// A scale that changes from step to step changes nothing but the unit: every message of the scaled run,
// divided by its scale, has the values of the unscaled one.
TEST(Scale, IsFollowedByResiduals) {
  for (const std::string& spec : kWithResidual) {
    const auto plain = channel(spec);
    const auto scaled = channel(spec);
    const Values scales{1024.0F, 512.0F, 512.0F, 4096.0F, 0.25F, 0x1p20F};
    for (std::uint64_t step = 0; step < scales.size(); ++step) {
      const float scale = scales[step];
      Values values = numbers(4000, step);
      // No bit may be lost below: that is what the documentation excepts.
      for (float& value : values) value = std::fabs(value) < 1e-20F ? 0.0F : value;
      Values larger = values;
      for (float& value : larger) value *= scale;
      const Named a = named("w", values);
      const Named b = named("w", larger);
      const MessageId id = step_id(step);
      MessageId scaled_id = id;
      scaled_id.scale = scale;
      const auto first = join(*plain->encode(std::span(&a, 1), id));
      const auto second = join(*scaled->encode(std::span(&b, 1), scaled_id));
      ASSERT_TRUE(plain->decode(first, std::span(&a, 1), id, Into::kOverwrite, 1.0F));
      ASSERT_TRUE(scaled->decode(second, std::span(&b, 1), scaled_id, Into::kOverwrite, 1.0F));
      for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], larger[i] / scale) << spec;
      const bool reverts = step == 3;
      reverts ? plain->revert() : plain->commit();
      reverts ? scaled->revert() : scaled->commit();
      const auto left = plain->residual("w", 0);
      const auto scaled_left = scaled->residual("w", 0);
      for (std::size_t i = 0; i < left.size(); ++i) ASSERT_EQ(left[i], scaled_left[i] / scale) << spec;
    }
  }
}

TEST(Scale, ComesBackWithAnExactRevert) {
  const auto sender = channel("3lc", Revert::kExact);
  Values values = numbers(3000, 1);
  const Named part = named("w", values);
  MessageId id = step_id(0);
  id.scale = 65536.0F;
  ASSERT_TRUE(sender->encode(std::span(&part, 1), id));
  sender->commit();
  const auto before = *sender->save();
  id.step = 1;
  id.scale = 0x1p-120F;  // what this loses below must come back
  ASSERT_TRUE(sender->encode(std::span(&part, 1), id));
  sender->revert();
  EXPECT_EQ(before, *sender->save());
  const auto other = channel("3lc", Revert::kExact);
  ASSERT_TRUE(other->load(before));
  id.scale = 32768.0F;
  EXPECT_EQ(join(*sender->encode(std::span(&part, 1), id)), join(*other->encode(std::span(&part, 1), id)));
}

TEST(Scale, OutOfRangeIsRefused) {
  const auto sender = channel("3lc");
  Values values = numbers(3000, 1);
  const Named part = named("w", values);
  MessageId id = step_id(0);
  for (const float scale :
       {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    id.scale = scale;
    EXPECT_EQ(sender->encode(std::span(&part, 1), id).error().code, ErrorCode::kInvalidArgument);
  }
  id.scale = 0x1p-140F;
  ASSERT_TRUE(sender->encode(std::span(&part, 1), id));
  sender->commit();
  const Values before = copy(sender->residual("w", 0));
  id.step = 1;
  id.scale = 0x1p127F;
  testing::expect_refused(sender->encode(std::span(&part, 1), id), ErrorCode::kRange, "'w'");
  sender->revert();
  EXPECT_TRUE(same_bits(before, sender->residual("w", 0)));
}

TEST(Scale, OfAnotherRankIsNamed) {
  const auto sender = channel("3lc");
  Values values = numbers(3000, 1);
  const Named part = named("w", values);
  MessageId id = step_id(0);
  for (const float sent : {1.0F, 32768.0F, 3.0F}) {
    id.scale = sent;
    const auto message = join(*sender->encode(std::span(&part, 1), id));
    sender->commit();
    id.scale = 65536.0F;
    const Status status = sender->decode(message, std::span(&part, 1), id, Into::kOverwrite, 1.0F);
    testing::expect_refused(status, ErrorCode::kMismatch, "scale");
    const std::string own = sent == 1.0F ? "scale 1," : sent == 3.0F ? "scale 3," : "scale 32768,";
    EXPECT_NE(status.error().message.find(own), std::string::npos) << status.error().message;
    EXPECT_NE(status.error().message.find("65536"), std::string::npos) << status.error().message;
  }
}

}  // namespace
}  // namespace deltawire::testing::scale_test
