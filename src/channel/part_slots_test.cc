// Parts have slots of their own: threads may code them in any order, and random numbers belong to them.
#include <deque>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "base/lanes.h"
#include "channel/channel_testing.h"
#include "channel/metered_channel.h"
#include "deltawire/workers.h"

namespace deltawire::testing::part_slots_test {
namespace {

std::unique_ptr<Channel> with_threads(std::string_view spec, int threads, Revert revert = Revert::kFold,
                                      NonFinite nonfinite = NonFinite::kError) {
  auto made = make_metered_channel(spec, {.policy = {256, nonfinite}, .revert = revert},
                                   {nullptr, std::make_shared<Workers>(threads)});
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

// Raw, empty, of one chunk and of several, none more than a third of all; some of zeros.
struct Parts {
  explicit Parts(std::uint64_t seed) {
    for (const std::size_t count : {70000U, 10U, 0U, 20000U, 65536U, 300U, 69999U, 1U, 41000U}) {
      names.push_back("w" + std::to_string(values.size()));
      values.push_back(values.size() == 3 ? Values(count, 0.0F) : numbers(count, seed + values.size()));
    }
    for (std::size_t i = 0; i < values.size(); ++i) named_parts.push_back(named(names[i], values[i]));
  }

  std::deque<std::string> names;
  std::deque<Values> values;
  std::vector<Named> named_parts;
};

class PartSlots : public ::testing::TestWithParam<int> {};

TEST_P(PartSlots, ThreadsChangeNoByteAndNoResidual) {
  std::vector<std::string> specs = kWithResidual;
  specs.insert(specs.end(), {"fp32", "gcomp", "fastsgd", "randomk:k=5%,unbiased=on"});
  for (const std::string& spec : specs) {
    const auto one = with_threads(spec, 1);
    const auto several = with_threads(spec, GetParam());
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Parts parts(100 * step);
      const auto expected = one->encode(parts.named_parts, step_id(step));
      const auto pieces = several->encode(parts.named_parts, step_id(step));
      ASSERT_TRUE(expected && pieces) << spec;
      ASSERT_EQ(join(*expected), join(*pieces)) << spec;
      EXPECT_LE(join(*pieces).size(), several->message_bound(parts.named_parts, 0));
      one->commit();
      several->commit();
      for (const Named& part : parts.named_parts) {
        ASSERT_TRUE(same_bits(one->residual(part.name, 0), several->residual(part.name, 0))) << spec;
      }
    }
  }
}

// Of a part that is most of a message the codec shares the chunks out.
TEST_P(PartSlots, ThreadsOfOnePartChangeNoByteAndNoResidual) {
  for (const char* spec : {"3lc", "3lc:s=1.75", "3lc:mode=paper", "3lc:runs=off", "gcomp", "int8"}) {
    for (const Revert revert : {Revert::kFold, Revert::kExact}) {  // the new residual in place, and apart
      const auto one = with_threads(spec, 1, revert);
      const auto several = with_threads(spec, GetParam(), revert);
      for (std::uint64_t step = 0; step < 2; ++step) {
        for (const std::size_t count : {600001U, 81921U, 163840U}) {
          const std::string name = std::to_string(count);
          Values values = numbers(count, 10 * step + count);
          const Named part = named(name, values);
          const auto expected = one->encode(std::span(&part, 1), {.step = step});
          const auto pieces = several->encode(std::span(&part, 1), {.step = step});
          ASSERT_TRUE(expected && pieces) << spec;
          ASSERT_EQ(join(*expected), join(*pieces)) << spec << ", " << count;
          ASSERT_TRUE(same_bits(one->residual(name, 0), several->residual(name, 0))) << spec << ", " << count;
        }
        one->commit();
        several->commit();
      }
    }
  }
}

// Whether an error leaves parts before it coded and parts behind it not, or any others: what is folded and
// what is kept add up to the input.
TEST_P(PartSlots, AfterAnErrorNothingIsLost) {
  for (const Revert revert : {Revert::kFold, Revert::kExact}) {
    const auto channel = with_threads("3lc", GetParam(), revert);
    Parts parts(7);
    parts.values[4][99] = std::numeric_limits<float>::infinity();
    const auto pieces = channel->encode(parts.named_parts, step_id(0));
    ASSERT_FALSE(pieces);
    EXPECT_EQ(pieces.error().code, ErrorCode::kNotFinite);
    EXPECT_EQ(pieces.error().message.rfind("part 'w4': element 99 ", 0), 0U) << pieces.error().message;
    channel->revert();
    parts.values[4][99] = 0.0F;
    for (std::size_t i = 0; i < parts.values.size(); ++i) {
      const Values residual = copy(channel->residual(parts.names[i], 0));
      if (residual.empty()) continue;
      const Values expected = revert == Revert::kFold ? parts.values[i] : Values(residual.size(), 0.0F);
      for (std::size_t k = 0; k < expected.size(); ++k) ASSERT_EQ(residual[k], expected[k]) << i << " " << k;
    }
  }
}

TEST_P(PartSlots, TheFirstOfSeveralErrorsIsTold) {
  const auto channel = with_threads("int8", GetParam());
  Parts parts(8);
  for (const std::size_t i : {8U, 4U, 6U}) parts.values[i][5] = std::numeric_limits<float>::quiet_NaN();
  for (std::uint64_t step = 0; step < 5; ++step) {
    const auto pieces = channel->encode(parts.named_parts, step_id(step));
    ASSERT_FALSE(pieces);
    EXPECT_EQ(pieces.error().message.rfind("part 'w4'", 0), 0U) << pieces.error().message;
    channel->revert();
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, PartSlots, ::testing::Values(1, 2, 3));

// Each thread that codes has scratch of its own.
TEST(SharedEncoding, BeginsWhereItIsWorthWakingAThread) {
  const auto held = [](int threads, std::size_t parts) {
    const auto meter = std::make_shared<MemoryMeter>();
    const auto channel = *make_metered_channel("gcomp", {}, {meter, std::make_shared<Workers>(threads)});
    Values values = numbers(kWorthSharing / 4, 1);
    std::vector<Named> message;
    for (const char* name : {"a", "b", "c", "d"}) message.push_back(named(name, values));
    EXPECT_TRUE(channel->encode(std::span(message).first(parts), step_id(0)));
    return meter->held(MemoryMeter::Use::kMessages);
  };
  EXPECT_EQ(held(2, 3), held(1, 3));
  EXPECT_GT(held(2, 4), held(1, 4));
}

TEST(RandomStream, BelongsToSeedStepRankAndPart) {
  Values values = numbers(5000, 3);
  const auto message = [&](std::uint64_t seed, const MessageId& id, std::string_view name,
                           std::uint64_t first) {
    const auto channel = *make_channel("randomk:unbiased=on", {.policy = {}, .seed = seed});
    const Named part{name, {values.data(), values.size(), DType::kF32}, first};
    const auto pieces = channel->encode(std::span(&part, 1), id);
    EXPECT_TRUE(pieces);
    const auto bytes = join(*pieces);
    Values back(values.size());
    const Named slot{name, {back.data(), back.size(), DType::kF32}, first};
    // The receiver has another seed, or none.
    EXPECT_TRUE((*make_channel("randomk:unbiased=on", {.policy = {}, .seed = 99}))
                    ->decode(bytes, std::span(&slot, 1), id, Into::kOverwrite, 1));
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < back.size(); ++i) {
      if (back[i] != 0) places.push_back(i);
    }
    return places;
  };
  const MessageId id{.step = 5, .rank = 2, .world = 4};
  std::set<std::vector<std::size_t>> all;
  all.insert(message(1, id, "w", 0));
  EXPECT_EQ(*all.begin(), message(1, id, "w", 0));
  MessageId other_bucket = id;
  other_bucket.bucket = 3;  // what bucket a part travels in changes nothing
  EXPECT_EQ(*all.begin(), message(1, other_bucket, "w", 0));
  all.insert(message(2, id, "w", 0));
  all.insert(message(1, {.step = 6, .rank = 2, .world = 4}, "w", 0));
  all.insert(message(1, {.step = 5, .rank = 3, .world = 4}, "w", 0));
  all.insert(message(1, id, "v", 0));
  all.insert(message(1, id, "w", 5000));
  EXPECT_EQ(all.size(), 6U);
}

// A part in 16 bits has an fp32 residual, and arrives in either form.
TEST(SixteenBits, TravelWithAResidualInFloat32) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const auto channel = testing::channel("3lc");
    std::vector<std::uint16_t> ones(3000, dtype == DType::kBF16 ? 0x3F80 : 0x3C00);
    ones[7] = dtype == DType::kBF16 ? 0x4000 : 0x4000;  // 2
    const Named part{"w", {ones.data(), ones.size(), dtype}, 0};
    const auto pieces = channel->encode(std::span(&part, 1), step_id(0));
    ASSERT_TRUE(pieces) << pieces.error().message;
    std::vector<std::uint16_t> back(3000);
    const Named slot{"w", {back.data(), back.size(), dtype}, 0};
    ASSERT_TRUE(channel->decode(*pieces, std::span(&slot, 1), step_id(0), Into::kOverwrite, 1.0F));
    EXPECT_EQ(back, std::vector<std::uint16_t>(3000, 0x4000));  // m is 2, and 1 rounds up to it
    EXPECT_EQ(channel->residual("w", 0)[0], -1.0F);
    channel->revert();
    EXPECT_EQ(channel->residual("w", 0)[0], 1.0F);
    EXPECT_EQ(channel->residual("w", 0)[7], 2.0F);
    // Zeros of either sign are not sent, and arrive as zeros.
    std::vector<std::uint16_t> zeros(3000, 0x8000);
    const Named nothing{"w", {zeros.data(), zeros.size(), dtype}, 0};
    const auto bare = channel->encode(std::span(&nothing, 1), step_id(1));
    ASSERT_TRUE(bare);
    EXPECT_LT(join(*bare).size(), 200U);
    ASSERT_TRUE(channel->decode(*bare, std::span(&slot, 1), step_id(1), Into::kOverwrite, 1.0F));
    EXPECT_EQ(back, std::vector<std::uint16_t>(3000, 0));
    channel->commit();
    // What can't be coded waits as it is.
    ones[0] = dtype == DType::kBF16 ? 0x7F80 : 0x7C00;
    ASSERT_FALSE(channel->encode(std::span(&part, 1), step_id(2)));
    channel->revert();
    EXPECT_EQ(channel->residual("w", 0)[1], 2.0F);
  }
}

}  // namespace
}  // namespace deltawire::testing::part_slots_test
