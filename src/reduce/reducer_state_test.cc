// The head of a saved reducer, docs/reference/format.md, "Channel state": rule by rule.
#include "reduce/reducer_state.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/refusal_testing.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::reducer_state_test {
namespace {

constexpr std::string_view kMagic = "DWRING\r\n";

using State = std::vector<std::byte>;

const std::vector<State> kChannels{State(5, std::byte{1}), State(7, std::byte{2})};

// Gives a changed head its checksum.
void repair(State& state) {
  if (state.size() >= 32) store_le(state.data() + 28, crc32c(Bytes(state).first(28)));
}

State packed() {
  return pack_reducer_state({kMagic, 4, 3}, kChannels);
}

TEST(ReducerState, StandsAsThePageSays) {
  const State state = packed();
  ASSERT_EQ(state.size(), 32u + 5 + 7);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(std::to_integer<char>(state[i]), kMagic[i]);
  EXPECT_EQ(load_le<std::uint32_t>(state.data() + 8), 1u);
  EXPECT_EQ(load_le<std::uint32_t>(state.data() + 12), 4u);
  EXPECT_EQ(load_le<std::uint64_t>(state.data() + 16), 5u);
  EXPECT_EQ(load_le<std::uint32_t>(state.data() + 24), 3u);
  EXPECT_EQ(load_le<std::uint32_t>(state.data() + 28), crc32c(Bytes(state).first(28)));
  const auto parts = unpack_reducer_state(state, kMagic, 2);
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_EQ(parts->world, 4);
  EXPECT_EQ(parts->rank, 3);
  ASSERT_EQ(parts->channels.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(State(parts->channels[i].begin(), parts->channels[i].end()), kChannels[i]);
  }
}

TEST(ReducerState, OneChannelHasAllTheRest) {
  const State state = pack_reducer_state({"DWGATHER", 2, 0}, {kChannels[1]});
  const auto parts = unpack_reducer_state(state, "DWGATHER", 1);
  ASSERT_TRUE(parts) << parts.error().message;
  ASSERT_EQ(parts->channels.size(), 1u);
  EXPECT_EQ(parts->channels[0].size(), 7u);
  EXPECT_EQ(unpack_reducer_state(packed(), kMagic, 1).error().code, ErrorCode::kCorrupt);
}

TEST(ReducerState, EveryRuleOfTheHead) {
  struct Rule {
    std::string name;
    std::function<void(State&)> change;
    std::optional<ErrorCode> error;
  };
  const auto u32 = [](std::size_t at, std::uint32_t value) {
    return [=](State& state) { store_le(state.data() + at, value); };
  };
  const auto cut = [](std::size_t bytes) { return [=](State& state) { state.resize(bytes); }; };
  const auto place = [](std::uint32_t world, std::uint32_t rank) {
    return [=](State& state) {
      store_le(state.data() + 12, world);
      store_le(state.data() + 24, rank);
    };
  };
  const std::vector<Rule> rules{
      {"no bytes", cut(0), ErrorCode::kTruncated},
      {"31 bytes", cut(31), ErrorCode::kTruncated},
      {"another pattern", u32(2, 0x45544147), ErrorCode::kCorrupt},
      {"the magic's last byte", u32(4, 0x0B0D4749), ErrorCode::kCorrupt},
      {"version 0", u32(8, 0), ErrorCode::kUnsupportedVersion},
      {"version 2", u32(8, 2), ErrorCode::kUnsupportedVersion},
      {"version 2^31", u32(8, 0x80000000), ErrorCode::kUnsupportedVersion},
      {"all bytes for the first channel", u32(16, 12), std::nullopt},
      {"no bytes for the first channel", u32(16, 0), std::nullopt},
      {"one byte more than there are", u32(16, 13), ErrorCode::kTruncated},
      {"2^32 bytes more", u32(20, 1), ErrorCode::kTruncated},
      {"cut in the first channel", cut(32 + 4), ErrorCode::kTruncated},
      {"no step yet", place(0, 0), std::nullopt},
      {"a rank without a world", place(0, 1), ErrorCode::kCorrupt},
      {"rank equal to world", place(4, 4), ErrorCode::kCorrupt},
      {"rank 2^32 - 1", place(4, UINT32_MAX), ErrorCode::kCorrupt},
      {"rank 65,534 of 65,535", place(65535, 65534), std::nullopt},
      {"a world of 65,536", place(65536, 0), ErrorCode::kCorrupt},
      {"a world of 2^32 - 1", place(UINT32_MAX, 0), ErrorCode::kCorrupt},
  };
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.name);
    State state = packed();
    rule.change(state);
    repair(state);
    const auto parts = unpack_reducer_state(state, kMagic, 2);
    ASSERT_EQ(parts.has_value(), !rule.error);
    if (parts) continue;
    EXPECT_EQ(parts.error().code, *rule.error) << parts.error().message;
  }
}

TEST(ReducerState, AChangeOfTheHeadIsFound) {
  for (std::size_t at = 12; at < 32; ++at) {
    State state = packed();
    state[at] ^= std::byte{1};
    testing::expect_refused(unpack_reducer_state(state, kMagic, 2), ErrorCode::kCorrupt);
  }
}

// 32 bytes are a whole head: what is missing then is a channel's.
TEST(ReducerState, AHeadAloneIsRead) {
  State state = packed();
  state.resize(32);
  EXPECT_EQ(unpack_reducer_state(state, "DWGATHER", 1).error().code, ErrorCode::kCorrupt);
}

// A spoilt world would have been used for cutting forever after the first mask_sent.
TEST(ReducerState, ASpoiltWorldIsNotTakenOver) {
  const auto reducer = reducer_of("direct(sbc)");
  State state = *reducer->save();
  store_le<std::uint32_t>(state.data() + 12, UINT32_MAX);
  repair(state);
  testing::expect_refused(reducer->load(state), ErrorCode::kCorrupt);
  std::vector<float> momentum(20000, 1.0F);
  EXPECT_EQ(reducer->mask_sent("w", momentum).error().code, ErrorCode::kState);
}

}  // namespace
}  // namespace deltawire::reducer_state_test
