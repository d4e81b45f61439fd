// Raw parts of float32, which are copied in runs: the same values and errors as each by itself.
#include "channel/raw_values.h"

#include <array>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/refusal_testing.h"
#include "channel/channel_testing.h"
#include "deltawire/channel.h"

namespace deltawire::raw_values_test {
namespace {

using namespace testing;

std::vector<std::byte> encoded(Channel& sender, const std::vector<Named>& parts, std::uint64_t step = 0) {
  const auto pieces = sender.encode(parts, step_id(step));
  EXPECT_TRUE(pieces) << pieces.error().message;
  return pieces ? join(*pieces) : std::vector<std::byte>();
}

// Three parts in a run, one of them received in 16 bits, and an empty one.
struct Three {
  Values a{1.5F, -0.0F, std::bit_cast<float>(0xFFC12345U), 1e-45F};
  Values b{std::numeric_limits<float>::infinity(), 3.0F};
  Values c{0.1F};

  std::vector<Named> named() {
    return {testing::named("a", a),
            testing::named("b", b),
            {"none", {nullptr, 0, DType::kF32}, 0},
            testing::named("c", c)};
  }
};

TEST(RawValues, AreDecodedInEveryWayAsByTheirCodec) {
  Three sent;
  const auto sender = channel("3lc", Revert::kExact, 16);
  const auto message = encoded(*sender, sent.named());
  const auto codec = *make_codec("fp32");
  for (const Into into : {Into::kOverwrite, Into::kAccumulate}) {
    for (const float scale : {1.0F, 0.3F}) {
      Three slots{Values(4, 0.7F), Values(2, 0.7F), Values(1, 0.7F)};
      const Status decoded = sender->decode(message, slots.named(), step_id(0), into, scale);
      ASSERT_TRUE(decoded) << decoded.error().message;
      for (const auto& [values, got] : {std::pair{&sent.a, &slots.a}, {&sent.b, &slots.b}}) {
        Values expected(values->size(), 0.7F);
        const auto end = static_cast<std::uint32_t>(4 * values->size());
        ASSERT_TRUE(codec->decode({std::as_bytes(std::span(*values)), std::span(&end, 1)},
                                  {expected.data(), expected.size(), DType::kF32}, into, scale));
        EXPECT_TRUE(same_bits(*got, expected)) << scale;
      }
    }
  }
}

TEST(RawValues, SlotsOf16BitsStandAmongThem) {
  Three sent;
  const auto sender = channel("3lc", Revert::kExact, 16);
  const auto message = encoded(*sender, sent.named());
  Three slots{Values(4), Values(2), Values(1)};
  std::vector<std::uint16_t> halves(2);
  std::vector<Named> places = slots.named();
  places[1].tensor = {halves.data(), 2, DType::kBF16};
  const MessageLayout layout(places, MessageLayout::hash_of(sent.named()));
  const Status decoded = sender->decode(message, layout, step_id(0), Into::kOverwrite, 1.0F);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(halves, (std::vector<std::uint16_t>{0x7F80, 0x4040}));
  EXPECT_TRUE(same_bits(slots.a, sent.a));
  EXPECT_TRUE(same_bits(slots.c, sent.c));
}

// A part that sends nothing takes no bytes between two runs, which are not one for that.
TEST(RawValues, APartThatSendsNothingEndsARun) {
  Values a(3, 1.0F), b(3, 2.0F), idle(20, 0.25F), c(3, 3.0F), d(3, 4.0F);
  const auto parts = [&] {
    return std::vector{named("a", a), named("b", b), named("idle", idle), named("c", c), named("d", d)};
  };
  const auto sender = channel("3lc", Revert::kExact, 16);
  encoded(*sender, parts());
  sender->commit();
  idle.assign(20, 0.0F);
  const auto message = encoded(*sender, parts(), 1);
  for (Values* each : {&a, &b, &c, &d}) each->assign(3, 9.0F);
  idle.assign(20, 9.0F);
  ASSERT_TRUE(sender->decode(message, parts(), step_id(1), Into::kOverwrite, 1.0F));
  EXPECT_EQ(b, Values(3, 2.0F));
  EXPECT_EQ(idle, Values(20, 0.0F));
  EXPECT_EQ(c, Values(3, 3.0F));
  EXPECT_EQ(d, Values(3, 4.0F));
}

TEST(RawValues, EachIsInTheRecordOfTheStep) {
  Three sent;
  const auto sender = channel("3lc", Revert::kExact, 16);
  std::vector<Named> parts = sent.named();
  parts[1].first = 40;
  encoded(*sender, parts);
  sender->commit();
  const auto uses = sender->last_step();
  ASSERT_EQ(uses.size(), 3U);
  EXPECT_EQ(uses[0].payload_bytes, 16U);
  EXPECT_EQ(uses[1].payload_bytes, 8U);
  EXPECT_EQ(uses[1].elements, 2U);
  EXPECT_EQ(uses[1].first, 40U);
  EXPECT_EQ(uses[2].payload_bytes, 4U);
  EXPECT_NE(uses[2].name_hash, uses[0].name_hash);
}

TEST(RawValues, DimsOfAnotherTensorAreRefused) {
  Three sent;
  std::vector<Named> parts = sent.named();
  const std::array<std::uint64_t, 2> dims{2, 2};
  parts[1].tensor.dims = dims;
  const auto sender = channel("3lc", Revert::kExact, 16);
  testing::expect_refused(sender->encode(parts, step_id(0)), ErrorCode::kInvalidArgument, "part 'b'");
  parts[1].tensor.dims = {};
  parts[0].tensor.dims = dims;
  sender->revert();
  EXPECT_TRUE(sender->encode(parts, step_id(0)));
}

// Summed up at once or added one by one, minus zeros and all.
TEST(RawValues, SumsAreThoseOfOneAfterAnother) {
  const CounterRng random(7);
  for (const std::size_t addends : {1u, 2u, 5u}) {
    for (const std::size_t count : {1u, 2047u, 2048u, 5000u}) {
      std::vector<Values> given(addends, Values(count));
      std::vector<const std::byte*> at;
      for (std::size_t i = 0; i < addends; ++i) {
        for (std::size_t k = 0; k < count; ++k) {
          given[i][k] = k % 3 == 0 ? -0.0F : static_cast<float>(random.at(i * count + k)) * 0x1p-60F;
        }
        at.push_back(std::as_bytes(std::span(given[i])).data());
      }
      Values expected(count);
      Values sum(count, 17.0F);
      for (const Values& each : given) {
        take_raw_values(std::as_bytes(std::span(each)), {expected.data(), count}, {Into::kAccumulate, 0.3F});
      }
      sum_raw_values(at, 0.3F, sum);
      EXPECT_EQ(std::memcmp(sum.data(), expected.data(), 4 * count), 0) << addends << " of " << count;
    }
  }
}

}  // namespace
}  // namespace deltawire::raw_values_test
