// Which members of an elastic session may go on: never two groups of them.
#include <algorithm>
#include <iterator>
#include <random>

#include <gtest/gtest.h>

#include "elastic/messages.h"

namespace deltawire::elastic::view_test {
namespace {

View view_of(std::uint32_t epoch, const Ids& ids) {
  View view{epoch, {}, 100};
  for (const int id : ids) view.members.push_back({id, {"127.0.0.1", static_cast<std::uint16_t>(1000 + id)}});
  return view;
}

Ids first_ids(int count) {
  Ids ids;
  for (int id = 0; id < count; ++id) ids.insert(id);
  return ids;
}

Ids without(const Ids& ids, const Ids& others) {
  Ids rest;
  std::ranges::set_difference(ids, others, std::inserter(rest, rest.end()));
  return rest;
}

std::vector<Ids> subsets(const Ids& ids) {
  std::vector<Ids> all{{}};
  for (const int id : ids) {
    for (std::size_t count = all.size(), i = 0; i < count; ++i) {
      all.push_back(all[i]);
      all.back().insert(id);
    }
  }
  return all;
}

bool goes_on(const Ids& ids, const std::vector<View>& views, const Ids& left = {}) {
  return may_go_on(ids, views, left);
}

TEST(Quorum, TwoGroupsOfAViewNeverBothGoOn) {
  for (int world = 1; world < 7; ++world) {
    const Ids all = first_ids(world);
    const std::vector<View> before{view_of(3, all)};
    for (const Ids& left : subsets(all)) {
      const Ids remaining = without(all, left);
      for (const Ids& known : subsets(left)) {  // not all have heard of all who left
        for (const Ids& one : subsets(remaining)) {
          const Ids others = without(remaining, one);
          const bool first = goes_on(one, before, left);
          const bool second = goes_on(others, before, known);
          ASSERT_FALSE(first && second && !one.empty() && !others.empty());
          const bool is_tie = 2 * static_cast<int>(one.size()) == world;
          ASSERT_TRUE(first || second || is_tie || !left.empty());
        }
      }
    }
    ASSERT_TRUE(goes_on(all, before));
  }
}

TEST(Quorum, HalfNeedsTheLowest) {
  const std::vector<View> before{view_of(0, {2, 5, 7, 9})};
  EXPECT_TRUE(goes_on({2, 9}, before));
  EXPECT_FALSE(goes_on({5, 7}, before));
  EXPECT_TRUE(goes_on({5, 7}, before, {2}));  // 2 of 3
  EXPECT_TRUE(goes_on({5, 9}, before, {2, 7}));
  const std::vector<View> larger{view_of(0, {2, 5, 7, 9, 11})};
  EXPECT_TRUE(goes_on({5, 7}, larger, {2}));
  EXPECT_FALSE(goes_on({7, 9}, larger, {2}));
  EXPECT_FALSE(goes_on({9}, before, {2, 7}));
  EXPECT_FALSE(goes_on({5, 7, 9}, {before[0], view_of(1, {2, 5})}));
}

// Processes that partitions group again and again. A group that may go on tries a view; an attempt may end
// before all know that it succeeded, or before a step.
class Partitions {
 public:
  Partitions(unsigned seed, int count) : random_(seed) {
    const View first = view_of(0, first_ids(count));
    for (const int id : first.ids()) states_[id].base = first;
    committed_.push_back(first);
  }

  void turn() {
    std::map<unsigned, Ids> groups;
    for (const auto& [id, state] : states_) groups[draw(3)].insert(id);
    for (const auto& [number, group] : groups) try_view(group);
  }
  std::size_t committed() const { return committed_.size() - 1; }

 private:
  unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }

  void try_view(const Ids& group) {
    std::uint32_t latest = 0;
    for (const int id : group) latest = std::max(latest, states_[id].base->epoch);
    Ids there;
    std::vector<View> views;
    std::uint32_t epoch = 0;
    for (const int id : group) {
      if (states_[id].base->epoch != latest) continue;
      there.insert(id);
      for (const View* const view : states_[id].views()) views.push_back(*view);
      epoch = std::max(epoch, states_[id].latest_epoch());
    }
    if (!may_go_on(there, views, {})) return;
    const View next = view_of(epoch + 1, there);
    const unsigned outcome = draw(4);  // some try it, all do, or all commit a step in it
    for (const int id : there) {
      if (outcome > 0 || draw(2) == 0) states_[id].tried.push_back(next);
    }
    if (outcome < 2) return;
    ASSERT_EQ(latest, committed_.back().epoch) << "two groups have gone on";
    committed_.push_back(next);
    for (const int id : there) {
      states_[id].base = next;
      states_[id].tried.clear();
    }
  }

  std::mt19937 random_;
  std::map<int, MemberState> states_;
  std::vector<View> committed_;  // all views that have committed a step, in order
};

TEST(Quorum, PartitionsNeverMakeTwoLinesOfViews) {
  for (int count = 2; count < 8; ++count) {
    std::size_t views = 0;
    for (unsigned seed = 0; seed < 300; ++seed) {
      Partitions world(seed, count);
      for (int turn = 0; turn < 30 && !::testing::Test::HasFatalFailure(); ++turn) world.turn();
      views += world.committed();
    }
    EXPECT_GT(views, 300U);
  }
}

TEST(Quorum, OfTwoThatCannotConnectTheHigherGoes) {
  EXPECT_EQ(without_quarrels({0, 1, 2, 3}, {{3, 1}, {1, 3}}), (Ids{0, 1, 2}));
  EXPECT_EQ(without_quarrels({0, 1, 2}, {{0, 2}, {1, 2}}), (Ids{0, 1}));
  EXPECT_EQ(without_quarrels({0, 1}, {{0, 7}}), (Ids{0, 1}));
}

TEST(Quorum, RanksAreInTheOrderOfIds) {
  const View view = view_of(4, {0, 3});
  EXPECT_EQ(view.rank_of(3), 1);
  EXPECT_FALSE(view.rank_of(1));
}

}  // namespace
}  // namespace deltawire::elastic::view_test
