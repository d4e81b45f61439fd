// What only groups have: who stands for whom, and what the lines between groups carry.
#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/float16.h"
#include "base/refusal_testing.h"
#include "reduce/forwarding_transport_testing.h"
#include "reduce/patterns/hierarchical_plan.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::hierarchical_test {
namespace {

TEST(RankGroups, EveryGroupOwnsEquallyManyLists) {
  for (const auto& [world, most, lists] :
       {std::array{8, 4, 4}, {128, 16, 16}, {64, 8, 8}, {12, 2, 6}, {16, 4, 4}}) {
    const RankGroups groups(world, most);
    ASSERT_EQ(groups.lists(), static_cast<std::size_t>(lists)) << world;
    std::vector<int> of_group(static_cast<std::size_t>(groups.count()), 0);
    std::set<int> owners;
    for (std::size_t list = 0; list < groups.lists(); ++list) {
      owners.insert(groups.owner(list));
      ++of_group[static_cast<std::size_t>(groups.of(groups.owner(list)))];
    }
    EXPECT_EQ(owners.size(), groups.lists()) << "one for each";
    EXPECT_EQ(*std::ranges::max_element(of_group), *std::ranges::min_element(of_group)) << world;
  }
}

TEST(RankGroups, TheLastMayHaveFewer) {
  for (int world = 1; world <= 9; ++world) {
    for (int most = 1; most <= 10; ++most) {
      const RankGroups groups(world, most);
      int ranks = 0;
      for (int group = 0; group < groups.count(); ++group) {
        EXPECT_EQ(groups.first(group), ranks);
        ranks += groups.members(group);
        for (std::size_t list = 0; list < groups.lists(); ++list) {
          EXPECT_EQ(groups.of(groups.adder(group, list)), group);
          EXPECT_LT(groups.adder(group, list), ranks);
        }
      }
      EXPECT_EQ(ranks, world);
      for (std::size_t list = 0; list < groups.lists(); ++list) {
        const int owner = groups.owner(list);
        EXPECT_EQ(groups.adder(groups.of(owner), list), owner) << "it adds up its own group's";
      }
    }
  }
}

// Counts what leaves this rank's group.
class Line final : public ForwardingTransport {
 public:
  Line(Transport& transport, int members) : ForwardingTransport(transport), members_(members) {}
  Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) override {
    for (const Bytes piece : pieces)
      (peer / members_ == rank() / members_ ? within_ : between_) += piece.size();
    return ForwardingTransport::post_send(peer, tag, pieces);
  }
  std::uint64_t between() const noexcept { return between_; }
  std::uint64_t within() const noexcept { return within_; }

 private:
  int members_;
  std::uint64_t between_ = 0;
  std::uint64_t within_ = 0;
};

// Each of two sites sends every part once: its sum, or the mean. Not once for each of its ranks.
TEST(Hierarchical, ALineBetweenSitesCarriesAPartOnce) {
  constexpr std::size_t kCount = 320000;
  for (const int members : {2, 3}) {
    std::vector<std::uint64_t> between(static_cast<std::size_t>(2 * members), 0);
    run_ranks(2 * members, {}, [&](int rank, Transport& transport) {
      Line line(transport, members);
      const auto reducer = reducer_of("hierarchical:group=" + std::to_string(members) + "(bf16)");
      std::vector<float> values(kCount, static_cast<float>(rank));
      const Named tensor{"w", {values.data(), kCount, DType::kF32}, 0};
      const auto report = reducer->all_reduce(std::span(&tensor, 1), {0, 0, true}, line, in_seconds(20));
      ASSERT_TRUE(report) << report.error().message;
      between[static_cast<std::size_t>(rank)] = line.between();
      EXPECT_EQ(report->bytes_sent, line.between() + line.within());
      EXPECT_EQ(values.front(), static_cast<float>(2 * members - 1) / 2);
    });
    const auto all = std::accumulate(between.begin(), between.end(), std::uint64_t{0});
    EXPECT_NEAR(static_cast<double>(all), 2.0 * 2 * kCount, 0.02 * kCount)
        << "two bytes a value, there and back";
  }
}

// Within a group in their own 16 bits, and means and residuals as those of the same values in float32.
TEST(Hierarchical, SixteenBitsTakeHalfWithinAGroup) {
  constexpr std::size_t kCount = 20000;
  run_ranks(4, {}, [](int rank, Transport& transport) {
    std::vector<float> wide(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      wide[i] = static_cast<float>((i * 7 + i / 31) % 97) + static_cast<float>(rank);
    }
    std::vector<std::uint16_t> half(kCount);
    narrow(wide.data(), kCount, DType::kBF16, reinterpret_cast<std::byte*>(half.data()));
    std::array<Report, 2> reports;
    const auto reduce = [&](void* values, DType dtype, Report& report, std::uint64_t step) {
      const auto reducer = reducer_of("hierarchical:group=2(3lc)");
      const Named tensor{"w", {values, kCount, dtype}, 0};
      const auto done =
          reducer->all_reduce(std::span(&tensor, 1), {step, 0, true}, transport, in_seconds(20));
      ASSERT_TRUE(done) << done.error().message;
      report = *done;
    };
    reduce(half.data(), DType::kBF16, reports[0], 0);
    reduce(wide.data(), DType::kF32, reports[1], 1);
    EXPECT_EQ(reports[0].digest, reports[1].digest);
    EXPECT_NEAR(static_cast<double>(reports[1].bytes_sent - reports[0].bytes_sent), kCount, 0.02 * kCount);
  });
}

TEST(Hierarchical, NamesGroupAndCodecWithinInItsSpec) {
  EXPECT_EQ(reducer_of("hierarchical:group=8(sbc:p=1%)")->spec(),
            "hierarchical:group=8,within=fp32(" + reducer_of("gather(sbc:p=1%)")->spec().substr(7));
  const std::string spec = reducer_of("hierarchical:within=bf16,group=2(3lc)")->spec();
  EXPECT_EQ(reducer_of(spec)->spec(), spec);
}

TEST(Hierarchical, RefusesWhatItCannotDo) {
  const struct {
    const char* spec;
    const char* words;
  } kRefused[] = {{"hierarchical(3lc)", "hierarchical:group=8(3lc)"},
                  {"hierarchical:group=0(3lc)", "whole number"},
                  {"hierarchical:group=2x(3lc)", "whole number"},
                  {"hierarchical:group=2,within=3lc(3lc)", "without error feedback"},
                  {"hierarchical:group=2,within=fp8:format=e4m3(3lc)", "name of a codec"},
                  {"hierarchical:group=2,size=3(3lc)", "it has group and within"},
                  {"hierarchical:group=2(rest sbc with momentum=0.9)", "sums of groups"}};
  for (const auto& [spec, words] : kRefused) {
    testing::expect_refused(make_reducer(spec), ErrorCode::kInvalidArgument, words);
  }
  EXPECT_FALSE(make_reducer("hierarchical:group=2(3lc)", folding()));
  std::vector<float> momentum(10);
  const auto reducer = reducer_of("hierarchical:group=2(sbc)");
  EXPECT_EQ(reducer->mask_sent("w", momentum).error().code, ErrorCode::kInvalidArgument);
}

// Residuals of other groups' sums would stay for ever.
TEST(Hierarchical, AStateIsOfItsGroups) {
  const auto state = reducer_of("hierarchical:group=2(3lc)")->save();
  ASSERT_TRUE(state);
  EXPECT_TRUE(reducer_of("hierarchical:group=2,within=bf16(3lc)")->load(*state));
  EXPECT_EQ(reducer_of("hierarchical:group=3(3lc)")->load(*state).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deltawire::hierarchical_test
