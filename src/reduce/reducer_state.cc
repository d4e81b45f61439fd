#include "reduce/reducer_state.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <optional>
#include <ranges>
#include <string>

#include "base/crc32c.h"
#include "base/errors.h"
#include "base/little_endian.h"
#include "reduce/patterns/factor_store.h"
#include "reduce/patterns/hierarchical.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kVersion = 1;
// magic, u32 version, u32 world, u64 bytes of the first channel's state, u32 rank, u32 CRC of these
constexpr std::uint64_t kHeadBytes = 32;
constexpr std::uint64_t kCrcAt = 28;
constexpr std::uint32_t kMaxWorld = 65535;  // a frame's header says it in 16 bits

}  // namespace

std::vector<std::byte> pack_reducer_state(const ReducerPlace& place,
                                          const std::vector<std::vector<std::byte>>& channels) {
  assert(place.magic.size() == 8 && !channels.empty() && channels.size() <= 2);
  assert(place.rank >= 0 && (place.rank < place.world || place.world == 0));
  std::vector<std::byte> out(kHeadBytes);
  std::memcpy(out.data(), place.magic.data(), place.magic.size());
  store_le<std::uint32_t>(out.data() + 8, kVersion);
  store_le<std::uint32_t>(out.data() + 12, static_cast<std::uint32_t>(place.world));
  store_le<std::uint64_t>(out.data() + 16, channels.front().size());
  store_le<std::uint32_t>(out.data() + 24, static_cast<std::uint32_t>(place.rank));
  store_le<std::uint32_t>(out.data() + kCrcAt, crc32c(Bytes(out).first(kCrcAt)));
  for (const auto& channel : channels) out.insert(out.end(), channel.begin(), channel.end());
  return out;
}

Result<ReducerState> unpack_reducer_state(Bytes state, std::string_view magic, std::size_t channel_count) {
  assert(magic.size() == 8 && (channel_count == 1 || channel_count == 2));
  const Bytes head = state.first(std::min<std::uint64_t>(state.size(), kHeadBytes));
  RETURN_IF_ERROR(body_of_state("reducer state", head, magic, kVersion, kCrcAt));
  const auto first_bytes = load_le<std::uint64_t>(state.data() + 16);
  const Bytes rest = state.subspan(kHeadBytes);
  if (first_bytes > rest.size()) return truncated("reducer state: ends within a channel");
  const auto world = load_le<std::uint32_t>(state.data() + 12);
  const auto rank = load_le<std::uint32_t>(state.data() + 24);
  const bool no_step_yet = world == 0 && rank == 0;
  if (world > kMaxWorld || (rank >= world && !no_step_yet) ||
      (channel_count == 1 && first_bytes != rest.size())) {
    return corrupt("reducer state: its head contradicts itself");
  }
  ReducerState parts;
  parts.world = static_cast<int>(world);
  parts.rank = static_cast<int>(rank);
  parts.channels.push_back(channel_count == 1 ? rest : rest.first(first_bytes));
  if (channel_count == 2) parts.channels.push_back(rest.subspan(first_bytes));
  return parts;
}

Result<std::vector<std::byte>> without_first_channel(Bytes state) {
  if (state.size() < kHeadBytes) return truncated("reducer state: too few bytes");
  const auto first_bytes = load_le<std::uint64_t>(state.data() + 16);
  const Bytes rest = state.subspan(kHeadBytes);
  if (first_bytes > rest.size()) return truncated("reducer state: ends within a channel");
  std::vector<std::byte> out(state.begin(), state.begin() + kHeadBytes);
  store_le<std::uint64_t>(out.data() + 16, 0);
  store_le<std::uint32_t>(out.data() + kCrcAt, crc32c(Bytes(out).first(kCrcAt)));
  const Bytes kept = rest.subspan(first_bytes);
  out.insert(out.end(), kept.begin(), kept.end());
  return out;
}

Result<std::vector<std::vector<std::byte>>> save_channels(
    std::span<const std::unique_ptr<Channel>> channels) {
  std::vector<std::vector<std::byte>> states;
  for (const auto& each : channels) {
    ASSIGN_OR_RETURN(states.emplace_back(), each->save());
  }
  return states;
}

Status load_channels(std::span<const std::unique_ptr<Channel>> channels,
                     const std::function<Status(std::size_t)>& load_channel) {
  ASSIGN_OR_RETURN(const auto before, save_channels(channels));
  for (std::size_t i = 0; i < channels.size(); ++i) {
    Status loaded = load_channel(i);
    if (loaded) continue;
    for (std::size_t k = 0; k < i; ++k) (void)channels[k]->load(before[k]);
    return loaded;
  }
  return {};
}

namespace {

// How long both intervals' common part is, in units of 1 / (N M).
double common_part(int from, int from_world, int to, int to_world) noexcept {
  assert(from >= 0 && from < from_world && to >= 0 && to < to_world);
  const std::int64_t old_world = from_world;
  const std::int64_t new_world = to_world;
  const std::int64_t begin = std::max(from * new_world, to * old_world);
  const std::int64_t end = std::min((from + 1) * new_world, (to + 1) * old_world);
  return static_cast<double>(std::max<std::int64_t>(0, end - begin));
}

std::vector<WeightedState> weigh_by_overlap(const SavedRanks& saved, const std::vector<Bytes>& states,
                                            double unit) {
  const int world = static_cast<int>(states.size());
  assert(saved.rank >= 0 && saved.rank < saved.world);
  if (!saved.continued.empty()) {
    const int own = saved.continued[static_cast<std::size_t>(saved.rank)];
    if (own < 0) return {};
    return {{states[static_cast<std::size_t>(own)], saved.world / unit}};
  }
  std::vector<WeightedState> weighted;
  for (int from = 0; from < world; ++from) {
    const double part = common_part(from, world, saved.rank, saved.world);
    if (part > 0) weighted.push_back({states[static_cast<std::size_t>(from)], part / unit});
  }
  return weighted;
}

// Whether `continued` names a place for each new rank, and the state of each that goes on is there.
bool names_ranks_in_order(const SavedRanks& saved) noexcept {
  int before = -1;
  for (const int old : saved.continued) {
    if (old < 0) continue;
    if (old <= before || static_cast<std::size_t>(old) >= saved.states.size()) return false;
    if (saved.states[static_cast<std::size_t>(old)].empty()) return false;
    before = old;
  }
  return saved.continued.empty() || saved.continued.size() == static_cast<std::size_t>(saved.world);
}

bool is_of_groups(Bytes state) noexcept {
  const std::string_view begin(reinterpret_cast<const char*>(state.data()), state.size());
  return begin.starts_with(kMagicOfGroups);
}

}  // namespace

Status check_places(const SavedRanks& saved) {
  if (saved.world < 1 || saved.rank < 0 || saved.rank >= saved.world) {
    return invalid("rank " + std::to_string(saved.rank) + " of " + std::to_string(saved.world) +
                   " is no place among ranks");
  }
  if (names_ranks_in_order(saved)) return {};
  return invalid("the ranks that go on must be given by new rank, in ascending order, with their states");
}

Result<SavedChannels> unpack_saved_ranks(const SavedRanks& saved, std::string_view magic,
                                         std::size_t channel_count) {
  RETURN_IF_ERROR(check_places(saved));
  const std::size_t world = saved.states.size();
  SavedChannels channels(channel_count);
  std::optional<bool> first_has_steps;
  for (std::size_t rank = 0; rank < world; ++rank) {
    if (!saved.continued.empty() && saved.states[rank].empty()) {  // it doesn't go on
      for (auto& channel : channels) channel.emplace_back();
      continue;
    }
    ASSIGN_OR_RETURN(const ReducerState state,
                     unpack_reducer_state(saved.states[rank], magic, channel_count));
    const bool has_steps = state.world != 0;  // without any, a state doesn't know its place
    if (!first_has_steps) first_has_steps = has_steps;
    const bool in_place =
        static_cast<std::size_t>(state.world) == world && static_cast<std::size_t>(state.rank) == rank;
    if (has_steps != *first_has_steps || (has_steps && !in_place)) {
      return mismatch("state " + std::to_string(rank) + " of " + std::to_string(world) + " is of " +
                      (has_steps ? "rank " + std::to_string(state.rank) + " of " + std::to_string(state.world)
                                 : std::string("a rank before its first step")) +
                      "; give the states that all ranks saved after the same step, in the order of ranks");
    }
    for (std::size_t c = 0; c < channel_count; ++c) channels[c].push_back(state.channels[c]);
  }
  if (world == 0) return invalid("no states were given; give those of all ranks");
  return channels;
}

std::vector<WeightedState> weigh_gradients(const SavedRanks& saved, const std::vector<Bytes>& states) {
  return weigh_by_overlap(saved, states, static_cast<double>(states.size()));
}

std::vector<WeightedState> weigh_sums(const SavedRanks& saved, const std::vector<Bytes>& states) {
  return weigh_by_overlap(saved, states, saved.world);
}

std::vector<WeightedState> weigh_equally(const std::vector<Bytes>& states) {
  std::vector<WeightedState> weighted;
  weighted.reserve(states.size());
  for (const Bytes state : states) {
    if (!state.empty()) weighted.push_back({state, 1.0});  // empty: of a rank that doesn't go on
  }
  return weighted;
}

bool is_unchanged(const SavedRanks& saved) noexcept {
  if (saved.states.size() != static_cast<std::size_t>(saved.world)) return false;
  return saved.continued.empty() || std::ranges::equal(saved.continued, std::views::iota(0, saved.world));
}

Result<std::vector<std::byte>> shared_state(Bytes state) {
  return or_no_memory("a state for others", [&]() -> Result<std::vector<std::byte>> {
    // The matrices of `powersgd` come first, and are of every rank's own; what waits of a group's sums goes
    // to the means' owners.
    if (FactorStore::saved_bytes(state) || is_of_groups(state)) {
      return std::vector<std::byte>(state.begin(), state.end());
    }
    return without_first_channel(state);
  });
}

Named cut_part(const Named& tensor, const OwnedRange& range) {
  return {tensor.name, {nullptr, range.count, DType::kF32}, range.first};
}

}  // namespace deltawire
