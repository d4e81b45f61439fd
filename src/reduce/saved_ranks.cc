#include "reduce/saved_ranks.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <optional>
#include <ranges>
#include <string>

#include "base/no_memory.h"
#include "reduce/patterns/factor_store.h"
#include "reduce/patterns/hierarchical.h"
#include "reduce/reducer_state.h"

namespace deltawire {
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
    return fail(ErrorCode::kInvalidArgument, "rank " + std::to_string(saved.rank) + " of " +
                                                 std::to_string(saved.world) + " is no place among ranks");
  }
  if (names_ranks_in_order(saved)) return {};
  return fail(ErrorCode::kInvalidArgument,
              "the ranks that go on must be given by new rank, in ascending order, with their states");
}

Result<SavedChannels> unpack_saved_ranks(const SavedRanks& saved, std::string_view magic,
                                         std::size_t channel_count) {
  if (Status placed = check_places(saved); !placed) return forward_error(placed);
  const std::size_t world = saved.states.size();
  SavedChannels channels(channel_count);
  std::optional<bool> first_has_steps;
  for (std::size_t rank = 0; rank < world; ++rank) {
    if (!saved.continued.empty() && saved.states[rank].empty()) {  // it doesn't go on
      for (auto& channel : channels) channel.emplace_back();
      continue;
    }
    const Result<ReducerState> state = unpack_reducer_state(saved.states[rank], magic, channel_count);
    if (!state) return forward_error(state);
    const bool has_steps = state->world != 0;  // without any, a state doesn't know its place
    if (!first_has_steps) first_has_steps = has_steps;
    const bool in_place =
        static_cast<std::size_t>(state->world) == world && static_cast<std::size_t>(state->rank) == rank;
    if (has_steps != *first_has_steps || (has_steps && !in_place)) {
      return fail(
          ErrorCode::kMismatch,
          "state " + std::to_string(rank) + " of " + std::to_string(world) + " is of " +
              (has_steps ? "rank " + std::to_string(state->rank) + " of " + std::to_string(state->world)
                         : std::string("a rank before its first step")) +
              "; give the states that all ranks saved after the same step, in the order of ranks");
    }
    for (std::size_t c = 0; c < channel_count; ++c) channels[c].push_back(state->channels[c]);
  }
  if (world == 0) return fail(ErrorCode::kInvalidArgument, "no states were given; give those of all ranks");
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
