// Saved matrices, and bytes that are none.
#include "reduce/patterns/factor_store.h"

#include <bit>
#include <limits>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/refusal_testing.h"

namespace deltawire::factor_store_test {
namespace {

constexpr std::uint32_t kRank = 2;
constexpr low_rank::Shape kShape{5, 9, kRank};
using State = std::vector<std::byte>;

FactorStore new_store(Revert revert = Revert::kFold) {
  return FactorStore(kRank, revert, std::make_shared<MemoryMeter>());
}

// A step of two matrices that counts.
FactorStore filled(Revert revert = Revert::kFold) {
  FactorStore store = new_store(revert);
  std::vector<float> values(kShape.elements(), 1.5F);
  for (const char* name : {"b", "a"}) {
    const Named tensor{name, {values.data(), values.size(), DType::kF32}};
    FactorStore::Matrix& matrix = **store.obtain(tensor, kShape);
    matrix.in_step = true;
    EXPECT_TRUE(store.take_in(matrix, values.data(), 2.0F));
    matrix.step.p.assign(kShape.p_elements(), 0.5F);
    matrix.step.q.assign(kShape.q_elements(), 0.25F);
    matrix.next_start.assign(kShape.q_elements(), -0.75F);
    matrix.has_next_start = true;
  }
  store.commit();
  return store;
}

// Where things lie: the head, then "a", then "b", each with a head, a name, what waits and Q.
constexpr std::size_t kHead = 28;
constexpr std::size_t kMatrix = 24 + 1 + 4 * (45 + 18);

template <class T>
State with(State state, std::size_t at, T value) {
  store_le<T>(state.data() + at, value);
  store_le<std::uint32_t>(state.data() + state.size() - 4, crc32c(Bytes(state).first(state.size() - 4)));
  return state;
}

void expect_refused(const State& state, ErrorCode code, const std::string& text) {
  FactorStore store = filled();
  const State before = store.save();
  testing::expect_refused(store.load(state), code, text);
  EXPECT_TRUE(store.save() == before);
}

TEST(FactorState, GoesThereAndBack) {
  const State state = filled().save();
  EXPECT_EQ(state.size(), kHead + 2 * kMatrix + 4);
  // 1.5, less twice 0.5 * 0.25.
  EXPECT_EQ(std::bit_cast<float>(load_le<std::uint32_t>(state.data() + kHead + 25)), 1.25F);
  EXPECT_EQ(std::bit_cast<float>(load_le<std::uint32_t>(state.data() + kHead + 25 + 4 * 45)), -0.75F);
  EXPECT_EQ(state[kHead + 24], std::byte{'a'});
  for (const Revert revert : {Revert::kFold, Revert::kExact}) {
    FactorStore store = new_store(revert);
    State longer = state;
    longer.resize(state.size() + 7);  // what follows is somebody else's
    const auto loaded = store.load(longer);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(*loaded, state.size());
    EXPECT_TRUE(store.save() == state);
  }
}

TEST(FactorState, CutOrChangedIsRefused) {
  const State state = filled().save();
  for (std::size_t length = 0; length < state.size(); ++length) {
    FactorStore store = new_store();
    testing::expect_refused(store.load(Bytes(state).first(length)), ErrorCode::kTruncated);
  }
  for (std::size_t at = 0; at < state.size(); ++at) {
    State changed = state;
    changed[at] ^= std::byte{0x10};
    FactorStore store = new_store();
    EXPECT_FALSE(store.load(changed)) << at;
  }
}

// Bytes whose checksum is right.
TEST(FactorState, LiesAreRefused) {
  const State state = filled().save();
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  constexpr auto kHuge = std::uint64_t{1} << 62;
  expect_refused(with<std::uint32_t>(state, 0, 0), ErrorCode::kCorrupt, "wrong magic");
  expect_refused(with<std::uint32_t>(state, 8, 0), ErrorCode::kUnsupportedVersion, "format 0");
  expect_refused(with<std::uint32_t>(state, 8, 2), ErrorCode::kUnsupportedVersion, "newer");
  expect_refused(with<std::uint32_t>(state, 12, 3), ErrorCode::kMismatch, "rank=3");
  expect_refused(with<std::uint64_t>(state, 16, 31), ErrorCode::kCorrupt, "contradicts");
  expect_refused(with<std::uint64_t>(state, 16, state.size() + 1), ErrorCode::kTruncated, "end within");
  expect_refused(with<std::uint32_t>(state, 24, 1), ErrorCode::kCorrupt, "after the last");
  expect_refused(with<std::uint32_t>(state, 24, 3), ErrorCode::kTruncated, "end within");
  expect_refused(with<std::uint32_t>(state, kHead, 0xFFFFFFFF), ErrorCode::kTruncated, "end within");
  for (const std::uint64_t number : {kHuge, std::uint64_t{1000}}) {
    expect_refused(with<std::uint64_t>(state, kHead + 4, number), ErrorCode::kTruncated, "end within");
    expect_refused(with<std::uint64_t>(state, kHead + 12, number), ErrorCode::kTruncated, "end within");
  }
  expect_refused(with<std::uint64_t>(state, kHead + 4, 1), ErrorCode::kCorrupt, "no matrix");
  expect_refused(with<std::uint64_t>(state, kHead + 12, 0), ErrorCode::kCorrupt, "no matrix");
  for (const float scale : {0.0F, -1.0F, std::numeric_limits<float>::infinity()}) {
    expect_refused(with<std::uint32_t>(state, kHead + 20, bits(scale)), ErrorCode::kCorrupt, "legal scale");
  }
  expect_refused(with<std::uint8_t>(state, kHead + kMatrix + 24, 'a'), ErrorCode::kCorrupt, "twice");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  expect_refused(with<std::uint32_t>(state, kHead + 25 + 8, bits(nan)), ErrorCode::kCorrupt, "not finite");
  expect_refused(with<std::uint32_t>(state, kHead + 25 + 4 * 45, bits(0x1p122F)), ErrorCode::kCorrupt,
                 "too large");
}

TEST(FactorStore, CountsItsMemory) {
  for (const Revert revert : {Revert::kFold, Revert::kExact}) {
    const auto meter = std::make_shared<MemoryMeter>();
    {
      FactorStore store(kRank, revert, meter);
      std::vector<float> values(kShape.elements());
      ASSERT_TRUE(store.obtain({"a", {values.data(), values.size(), DType::kF32}}, kShape));
      const std::uint64_t copies = revert == Revert::kExact ? 2 : 1;
      EXPECT_EQ(meter->held(MemoryMeter::Use::kResiduals), 4 * (copies * 45 + 2 * 10 + 4 * 18));
    }
    EXPECT_EQ(meter->held(MemoryMeter::Use::kResiduals), 0u);
  }
}

}  // namespace
}  // namespace deltawire::factor_store_test
