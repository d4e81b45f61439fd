// When the pieces of `direct` leave, without messages.
#include "reduce/patterns/direct_rounds.h"

#include <gtest/gtest.h>

namespace deltawire::direct_rounds_test {
namespace {

constexpr std::uint64_t kPiece = 100000;  // elements
constexpr std::uint64_t kBytes = 4 * kPiece;

using Pieces = std::vector<std::pair<std::size_t, std::size_t>>;

class Rounds : public ::testing::Test {
 protected:
  // Rank 1 of three; owner 2 has nothing.
  void plan(DirectRounds& which, std::size_t count) const {
    which.plan(1, {count, count, 0});
    note_pushes(which, count);
  }
  static void note_pushes(DirectRounds& which, std::size_t count) {
    for (std::size_t round = 0; round < count; ++round) {
      which.note_push(round, kBytes / 2);
      which.note_push(round, kBytes);
      which.note_push(round, 1);
    }
  }
  static Pieces push_all(DirectRounds& which) {
    Pieces pushed;
    while (which.is_pushing()) {
      const DirectRounds::Piece next = which.next_push();
      if (which.exists(next)) pushed.emplace_back(next.owner, next.piece);
    }
    return pushed;
  }
  // As many rounds as may open now.
  static std::size_t open_all(DirectRounds& which, bool is_oldest) {
    std::size_t opened = 0;
    while (which.may_open(is_oldest)) {
      which.open();
      push_all(which);
      ++opened;
    }
    return opened;
  }
  static void note_means(DirectRounds& which) {
    which.note_mean(0);
    which.note_mean(1);
  }

  std::shared_ptr<PieceWindow> window = std::make_shared<PieceWindow>(kPiece);
  DirectRounds rounds{window};
};

TEST_F(Rounds, EachRoundPushesToTheNextRankFirstAndToItselfLast) {
  plan(rounds, 2);
  ASSERT_TRUE(rounds.may_open(false));
  EXPECT_EQ(rounds.open(), 0u);
  EXPECT_FALSE(rounds.may_open(false)) << "the first is still being pushed";
  EXPECT_EQ(push_all(rounds), (Pieces{{0, 0}, {1, 0}})) << "owner 2 has no piece";
  EXPECT_EQ(rounds.open(), 1u);
  EXPECT_EQ(push_all(rounds), (Pieces{{0, 1}, {1, 1}}));
  EXPECT_FALSE(rounds.may_open(false)) << "there are no more";
  DirectRounds full(window);
  full.plan(1, {1, 1, 1});
  full.open();
  EXPECT_EQ(push_all(full), (Pieces{{2, 0}, {0, 0}, {1, 0}}));
}

TEST_F(Rounds, OpenWhileTheWindowHasRoom) {
  plan(rounds, 6);
  EXPECT_TRUE(rounds.take_turns());
  EXPECT_EQ(open_all(rounds, false), 3u) << "full pieces";
  note_means(rounds);
  EXPECT_EQ(open_all(rounds, false), 1u);
  note_means(rounds);
  note_means(rounds);
  EXPECT_EQ(open_all(rounds, false), 2u);
}

// 8 ms of 125 bytes a microsecond are 2.5 pieces, 800 ms are cut at 32 MiB; two owners share them.
TEST_F(Rounds, ALongLineHoldsMoreOfThem) {
  plan(rounds, 200);
  rounds.fit_line(std::chrono::milliseconds(8));
  EXPECT_EQ(open_all(rounds, false), 4u);
  DirectRounds far(std::make_shared<PieceWindow>(kPiece));
  plan(far, 200);
  far.fit_line(std::chrono::milliseconds(800));
  EXPECT_EQ(open_all(far, false), 3u + (std::size_t{16} << 20) / kBytes);
}

TEST_F(Rounds, AllFitIntoTheWindowOrTakeTurns) {
  plan(rounds, 6);
  EXPECT_TRUE(rounds.take_turns());
  plan(rounds, 3);
  EXPECT_FALSE(rounds.take_turns());
}

TEST_F(Rounds, TheOldestBucketMayAlwaysHaveTwo) {
  DirectRounds younger(window);
  plan(younger, 4);
  EXPECT_EQ(open_all(younger, false), 3u);
  plan(rounds, 5);
  EXPECT_FALSE(rounds.may_open(false));
  EXPECT_EQ(open_all(rounds, true), 2u);
  note_means(rounds);
  EXPECT_EQ(open_all(rounds, true), 1u);
}

TEST_F(Rounds, ARoundClosesWhenAllItsMeansAreHere) {
  plan(rounds, 6);
  ASSERT_EQ(open_all(rounds, false), 3u);
  EXPECT_TRUE(rounds.has_next(0));
  EXPECT_FALSE(rounds.has_next(2));
  rounds.note_mean(0);
  rounds.note_mean(0);
  EXPECT_EQ(rounds.next_mean(0), 2u);
  EXPECT_EQ(open_all(rounds, false), 0u) << "owner 1's mean is missing";
  rounds.note_mean(1);
  EXPECT_EQ(open_all(rounds, false), 1u);
}

TEST_F(Rounds, MeansAreAwaitedOfOpenRoundsOnly) {
  plan(rounds, 2);
  EXPECT_FALSE(rounds.has_next(0));
  rounds.open();
  EXPECT_TRUE(rounds.has_next(0));
  rounds.note_mean(0);
  EXPECT_FALSE(rounds.has_next(0));
}

TEST_F(Rounds, AreOverWhenAllAreClosed) {
  plan(rounds, 2);
  open_all(rounds, false);
  note_means(rounds);
  EXPECT_FALSE(rounds.all_closed());
  note_means(rounds);
  EXPECT_TRUE(rounds.all_closed());
  rounds.restart();
  EXPECT_FALSE(rounds.all_closed()) << "for the next bucket";
  note_pushes(rounds, 2);
  EXPECT_EQ(open_all(rounds, false), 2u);
}

TEST_F(Rounds, OfAnEmptyBucketAreOverAtOnce) {
  plan(rounds, 0);
  EXPECT_FALSE(rounds.may_open(true));
  EXPECT_TRUE(rounds.all_closed());
}

TEST_F(Rounds, WhatWasNotPushedIsKnown) {
  plan(rounds, 2);
  const auto left = [&] {
    Pieces pieces;
    rounds.each_unpushed(
        [&](const DirectRounds::Piece& piece) { pieces.emplace_back(piece.owner, piece.piece); });
    return pieces;
  };
  EXPECT_EQ(left(), (Pieces{{0, 0}, {1, 0}, {0, 1}, {1, 1}}));
  rounds.open();
  EXPECT_EQ(left(), (Pieces{{0, 0}, {1, 0}, {0, 1}, {1, 1}}));
  rounds.next_push();  // owner 2
  rounds.next_push();  // owner 0
  EXPECT_EQ(left(), (Pieces{{1, 0}, {0, 1}, {1, 1}}));
  push_all(rounds);
  EXPECT_EQ(left(), (Pieces{{0, 1}, {1, 1}}));
}

TEST_F(Rounds, ThatAreDroppedLeaveTheirRoom) {
  {
    DirectRounds dropped(window);
    plan(dropped, 4);
    open_all(dropped, false);
    note_means(dropped);
    EXPECT_FALSE(window->has_room(2 * kBytes));
  }
  EXPECT_TRUE(window->has_room(window->most_bytes()));
}

}  // namespace
}  // namespace deltawire::direct_rounds_test
