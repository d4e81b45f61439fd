// docs/reference/format.md, section 7, rule by rule, behind good checksums; and what the residuals of a state
// are kept under.
#include <bit>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "deltawire/channel.h"

namespace deltawire::channel_state_test {
namespace {

using State = std::vector<std::byte>;

std::unique_ptr<Channel> channel() {
  return std::move(*make_channel("3lc", {Policy{8}, Revert::kExact}));
}

struct Entry {
  std::string name;
  std::uint64_t first = 0;
  std::vector<float> values;
  std::vector<float> momentum = {};
};

template <class Number>
void put(State& state, Number number) {
  state.resize(state.size() + sizeof number);
  store_le(state.data() + state.size() - sizeof number, number);
}

void put_text(State& state, std::string_view text) {
  for (const char c : text) state.push_back(static_cast<std::byte>(c));
}

void repair(State& state) {
  if (state.size() < 4) return;
  const Bytes body = Bytes(state).first(state.size() - 4);
  store_le<std::uint32_t>(state.data() + body.size(), crc32c(body));
}

State state_of(const std::vector<Entry>& entries) {
  const State empty = *channel()->save();
  State state;
  put_text(state, "DWSTATE\n");
  put(state, std::uint32_t{1});
  put(state, static_cast<std::uint32_t>(entries.size()));
  put(state, load_le<std::uint64_t>(empty.data() + 16));
  for (const Entry& entry : entries) {
    put(state, static_cast<std::uint32_t>(entry.name.size()));
    put(state, entry.first);
    put(state, static_cast<std::uint64_t>(entry.values.size()));
    put(state, std::bit_cast<std::uint32_t>(1.0F));  // the scale
    put(state, std::bit_cast<std::uint32_t>(entry.momentum.empty() ? 0.0F : 2.0F));
    put_text(state, entry.name);
    for (const float value : entry.values) put(state, std::bit_cast<std::uint32_t>(value));
    for (const float value : entry.momentum) put(state, std::bit_cast<std::uint32_t>(value));
  }
  put(state, std::uint32_t{0});
  repair(state);
  return state;
}

const std::vector<Entry> kSorted{
    {"b", 320, {1, 2}}, {"w", 0, {3}, {0.5F}}, {"w", 40, {4, 5}}, {"w", 320, {6}}};

TEST(ChannelState, IsSortedByNameAndFirst) {
  const auto loaded = channel();
  ASSERT_TRUE(loaded->load(state_of({kSorted[3], kSorted[1], kSorted[0], kSorted[2]})));
  EXPECT_EQ(*loaded->save(), state_of(kSorted));
  for (const Entry& entry : kSorted) {
    const auto residual = loaded->residual(entry.name, entry.first);
    EXPECT_EQ(std::vector<float>(residual.begin(), residual.end()), entry.values)
        << entry.name << entry.first;
  }
  EXPECT_TRUE(loaded->residual("w", 1).empty());
}

TEST(ChannelState, EveryRule) {
  using Change = std::function<void(State&)>;
  struct Rule {
    std::string name;
    Change change;
    std::optional<ErrorCode> error;
  };
  const auto u32 = [](std::size_t at, std::uint32_t value) -> Change {
    return [=](State& state) { store_le(state.data() + at, value); };
  };
  const auto u64 = [](std::size_t at, std::uint64_t value) -> Change {
    return [=](State& state) { store_le(state.data() + at, value); };
  };
  const auto resized = [](std::ptrdiff_t by) -> Change {
    return [=](State& state) { state.resize(static_cast<std::size_t>(std::ssize(state) + by)); };
  };
  // The last entry: its head begins 28 + 1 + 4 bytes before the checksum.
  const std::size_t last = state_of(kSorted).size() - 4 - 33;
  const std::size_t second = 24 + 28 + 1 + 8;
  const std::vector<Rule> rules{
      {"as it was", resized(0), std::nullopt},
      {"27 bytes", [](State& state) { state.resize(27); }, ErrorCode::kTruncated},
      {"no bytes", [](State& state) { state.clear(); }, ErrorCode::kTruncated},
      {"the magic's last byte", [](State& state) { state[7] = std::byte{0}; }, ErrorCode::kCorrupt},
      {"version 0", u32(8, 0), ErrorCode::kUnsupportedVersion},
      {"version 2", u32(8, 2), ErrorCode::kUnsupportedVersion},
      {"another codec's hash", u64(16, 0), ErrorCode::kMismatch},
      {"another codec's greater hash", u64(16, UINT64_MAX), ErrorCode::kMismatch},
      {"an entry less than there are", u32(12, 3), ErrorCode::kCorrupt},
      {"an entry more", u32(12, 5), ErrorCode::kTruncated},
      {"a byte less", resized(-1), ErrorCode::kTruncated},
      {"a value less", resized(-4), ErrorCode::kTruncated},
      {"a byte more", resized(1), ErrorCode::kCorrupt},
      {"a value more", resized(4), ErrorCode::kCorrupt},
      {"a name to the end", u32(last, 5), ErrorCode::kTruncated},
      {"a name a byte longer", u32(last, 6), ErrorCode::kTruncated},
      {"momentum that isn't there", u32(last + 24, 0x40000000), ErrorCode::kTruncated},
      {"a negative scale of momentum", u32(second + 24, 0xC0000000), ErrorCode::kCorrupt},
      {"an infinite scale of momentum", u32(second + 24, 0x7F800000), ErrorCode::kCorrupt},
      {"momentum that isn't announced", u32(second + 24, 0), ErrorCode::kTruncated},
      {"a name of 2^32 - 1 bytes", u32(last, UINT32_MAX), ErrorCode::kTruncated},
      {"one value more than there are", u64(last + 12, 2), ErrorCode::kTruncated},
      {"2^62 values", u64(last + 12, std::uint64_t{1} << 62), ErrorCode::kTruncated},
      {"a scale of 0", u32(last + 20, 0), ErrorCode::kCorrupt},
      {"an infinite scale", u32(last + 20, 0x7F800000), ErrorCode::kCorrupt},
      {"the same part twice", u64(last + 4, 40), ErrorCode::kCorrupt},
  };
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.name);
    State state = state_of(kSorted);
    rule.change(state);
    repair(state);
    const auto loaded = channel();
    const Status status = loaded->load(state);
    ASSERT_EQ(status.has_value(), !rule.error) << (status ? "" : status.error().message);
    if (status) continue;
    EXPECT_EQ(error_code_name(status.error().code), error_code_name(*rule.error)) << status.error().message;
    EXPECT_EQ(*loaded->save(), state_of({})) << "all or nothing";
  }
}

// A part keeps its count for as long as it has a residual.
TEST(ChannelState, APartOfAnotherCountIsRefused) {
  for (const std::size_t count : {19U, 21U}) {
    const auto loaded = channel();
    ASSERT_TRUE(loaded->load(state_of({{"w", 0, std::vector<float>(20, 0.5F)}})));
    std::vector<float> values(count, 1.0F);
    const Named part{"w", {values.data(), count, DType::kF32}, 0};
    const auto encoded = loaded->encode(std::span(&part, 1), {});
    ASSERT_FALSE(encoded) << count;
    EXPECT_EQ(encoded.error().code, ErrorCode::kMismatch);
    loaded->revert();
  }
}

}  // namespace
}  // namespace deltawire::channel_state_test
