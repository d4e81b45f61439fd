// Edges of what a channel takes, keeps and gives back: each of these tests is the only one that sees its line
// go wrong.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "channel/channel_testing.h"
#include "channel/metered_channel.h"
#include "channel/residual_store.h"

namespace deltawire::channel_edges_test {
namespace {

using namespace testing;

TEST(ChannelEdges, PartsEndBelowElement2To32) {
  constexpr std::uint64_t kEnd = std::uint64_t{1} << 32;
  Values values(8, 1.0F);
  const auto code = [&](std::uint64_t first) {
    Named part = named("w", values);
    part.first = first;
    const auto pieces = channel("fp32")->encode(std::span(&part, 1), step_id(0));
    return pieces ? ErrorCode{} : pieces.error().code;
  };
  EXPECT_EQ(code(kEnd - 9), ErrorCode{});
  for (const std::uint64_t first : {kEnd - 8, kEnd, kEnd + 1, std::numeric_limits<std::uint64_t>::max()}) {
    EXPECT_EQ(code(first), ErrorCode::kLimit) << first;
  }
}

// Raw, they are made dense before a codec looks at their keys.
TEST(ChannelEdges, KeysOfRawPairsGrow) {
  Values values{1.0F, 2.0F, 3.0F};
  const struct {
    std::vector<std::uint32_t> keys;
    bool are_taken;
  } cases[] = {{{1, 5, 9}, true}, {{1, 5, 5}, false}, {{1, 9, 5}, false}, {{1, 5, 10}, false}};
  for (auto [keys, are_taken] : cases) {
    const Named part{"w", {values.data(), 3, DType::kF32, keys.data(), 10}, 0};
    const auto pieces = channel("fastsgd", Revert::kExact, 256)->encode(std::span(&part, 1), step_id(0));
    EXPECT_EQ(pieces ? ErrorCode{} : pieces.error().code,
              are_taken ? ErrorCode{} : ErrorCode::kInvalidArgument);
  }
}

// m = s * max|x| is beyond float32: an error, or where such steps pass a part that is not finite.
TEST(ChannelEdges, WhatOverflowsInTheCodecPassesAsNotFinite) {
  for (const NonFinite nonfinite : {NonFinite::kError, NonFinite::kPass}) {
    const auto sender = make_channel("3lc:s=1.75", {.policy = {0, nonfinite}});
    ASSERT_TRUE(sender);
    Values values(300, 3e38F);
    Values out(300);
    const Named from = named("w", values);
    const Named to = named("w", out);
    const auto pieces = (*sender)->encode(std::span(&from, 1), step_id(0));
    ASSERT_EQ(pieces.has_value(), nonfinite == NonFinite::kPass);
    if (!pieces) {
      EXPECT_EQ(pieces.error().code, ErrorCode::kRange);
      continue;
    }
    ASSERT_TRUE((*sender)->decode(*pieces, std::span(&to, 1), step_id(0), Into::kOverwrite, 1.0F));
    EXPECT_TRUE(std::isnan(out[299]));
  }
}

// A codec without a residual of its own sends what another left. Its message is released, and the memory used
// again, before the step is taken back.
TEST(ChannelEdges, AFoldNeedsTheMessageThatTookAnothersResidual) {
  const auto both = channel("step<1: 3lc, rest fp32");
  std::vector<Values> in(2, Values(1000));
  for (std::size_t i = 0; i < 1000; ++i) in[0][i] = in[1][i] = static_cast<float>(i % 16);
  const std::vector<Named> parts{named("a", in[0]), named("b", in[1])};
  ASSERT_TRUE(both->encode(parts, step_id(0)));
  both->commit();
  const std::vector<Values> waiting{testing::copy(both->residual("a", 0)),
                                    testing::copy(both->residual("b", 0))};
  ASSERT_NE(waiting[0], Values(1000, 0.0F));
  for (float& value : in[1]) value += 100;
  for (const Named& part : parts) {
    const auto pieces = both->encode(std::span(&part, 1), step_id(1), 8000);
    ASSERT_TRUE(pieces) << pieces.error().message;
    both->release(*pieces);
  }
  both->revert();
  for (std::size_t which = 0; which < 2; ++which) {
    const auto left = both->residual(parts[which].name, 0);
    for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(left[i], waiting[which][i] + in[which][i]) << i;
  }
}

TEST(ChannelEdges, ARevertKeepsNoMemoryOfMessages) {
  const auto meter = std::make_shared<MemoryMeter>();
  const auto sender = make_metered_channel("fp32", {}, {meter, nullptr});
  ASSERT_TRUE(sender);
  Values values(100000, 1.0F);
  const Named part = named("w", values);
  ASSERT_TRUE((*sender)->encode(std::span(&part, 1), step_id(0)));
  EXPECT_GE(meter->held(MemoryMeter::Use::kMessages), 400000u);
  (*sender)->revert();
  EXPECT_EQ(meter->held(MemoryMeter::Use::kMessages), 0u);
}

// The memory of a message that no revert needs serves the next one as soon as it is released.
TEST(ChannelEdges, AReleasedMessageMakesRoom) {
  const auto meter = std::make_shared<MemoryMeter>();
  const auto sender = make_metered_channel("fp32", {}, {meter, nullptr});
  ASSERT_TRUE(sender);
  Values values(100000, 1.0F);
  for (const std::string name : {"a", "b", "c"}) {
    const Named part = named(name, values);
    const auto pieces = (*sender)->encode(std::span(&part, 1), step_id(0), 400000);
    ASSERT_TRUE(pieces);
    (*sender)->release(*pieces);
  }
  EXPECT_LT(meter->peak(), 2 * 400000u);
}

TEST(ChannelEdges, AnExactRevertNeedsNoCopyOfZeros) {
  const auto meter = std::make_shared<MemoryMeter>();
  const auto sender = make_metered_channel("3lc", {.policy = {}, .revert = Revert::kExact}, {meter, nullptr});
  ASSERT_TRUE(sender);
  Values values(100000, 1.0F);
  values[7] = -2.0F;
  const Named part = named("w", values);
  ASSERT_TRUE((*sender)->encode(std::span(&part, 1), step_id(0)));
  EXPECT_LT(meter->held(MemoryMeter::Use::kResiduals), 2 * 400000u) << "nothing waited before the first step";
  (*sender)->commit();
  ASSERT_TRUE((*sender)->encode(std::span(&part, 1), step_id(1)));
  EXPECT_GE(meter->held(MemoryMeter::Use::kResiduals), 2 * 400000u);
}

// A residual of zeros is saved without memory only where all its bits are 0.
TEST(ChannelEdges, AnExactRevertRestoresNegativeZeros) {
  ResidualStore store{nullptr};
  Values values(3);
  const auto entry = store.obtain(named("w", values));
  ASSERT_TRUE(entry);
  (*entry)->values = {-0.0F, 0.0F, -0.0F};
  (void)ResidualStore::keep_for_step(**entry);
  (*entry)->values.assign(3, 1.0F);
  store.restore_step();
  EXPECT_TRUE(testing::same_bits((*entry)->values, Values{-0.0F, 0.0F, -0.0F}));
}

// A part of several frames, whose codec has no key-value form.
TEST(ChannelEdges, PairsOfALongPartHaveItsKeys) {
  constexpr std::size_t kCount = 600000;
  Values values(kCount, 0.0F);
  for (const std::size_t at : {std::size_t{7}, std::size_t{300000}, kCount - 1})
    values[at] = static_cast<float>(at);
  const Named part = named("w", values);
  const auto both = channel("fp32");
  const auto pieces = both->encode(std::span(&part, 1), step_id(0));
  ASSERT_TRUE(pieces);
  std::vector<Pairs> means(1);
  const Status decoded = both->decode_pairs(*pieces, std::span(&part, 1), step_id(0), 1.0F, means);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(means[0].keys, (std::vector<std::uint32_t>{7, 300000, kCount - 1}));
  EXPECT_EQ(means[0].values, (Values{7, 300000, kCount - 1}));
}

}  // namespace
}  // namespace deltawire::channel_edges_test
