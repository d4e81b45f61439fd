// Who is in an elastic session: views, and when a set of members may go on. Values alone: no clock, no
// socket.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "deltawire/elastic.h"

namespace deltawire::elastic {

inline constexpr std::size_t kMembersMax = 4096;

using Member = ElasticMember;
using Ids = std::set<int>;

// The members of an epoch.
struct View {
  std::uint32_t epoch = 0;      // grows with each view; no two views have the same
  std::vector<Member> members;  // in the order of their ids, which is that of their ranks
  int next_id = 0;              // of the next process that joins

  Ids ids() const;
  std::optional<int> rank_of(int id) const;
  bool has(int id) const { return rank_of(id).has_value(); }
  // Whether there is a member, ids grow, and all are below next_id.
  bool is_consistent() const;

  bool operator==(const View&) const = default;
};

// What a member brings to a meeting.
struct MemberState {
  std::uint64_t job = 0;  // random; tells jobs with one token apart
  int id = 0;
  std::optional<View> base;  // the last view that committed a step, or that the job began with; nothing for a
                             // member that has joined since
  std::vector<View> tried;   // that it has agreed to since, in order
  std::uint64_t steps = 0;   // committed
  std::uint32_t promised = 0;  // the highest epoch that a host has proposed to it
  Ids blamed;                  // members that it could not connect to, time and again
  double residual = 0;         // the square of the L2 norm of its residuals

  // Those that the next view needs a quorum of, in this object. Never empty for a member that was in a view.
  std::vector<const View*> views() const;
  // The highest epoch of them.
  std::uint32_t latest_epoch() const;
  // All members of them.
  std::map<int, Member> known() const;

  bool operator==(const MemberState&) const = default;
};

// Whether these members may form the next view, so that no others can, too. They need more than half of the
// last view that committed a step, and of each view that any of them has tried to form since; or exactly
// half, with the lowest id. Members that left by their own will (`left`) don't count: they go on nowhere.
bool may_go_on(const Ids& present, std::span<const View> views, const Ids& left);

// The members of whom no two have failed to connect to each other: of such a pair, the one with the higher id
// goes.
Ids without_quarrels(const Ids& ids, const std::set<std::pair<int, int>>& quarrels);

}  // namespace deltawire::elastic
