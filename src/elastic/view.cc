#include "elastic/view.h"

#include <algorithm>
#include <iterator>

namespace deltawire::elastic {

Ids View::ids() const {
  Ids all;
  for (const Member& member : members) all.insert(member.id);
  return all;
}

std::optional<int> View::rank_of(int id) const {
  const auto at = std::ranges::find(members, id, &Member::id);
  if (at == members.end()) return std::nullopt;
  return static_cast<int>(at - members.begin());
}

bool View::is_consistent() const {
  if (members.empty() || members.size() > kMembersMax) return false;
  const auto out_of_order =
      std::ranges::adjacent_find(members, [](const Member& a, const Member& b) { return a.id >= b.id; });
  return out_of_order == members.end() && members.front().id >= 0 && members.back().id < next_id;
}

std::vector<const View*> MemberState::views() const {
  std::vector<const View*> all;
  if (base) all.push_back(&*base);
  for (const View& view : tried) all.push_back(&view);
  return all;
}

std::uint32_t MemberState::latest_epoch() const {
  std::uint32_t latest = base ? base->epoch : 0;
  for (const View& view : tried) latest = std::max(latest, view.epoch);
  return latest;
}

std::map<int, Member> MemberState::known() const {
  std::map<int, Member> all;
  for (const View* const view : views()) {
    for (const Member& member : view->members) all[member.id] = member;
  }
  return all;
}

bool may_go_on(const Ids& present, std::span<const View> views, const Ids& left) {
  for (const View& view : views) {
    Ids remaining;
    std::ranges::set_difference(view.ids(), left, std::inserter(remaining, remaining.end()));
    Ids here;
    std::ranges::set_intersection(present, remaining, std::inserter(here, here.end()));
    if (2 * here.size() < remaining.size()) return false;
    const bool is_tie = !remaining.empty() && 2 * here.size() == remaining.size();
    if (is_tie && !here.contains(*remaining.begin())) return false;
  }
  return true;
}

Ids without_quarrels(const Ids& ids, const std::set<std::pair<int, int>>& quarrels) {
  Ids kept = ids;
  for (const auto& [one, other] : quarrels) {
    if (kept.contains(one) && kept.contains(other)) kept.erase(std::max(one, other));
  }
  return kept;
}

}  // namespace deltawire::elastic
