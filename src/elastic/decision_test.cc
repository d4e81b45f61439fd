// What the host of a meeting decides, without clock or socket.
#include "elastic/decision.h"

#include <gtest/gtest.h>

namespace deltawire::elastic::decision_test {
namespace {

using namespace std::chrono_literals;
using Kind = Decision::Kind;

constexpr MeetingTime kEarly{.passed = 1s, .attempt = 1s, .limit = 60s};
constexpr MeetingTime kLate{.passed = 40s, .attempt = 40s, .limit = 60s};
constexpr MeetingTime kOver{.passed = 61s, .attempt = 61s, .limit = 60s};

View view_of(std::uint32_t epoch, const Ids& ids) {
  View view{epoch, {}, 10};
  for (const int id : ids) view.members.push_back({id, {"127.0.0.1", static_cast<std::uint16_t>(1000 + id)}});
  return view;
}

MemberState state_of(int id, const View& base, std::uint64_t steps = 7) {
  MemberState state;
  state.job = 1;
  state.id = id;
  state.base = base;
  state.steps = steps;
  return state;
}

// A meeting of members of a view of five.
struct Table {
  View base = view_of(2, {0, 1, 2, 3, 4});
  Attendance here;

  explicit Table(int own, const Ids& callers) {
    here.own = state_of(own, base);
    for (const int id : callers) here.callers.emplace(id, state_of(id, base));
  }
  void is_gone(int id) { here.findings[id] = {std::nullopt, "its process has ended"}; }
  void answers(int id, const View& view) { here.findings[id] = {Place{1, id, false, view}, {}}; }
};

TEST(Decide, WaitsUntilTheFateOfAllIsKnown) {
  Table table(0, {1, 2, 3});
  EXPECT_EQ(decide(table.here, kEarly).kind, Kind::kWait);
  EXPECT_EQ(table.here.absent(), (std::vector<Member>{table.base.members[4]}));
  table.answers(4, table.base);
  EXPECT_EQ(decide(table.here, kEarly).kind, Kind::kWait);
  EXPECT_EQ(decide(table.here, kLate).kind, Kind::kPropose)
      << "it is too late for who answers and doesn't come";
  table.is_gone(4);
  const Decision decision = decide(table.here, kEarly);
  ASSERT_EQ(decision.kind, Kind::kPropose);
  EXPECT_EQ(decision.proposal.view.ids(), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(decision.proposal.view.epoch, 3U);
  EXPECT_EQ(decision.proposal.gone, (Left{{4, "its process has ended"}}));
}

TEST(Decide, YieldsToAMemberWithALowerIdThatAnswers) {
  Table table(1, {2, 3, 4});
  table.answers(0, table.base);
  EXPECT_EQ(decide(table.here, kEarly).kind, Kind::kYield);
  table.here.given_up.insert(0);
  EXPECT_EQ(decide(table.here, kLate).kind, Kind::kPropose);
}

TEST(Decide, IsToldThatOthersWentOn) {
  Table table(1, {});
  for (const int id : {2, 3, 4}) table.is_gone(id);
  table.answers(0, view_of(5, {0, 2, 3}));
  const Decision decision = decide(table.here, kEarly);
  EXPECT_EQ(decision.kind, Kind::kExcluded);
  EXPECT_EQ(decision.epoch, 5U);
}

TEST(Decide, GivesUpWithoutAQuorumWhenTheTimeIsOver) {
  Table table(1, {2});
  for (const int id : {0, 3, 4}) table.is_gone(id);
  EXPECT_EQ(decide(table.here, kEarly).kind, Kind::kWait);
  const Decision decision = decide(table.here, kOver);
  ASSERT_EQ(decision.kind, Kind::kGiveUp);
  EXPECT_EQ(
      decision.why,
      "the members did not agree on who goes on within 60 s: members [1, 2] are there, and more than half of "
      "the last epoch's members, or half with the lowest id, must be there (member 0: its process has ended; "
      "member 3: its process has ended; member 4: its process has ended)");
  table.here.at_least = 2;
  EXPECT_EQ(decide(table.here, kEarly).kind, Kind::kPropose);
}

TEST(Decide, MembersThatLeftAreNotCounted) {
  Table table(3, {4});
  table.here.left = {{0, "it left"}, {1, "it left"}};
  table.is_gone(2);
  const Decision decision = decide(table.here, kEarly);
  ASSERT_EQ(decision.kind, Kind::kPropose);
  EXPECT_EQ(decision.proposal.gone.at(0), "it left");
}

TEST(Decide, ThoseOfAnotherStepAreTurnedAway) {
  Table table(0, {1, 2, 3, 4});
  table.here.callers.at(3).steps = 8;
  Decision decision = decide(table.here, kEarly);
  ASSERT_EQ(decision.kind, Kind::kPropose);
  EXPECT_EQ(decision.proposal.turned_away, Ids{3});
  for (const int id : {1, 2, 4}) table.here.callers.at(id).steps = 8;
  EXPECT_EQ(decide(table.here, kEarly).kind, Kind::kExcluded);
}

TEST(Decide, OfTwoThatCannotConnectTheHigherGoes) {
  Table table(0, {1, 2, 3, 4});
  table.here.callers.at(1).blamed = {4};
  EXPECT_EQ(decide(table.here, kEarly).proposal.view.ids(), (Ids{0, 1, 2, 3}));
}

TEST(Decide, TheEpochIsAboveAllThatWerePromised) {
  Table table(0, {1, 2, 3, 4});
  table.here.callers.at(2).promised = 8;
  table.here.callers.at(4).tried.push_back(view_of(6, {0, 1, 2, 3, 4}));
  EXPECT_EQ(decide(table.here, kEarly).proposal.view.epoch, 9U);
}

TEST(Decide, AsManyJoinAsThereAreMembers) {
  Table table(0, {1, 2});
  for (const int id : {3, 4}) table.is_gone(id);
  for (std::uint16_t port = 1; port <= 5; ++port) table.here.joiners.push_back({"127.0.0.1", port});
  const Decision decision = decide(table.here, kEarly);
  ASSERT_EQ(decision.kind, Kind::kPropose);
  EXPECT_EQ(decision.proposal.joiners, 3U);
  EXPECT_EQ(decision.proposal.view.ids(), (Ids{0, 1, 2, 10, 11, 12}));
  EXPECT_EQ(decision.proposal.view.next_id, 13);
  EXPECT_TRUE(decision.proposal.view.is_consistent());
}

TEST(Decide, LostResidualsHaveTheMeanSquareOfTheKeptOnes) {
  Table table(0, {1, 2, 3});
  table.is_gone(4);
  table.here.own.residual = 4;
  for (auto& [id, state] : table.here.callers) state.residual = 4;
  const Decision decision = decide(table.here, kEarly);
  EXPECT_DOUBLE_EQ(decision.proposal.residual_kept, 4);
  EXPECT_DOUBLE_EQ(decision.proposal.residual_lost, 2);
}

}  // namespace
}  // namespace deltawire::elastic::decision_test
