#include "elastic/decision.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "elastic/timing.h"

namespace deltawire::elastic {
namespace {

using namespace std::chrono_literals;
using Kind = Decision::Kind;
using States = std::map<int, const MemberState*>;

// How long a member is waited for that answers and doesn't come: 0.4 of the meeting's time. It may still
// settle the failed step with a rank that is silent, and hear reports (docs/design/commit.md): so 6 s where
// that is longer, but no more than 0.6.
constexpr double kBusy = 0.4;
constexpr double kBusyMost = 0.6;
constexpr Clock::duration kSettling = 6s;
// And after an attempt that failed, kSilence or that part of the time: some may wait elsewhere.
constexpr double kAgain = 0.15;
constexpr const char* kLate = "it answered, but did not come to the meeting in time";

bool waits_for_the_busy(const MeetingTime& time) {
  const auto busy = std::max(kBusy * time.limit, std::min(kBusyMost * time.limit, 1.0 * kSettling));
  const auto again = std::min(1.0 * kSilence, kAgain * time.limit);
  return time.passed <= busy || time.attempt <= again;
}

const Finding* found_of(const Attendance& attendance, int id) {
  const auto found = attendance.findings.find(id);
  return found == attendance.findings.end() ? nullptr : &found->second;
}

std::string why_absent(const Attendance& attendance, int id) {
  const Finding* const found = found_of(attendance, id);
  if (found == nullptr) return {};
  return found->is_gone() ? found->gone : kLate;
}

// Those that stand at the step where most do, of the latest base. With equal numbers, the later step. A step
// that some have committed and others reverted can only be one apart (docs/design/commit.md).
States of_one_step(const States& states) {
  std::int64_t latest = -1;
  for (const auto& [id, state] : states) {
    if (state->base) latest = std::max<std::int64_t>(latest, state->base->epoch);
  }
  const auto counts = [&](const MemberState& state) { return !state.base || state.base->epoch == latest; };
  std::map<std::uint64_t, int> at;
  for (const auto& [id, state] : states) {
    if (counts(*state)) ++at[state->steps];
  }
  const auto step = std::ranges::max_element(at, {}, [](const auto& each) {
                      return std::pair(each.second, each.first);
                    })->first;
  States same;
  for (const auto& [id, state] : states) {
    if (counts(*state) && state->steps == step) same.emplace(id, state);
  }
  return same;
}

// Those that the members stand in, without repetitions: of a thousand members with a thousand in each view
// nothing is copied.
std::vector<const View*> views_of(const States& states) {
  std::vector<const View*> all;
  for (const auto& [id, state] : states) {
    for (const View* const view : state->views()) {
      if (std::ranges::none_of(all, [view](const View* other) { return *other == *view; }))
        all.push_back(view);
    }
  }
  return all;
}

std::vector<View> views_of(const States& states, const Ids& chosen) {
  States theirs = states;
  std::erase_if(theirs, [&chosen](const auto& each) { return !chosen.contains(each.first); });
  std::vector<View> views;
  for (const View* const view : views_of(theirs)) views.push_back(*view);
  return views;
}

Proposal proposal_of(const Attendance& attendance, const States& states, const Ids& chosen,
                     const std::vector<View>& views, std::size_t joiners) {
  Proposal proposal;
  proposal.chosen = chosen;
  proposal.joiners = joiners;
  View& view = proposal.view;
  for (const View& each : views) view.next_id = std::max(view.next_id, each.next_id);
  const auto known = attendance.known();
  for (const int id : chosen) view.members.push_back(known.at(id));
  for (std::size_t i = 0; i < joiners; ++i) view.members.push_back({view.next_id++, attendance.joiners[i]});
  for (const auto& [id, state] : attendance.states()) {
    view.epoch = std::max({view.epoch, state->latest_epoch(), state->promised});
  }
  ++view.epoch;
  double squares = 0;
  int with_residuals = 0;
  for (const int id : chosen) {
    const MemberState& state = *states.at(id);
    if (!state.base) continue;
    if (!proposal.base) proposal.base = state.base;
    squares += state.residual;
    ++with_residuals;
  }
  for (const int id : proposal.base ? proposal.base->ids() : Ids{}) {
    if (chosen.contains(id)) continue;
    const auto left = attendance.left.find(id);
    proposal.gone[id] = left != attendance.left.end() ? left->second : why_absent(attendance, id);
  }
  proposal.residual_kept = std::sqrt(squares);
  proposal.residual_lost =
      std::sqrt(static_cast<double>(proposal.gone.size()) * squares / std::max(1, with_residuals));
  for (const auto& [id, state] : attendance.callers) {
    if (!chosen.contains(id)) proposal.turned_away.insert(id);
  }
  return proposal;
}

// The next view of those who are there.
Decision next_view(const Attendance& attendance) {
  const States states = of_one_step(attendance.states());
  if (!states.contains(attendance.own.id)) {
    return {.kind = Kind::kExcluded, .why = "the other members are at another step"};
  }
  Ids here;
  std::set<std::pair<int, int>> quarrels;
  for (const auto& [id, state] : states) {
    here.insert(id);
    for (const int other : state->blamed) quarrels.emplace(id, other);
  }
  const Ids chosen = without_quarrels(here, quarrels);
  if (!chosen.contains(attendance.own.id)) return {};
  const std::vector<View> views = views_of(states, chosen);
  std::size_t joiners = attendance.joiners.size();
  bool suffices = false;
  if (attendance.at_least) {
    suffices = static_cast<int>(chosen.size() + joiners) >= *attendance.at_least;
  } else {
    // Without the processes that join, which may die before they are connected, the others must still have a
    // quorum of the view.
    joiners = std::min(joiners, chosen.size());
    Ids left;
    for (const auto& [id, why] : attendance.left) left.insert(id);
    suffices = may_go_on(chosen, views, left);
  }
  if (!suffices) return {};
  return {.kind = Kind::kPropose, .proposal = proposal_of(attendance, states, chosen, views, joiners)};
}

std::string alone(const Attendance& attendance, const MeetingTime& time) {
  const std::string here =
      list_of(attendance.states(), ", ", [](const auto& each) { return std::to_string(each.first); });
  std::string absent;
  for (const Member& member : attendance.absent()) {
    const std::string why = why_absent(attendance, member.id);
    absent += (absent.empty() ? "member " : "; member ") + std::to_string(member.id) + ": " +
              (why.empty() ? "unknown" : why);
  }
  const std::string rule =
      attendance.at_least
          ? "at_least=" + std::to_string(*attendance.at_least)
          : "more than half of the last epoch's members, or half with the lowest id, must be there";
  return out_of_time(time.limit) + ": members [" + here + "] are there, and " + rule + " (" + absent + ")";
}

}  // namespace

bool is_left_out(const Finding& found, const MemberState& own) {
  return found.place && found.place->view.epoch > own.latest_epoch() && !found.place->view.has(own.id);
}

std::string out_of_time(Clock::duration limit) {
  return "the members did not agree on who goes on within " + seconds_text(limit) + " s";
}

std::map<int, const MemberState*> Attendance::states() const {
  std::map<int, const MemberState*> all;
  for (const auto& [id, state] : callers) all[id] = &state;
  all[own.id] = &own;
  return all;
}

std::map<int, Member> Attendance::known() const {
  std::map<int, Member> all = own.known();
  for (const View* const view : views_of(states())) {
    for (const Member& member : view->members) all.try_emplace(member.id, member);
  }
  return all;
}

std::vector<Member> Attendance::absent() const {
  std::vector<Member> all;
  for (const auto& [id, member] : known()) {
    if (id != own.id && !callers.contains(id) && !left.contains(id)) all.push_back(member);
  }
  return all;
}

Decision decide(const Attendance& attendance, const MeetingTime& time) {
  bool are_settled = true;  // whether it is known of all that they don't come
  for (const Member& member : attendance.absent()) {
    const Finding* const found = found_of(attendance, member.id);
    are_settled = are_settled && found != nullptr && (found->is_gone() || !waits_for_the_busy(time));
    if (found == nullptr || found->is_gone() || attendance.given_up.contains(member.id)) continue;
    if (is_left_out(*found, attendance.own)) {
      return {.kind = Kind::kExcluded, .why = "it did not answer in time", .epoch = found->place->view.epoch};
    }
    if (member.id < attendance.own.id) return {.kind = Kind::kYield};
  }
  if (are_settled) {
    if (Decision decision = next_view(attendance); decision.kind != Kind::kWait) return decision;
  }
  if (time.passed <= time.limit) return {};
  return {.kind = Kind::kGiveUp, .why = alone(attendance, time)};
}

}  // namespace deltawire::elastic
