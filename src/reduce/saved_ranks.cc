#include "reduce/saved_ranks.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "reduce/reducer_state.h"

namespace deltawire {
namespace {

// How long both intervals' common part is, in units of 1 / (N M).
double common_part(int from, int from_world, int to, int to_world) noexcept {
  const std::int64_t old_world = from_world;
  const std::int64_t new_world = to_world;
  const std::int64_t begin = std::max(from * new_world, to * old_world);
  const std::int64_t end = std::min((from + 1) * new_world, (to + 1) * old_world);
  return static_cast<double>(std::max<std::int64_t>(0, end - begin));
}

std::vector<WeightedState> weigh_by_overlap(const SavedRanks& saved, const std::vector<Bytes>& states,
                                            double unit) {
  const int world = static_cast<int>(states.size());
  std::vector<WeightedState> weighted;
  for (int from = 0; from < world; ++from) {
    const double part = common_part(from, world, saved.rank, saved.world);
    if (part > 0) weighted.push_back({states[static_cast<std::size_t>(from)], part / unit});
  }
  return weighted;
}

}  // namespace

Result<SavedChannels> unpack_saved_ranks(const SavedRanks& saved, std::string_view magic,
                                         std::size_t channel_count) {
  if (saved.world < 1 || saved.rank < 0 || saved.rank >= saved.world) {
    return fail(ErrorCode::kInvalidArgument, "rank " + std::to_string(saved.rank) + " of " +
                                                 std::to_string(saved.world) + " is no place among ranks");
  }
  const std::size_t world = saved.states.size();
  SavedChannels channels(channel_count);
  bool first_has_steps = false;
  for (std::size_t rank = 0; rank < world; ++rank) {
    const Result<ReducerState> state = unpack_reducer_state(saved.states[rank], magic, channel_count);
    if (!state) return forward_error(state);
    const bool has_steps = state->world != 0;  // without any, a state doesn't know its place
    if (rank == 0) first_has_steps = has_steps;
    const bool in_place =
        static_cast<std::size_t>(state->world) == world && static_cast<std::size_t>(state->rank) == rank;
    if (has_steps != first_has_steps || (has_steps && !in_place)) {
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
  for (const Bytes state : states) weighted.push_back({state, 1.0});
  return weighted;
}

Named cut_part(const Named& tensor, const OwnedRange& range) {
  return {tensor.name, {nullptr, range.count, DType::kF32}, range.first};
}

}  // namespace deltawire
