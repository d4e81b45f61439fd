// Channel::load_weighted: sums, cuts and what is refused.

#include <limits>
#include <string>
#include <vector>

#include "channel/channel_state.h"
#include "channel/channel_testing.h"

namespace deltawire::testing::weighted_residuals_test {
namespace {

struct Kept {
  std::string name;
  std::uint64_t first = 0;
  Values values;
  float scale = 1.0F;
  Values velocity = {};
  float velocity_scale = 1.0F;
};

constexpr std::uint64_t kHash = 7;

std::vector<std::byte> state_of(const std::vector<Kept>& parts) {
  ResidualStore store;
  for (const Kept& part : parts) {
    Values values(part.values.size());
    ResidualStore::Entry& entry =
        **store.obtain({part.name, {values.data(), values.size(), DType::kF32}, part.first});
    entry.values = part.values;
    entry.scale = part.scale;
    if (!part.velocity.empty()) entry.velocity.load(part.velocity, part.velocity_scale);
  }
  return save_residuals(store, kHash);
}

Named range(std::string_view name, std::uint64_t first, std::uint64_t count) {
  return {name, {nullptr, count, DType::kF32}, first};
}

struct Added {
  Status status;
  ResidualStore store;

  Values values(std::string_view name, std::uint64_t first) const {
    const auto* entry = store.find({name, {}, first});
    return entry == nullptr ? Values{} : entry->values;
  }
};

Added add(const std::vector<std::pair<std::vector<Kept>, double>>& saved, const std::vector<Named>& tensors,
          const std::vector<Named>& parts) {
  std::vector<std::vector<std::byte>> states;
  for (const auto& [kept, weight] : saved) states.push_back(state_of(kept));
  std::vector<WeightedState> weighted;
  for (std::size_t i = 0; i < states.size(); ++i) weighted.push_back({states[i], saved[i].second});
  Added added;
  added.status = add_weighted(weighted, {tensors, parts}, kHash, added.store);
  return added;
}

TEST(WeightedResiduals, AreWeighedSummedAndCutAnew) {
  const Added added = add({{{{"w", 0, {1, 2, 3}}, {"w", 3, {4, 5}}}, 0.5}, {{{"w", 3, {10, 20}}}, 2}},
                          {range("w", 0, 8)}, {range("w", 0, 2), range("w", 2, 2), range("w", 4, 4)});
  ASSERT_TRUE(added.status);
  EXPECT_EQ(added.values("w", 0), (Values{0.5F, 1}));
  EXPECT_EQ(added.values("w", 2), (Values{1.5F, 22}));
  EXPECT_EQ(added.values("w", 4), (Values{42.5F, 0, 0, 0}));
}

TEST(WeightedResiduals, PartsThatNothingIsKeptOfGetNone) {
  const Added added =
      add({{{{"w", 0, {1}}}, 1}}, {range("w", 0, 4), range("v", 0, 4)}, {range("w", 1, 3), range("v", 0, 4)});
  ASSERT_TRUE(added.status);
  EXPECT_TRUE(added.store.sorted().empty());
}

TEST(WeightedResiduals, FollowTheScaleOfTheFirst) {
  const Added added = add({{{{"w", 0, {8}, 4, {2}, 2}}, 1}, {{{"w", 0, {1}, 1, {24}, 8}}, 1}},
                          {range("w", 0, 1)}, {range("w", 0, 1)});
  ASSERT_TRUE(added.status);
  const ResidualStore::Entry& entry = *added.store.find({"w", {}, 0});
  EXPECT_EQ(entry.scale, 4.0F);
  EXPECT_EQ(entry.values, (Values{8 + 4}));
  EXPECT_EQ(entry.velocity.scale(), 2.0F);
  EXPECT_EQ(entry.velocity.values()[0], 2.0F + 6.0F);
}

TEST(WeightedResiduals, AreRoundedOnce) {
  const float small = 0x1p-24F;
  const Added added = add({{{{"w", 0, {1}}}, 1}, {{{"w", 0, {small}}}, 1}, {{{"w", 0, {small}}}, 1}},
                          {range("w", 0, 1)}, {range("w", 0, 1)});
  EXPECT_EQ(added.values("w", 0), (Values{1 + 0x1p-23F}));
}

TEST(WeightedResiduals, OfOtherTensorsAreRefused) {
  for (const Kept& kept : {Kept{"v", 0, {1}}, Kept{"w", 2, {1}}, Kept{"w", 0, {1, 2, 3}},
                           Kept{"w", std::numeric_limits<std::uint64_t>::max(), {1}}}) {
    const Added added = add({{{kept}, 1}}, {range("w", 0, 2)}, {range("w", 0, 2)});
    ASSERT_FALSE(added.status);
    EXPECT_EQ(added.status.error().code, ErrorCode::kMismatch);
    EXPECT_NE(added.status.error().message.find("'" + kept.name + "'"), std::string::npos);
  }
}

TEST(WeightedResiduals, OverlapsAndSumsThatAreNoNumbersAreRefused) {
  const std::vector<Named> whole{range("w", 0, 4)};
  EXPECT_EQ(add({{{{"w", 0, {1, 2}}, {"w", 1, {1, 2}}}, 1}}, whole, whole).status.error().code,
            ErrorCode::kCorrupt);
  const float most = std::numeric_limits<float>::max();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(add({{{{"w", 0, {most}}}, 2}}, whole, whole).status.error().code, ErrorCode::kRange);
  EXPECT_EQ(add({{{{"w", 0, {nan}}}, 1}}, whole, whole).status.error().code, ErrorCode::kRange);
  EXPECT_EQ(add({{{{"w", 0, {1}, 1, {nan}}}, 1}}, whole, whole).status.error().code, ErrorCode::kRange);
}

TEST(WeightedResiduals, AreLoadedBetweenStepsOnly) {
  const auto open = channel("3lc");
  Values values{1, 2};
  ASSERT_TRUE(open->encode(std::vector<Named>{named("w", values)}, step_id(0)));
  EXPECT_EQ(open->load_weighted({}, {}).error().code, ErrorCode::kState);
}

}  // namespace
}  // namespace deltawire::testing::weighted_residuals_test
