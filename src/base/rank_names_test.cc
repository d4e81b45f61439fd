#include "deltawire/rank_names.h"

#include <array>

#include <gtest/gtest.h>

namespace deltawire {
namespace {

const RankNames kRow{"global rank", {1, 3, 8}};

TEST(RankNames, OfAWholeJobAreItsRanks) {
  const RankNames& plain = RankNames::plain();
  EXPECT_EQ(plain.of(2), "rank 2");
  EXPECT_EQ(plain.of(std::array{0, 2}), "ranks 0, 2");
  EXPECT_EQ(plain.number_of(2), 2);
  EXPECT_EQ(plain.rank_of(2), 2);
  EXPECT_TRUE(plain.has(2, 3));
  EXPECT_FALSE(plain.has(3, 3)) << "there is nobody outside";
  EXPECT_FALSE(plain.has(kNoRank, 3));
}

TEST(RankNames, OfAPartOfAJobAreTheJobs) {
  EXPECT_EQ(kRow.of(1), "global rank 3");
  EXPECT_EQ(kRow.of(std::array{2}), "global rank 8");
  EXPECT_EQ(kRow.of(std::array{0, 1}), "global ranks 1, 3");
}

TEST(RankNames, ANumberOutsideComesBack) {
  for (const int number : {0, 1, 2, 3, 8, 9, 1000}) EXPECT_EQ(kRow.number_of(kRow.rank_of(number)), number);
  EXPECT_EQ(kRow.rank_of(8), 2);
  EXPECT_GE(kRow.rank_of(2), 3) << "no rank of this mesh";
  EXPECT_TRUE(kRow.has(kRow.rank_of(2), 3));
  EXPECT_EQ(kRow.number_of(kNoRank), kNoRank);
  EXPECT_EQ(kRow.rank_of(kNoRank), kNoRank);
}

TEST(RankNames, AllFieldsOfAnErrorAreMapped) {
  const Error ranks{
      .code = ErrorCode::kTimeout, .suspect = 2, .reporter = 0, .waits_for = 1, .ranks = {1, 2}};
  Error error = ranks;
  kRow.to_numbers(error);
  EXPECT_EQ(
      error,
      (Error{.code = ErrorCode::kTimeout, .suspect = 8, .reporter = 1, .waits_for = 3, .ranks = {3, 8}}));
  kRow.to_ranks(error);
  EXPECT_EQ(error, ranks);
}

TEST(RankNames, AnErrorNamesWhoReportsItOnce) {
  const Error error = kRow.reported(1, {ErrorCode::kNotFinite, "rank 1.w is NaN", 0});
  EXPECT_EQ(error.message, "global rank 3 reports: rank 1.w is NaN");
  EXPECT_EQ(error.reporter, 1);
  EXPECT_EQ(kRow.reported(2, error), error);
}

TEST(RankNames, ThereIsOneForEachRank) {
  EXPECT_TRUE(RankNames::plain().fit(5));
  EXPECT_TRUE(kRow.fit(3));
  EXPECT_FALSE(kRow.fit(2));
  EXPECT_FALSE(kRow.fit(4));
  EXPECT_FALSE((RankNames{"rank", {1, 1}}.fit(2)));
  EXPECT_FALSE((RankNames{"rank", {-1, 1}}.fit(2)));
  EXPECT_FALSE((RankNames{"rank", {0, 1 << 30 | 1}}.fit(2)));
}

}  // namespace
}  // namespace deltawire
