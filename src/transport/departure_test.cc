// Optional ranks, between threads: what ends when one departs, and what continues.
#include <ctime>

#include "base/refusal_testing.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::departure_test {
namespace {

constexpr int kOptional[] = {2, 3};

class Departures : public ::testing::TestWithParam<MeshKind> {};
INSTANTIATE_TEST_SUITE_P(Meshes, Departures, ::testing::ValuesIn(tested_meshes()), mesh_kind_name);

// Ranks 0 and 1 are required, 2 and 3 optional.
Ranks connect(MeshKind kind) {
  Ranks ranks = connect_ranks(kind, 4);
  for (const auto& rank : ranks) rank->set_optional(kOptional);
  return ranks;
}

Result<std::uint64_t> receive(Transport& self, int from, Deadline deadline = soon()) {
  std::vector<std::byte> got(5000);
  return self.wait(self.post_recv(from, 1, got), deadline);
}

bool says(const Error& error, const std::string& part) {
  return error.text().find(part) != std::string::npos;
}

void expect_departed(Ranks& ranks, std::initializer_list<int> on, int departed, const std::string& why) {
  for (const int rank : on) {
    Transport& self = *ranks[static_cast<std::size_t>(rank)];
    for (int again = 0; again < 2; ++again) {
      const auto got = receive(self, departed);
      ASSERT_FALSE(got) << rank;
      EXPECT_TRUE(says(got.error(), why)) << rank << ": " << got.error().message;
    }
    const std::vector<std::byte> bytes(10);
    EXPECT_FALSE(self.wait(send_bytes(self, departed, 1, bytes), soon()));
    ASSERT_TRUE(self.departure_of(departed));
    EXPECT_TRUE(says(*self.departure_of(departed), why));
  }
}

void expect_to_go_on(Ranks& ranks, std::initializer_list<int> all) {
  const std::vector<std::byte> bytes = pattern(5000, 1);
  for (const int from : all) {
    for (const int to : all) {
      if (from == to) continue;
      send_and_forget(*ranks[static_cast<std::size_t>(from)], to, 1, bytes);
      const auto got = receive(*ranks[static_cast<std::size_t>(to)], from);
      ASSERT_TRUE(got) << from << " to " << to << ": " << got.error().message;
      EXPECT_EQ(*got, 5000U);
    }
  }
}

void expect_dropped(Transport& self, const std::string& why) {
  const auto failed = receive(self, 0);
  ASSERT_FALSE(failed);
  EXPECT_TRUE(says(failed.error(), "has dropped rank 3, this one")) << failed.error().message;
  EXPECT_TRUE(says(failed.error(), why)) << failed.error().message;
  EXPECT_EQ(failed.error().suspect, 3);
}

TEST_P(Departures, AnAbortOfAnOptionalRankEndsThatRankAlone) {
  Ranks ranks = connect(GetParam());
  ranks[3]->abort({ErrorCode::kNotFinite, "a gradient is NaN", kNoSuspect});
  expect_departed(ranks, {0, 1, 2}, 3, "a gradient is NaN");
  EXPECT_EQ(ranks[0]->departure_of(3)->suspect, 3);
  EXPECT_FALSE(ranks[0]->departure_of(2));
  expect_to_go_on(ranks, {0, 1, 2});
  EXPECT_EQ(receive(*ranks[3], 0).error().code, ErrorCode::kNotFinite);
}

TEST_P(Departures, ARequiredRankEndsAll) {
  Ranks ranks = connect(GetParam());
  ranks[1]->abort({ErrorCode::kAborted, "enough", kNoSuspect});
  for (const std::size_t rank : {0U, 2U, 3U}) {
    const auto failed = receive(*ranks[rank], rank == 0 ? 2 : 0);
    ASSERT_FALSE(failed);
    EXPECT_TRUE(says(failed.error(), "rank 1 reports: enough")) << failed.error().message;
    EXPECT_EQ(failed.error().suspect, 1);
  }
}

TEST_P(Departures, ARankDroppedByARequiredOneDepartsEverywhereAndIsTold) {
  Ranks ranks = connect(GetParam());
  ranks[0]->drop(3, {ErrorCode::kCorrupt, "its bytes make no sense", 3});
  expect_departed(ranks, {0, 1, 2}, 3, "its bytes make no sense");
  expect_dropped(*ranks[3], "its bytes make no sense");
  expect_to_go_on(ranks, {0, 1, 2});
}

TEST_P(Departures, AnOptionalRankDropsNobodyButItself) {
  Ranks ranks = connect(GetParam());
  ranks[2]->drop(3, {ErrorCode::kCorrupt, "I say so", 3});
  expect_departed(ranks, {0, 1, 3}, 2, "I say so");
  expect_to_go_on(ranks, {0, 1, 3});
}

// Rank 0 waits for rank 3, and rank 2 for rank 0: rank 2's own deadline passes, but it must not fail.
TEST_P(Departures, ADeadlineDropsWhomItBlamesAndGivesOthersTheirTimeAgain) {
  Ranks ranks = connect(GetParam());
  std::thread other([&] {
    const auto got = receive(*ranks[2], 0, in(2500ms));
    EXPECT_TRUE(got) << got.error().message;
  });
  const auto blamed = receive(*ranks[0], 3, in(2500ms));
  testing::expect_refused(blamed, ErrorCode::kTimeout);
  EXPECT_EQ(blamed.error().suspect, 3);
  std::this_thread::sleep_for(500ms);
  send_and_forget(*ranks[0], 2, 1, pattern(5000, 1));
  other.join();
  expect_dropped(*ranks[3], "rank 0 waited");
  expect_to_go_on(ranks, {0, 1, 2});
}

TEST_P(Departures, WhoLeavesWhileItIsWaitedForDeparts) {
  Ranks ranks = connect(GetParam());
  std::vector<std::byte> one(10);
  std::vector<std::byte> two(10);
  const Handle handles[] = {ranks[0]->post_recv(2, 1, one), ranks[0]->post_recv(3, 1, two)};
  ranks[3].reset();
  ASSERT_TRUE(ranks[0]->wait_any(handles, soon()));  // it is not the first that counts
  const auto left = ranks[0]->wait(handles[1], soon());
  ASSERT_FALSE(left);
  EXPECT_TRUE(says(left.error(), "left in good order")) << left.error().message;
  EXPECT_FALSE(ranks[0]->done(handles[0]));
  const std::vector<std::byte> bytes(10);
  send_and_forget(*ranks[2], 0, 1, bytes);
  EXPECT_TRUE(ranks[0]->wait(handles[0], soon()));
  expect_to_go_on(ranks, {0, 1, 2});
}

TEST_P(Departures, BytesThatBreakTheRulesDropTheirSender) {
  Ranks ranks = connect(GetParam());
  std::vector<std::byte> small(10);
  const Handle receive_small = ranks[0]->post_recv(3, 1, small);
  send_and_forget(*ranks[3], 0, 1, pattern(5000, 1));
  testing::expect_refused(ranks[0]->wait(receive_small, soon()), ErrorCode::kLimit);
  expect_dropped(*ranks[3], "at most 10");
  expect_to_go_on(ranks, {0, 1, 2});
}

TEST_P(Departures, ThereAreNoVotes) {
  Ranks ranks = connect(GetParam());
  EXPECT_EQ(ranks[0]->vote({}, soon()).error().code, ErrorCode::kState);
  expect_to_go_on(ranks, {0, 1, 2, 3});
}

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST_P(Departures, NothingSpinsAfterIt) {
  Ranks ranks = connect(GetParam());
  send_and_forget(*ranks[3], 0, 1, std::vector<std::byte>(std::size_t{70} << 20));  // unclaimed
  ranks[0]->drop(3, {ErrorCode::kCorrupt, "enough", 3});
  expect_dropped(*ranks[3], "enough");
  const double before = cpu_seconds();
  std::this_thread::sleep_for(1s);
  EXPECT_LT(cpu_seconds() - before, 0.3);
}

}  // namespace
}  // namespace deltawire::test::departure_test
