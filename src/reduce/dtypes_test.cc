// Tensors of 16 bits go through every pattern as the float32 tensors of the same values do, bit for bit:
// what travels, what waits and what is voted on. Only what is handed over is rounded, once. A codec that
// keeps no residual sends at most their own 16 bits, rounding sums and means where it must.
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/float16.h"
#include "base/float_environment.h"
#include "base/random.h"
#include "reduce/patterns/owners.h"
#include "reduce/patterns/ring_plan.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::dtypes_test {
namespace {

// Cut among the ranks; a matrix; below min_elements; all zeros; none.
struct Shape {
  const char* name;
  DType dtype;
  std::vector<std::uint64_t> dims;
  std::uint64_t count;
};
const std::vector<Shape> kTensors{
    {"conv", DType::kBF16, {50000}, 50000}, {"linear", DType::kF16, {40, 60}, 2400},
    {"norm", DType::kF32, {900}, 900},      {"bias", DType::kF32, {30}, 30},
    {"unused", DType::kF16, {500}, 500},    {"empty", DType::kBF16, {0}, 0}};

// One rank's tensors of a step, in their own dtypes or all as float32.
struct Tensors {
  Tensors(int rank, std::uint64_t step, bool widened) {
    const FloatEnvironment environment;
    for (const Shape& shape : kTensors) {
      CounterRng random(step * 100 + static_cast<std::uint64_t>(rank), shape.count);
      std::vector<float> values(shape.count);
      for (float& value : values) value = static_cast<float>(random.next_uniform() - 0.5);
      if (shape.name == std::string("unused")) values.assign(shape.count, 0.0F);
      std::vector<std::byte>& own = memory.emplace_back(values.size() * dtype_bytes(shape.dtype));
      EXPECT_EQ(narrow(values.data(), values.size(), shape.dtype, own.data()), values.size());
      if (widened) {
        widen(own.data(), shape.dtype, values.size(), values.data());
        own.resize(4 * values.size());
        if (!values.empty()) std::memcpy(own.data(), values.data(), own.size());
      }
      TensorSlot slot{own.data(), shape.count, widened ? DType::kF32 : shape.dtype};
      slot.dims = shape.dims;
      list.push_back({shape.name, slot, 0});
    }
  }

  std::vector<std::vector<std::byte>> memory;
  std::vector<Named> list;
};

Result<Report> reduce(Reducer& reducer, const std::vector<Named>& list, std::uint64_t step,
                      Transport& transport) {
  return reducer.all_reduce(list, {step, 0, true}, transport, in_seconds(20));
}

// Within three roundings of values below 1, and what gcomp cuts of them.
void expect_near(const std::vector<std::byte>& found, const std::vector<std::byte>& wanted, DType dtype) {
  const std::uint64_t count = found.size() / dtype_bytes(dtype);
  std::vector<float> values(count), means(count);
  widen(found.data(), dtype, count, values.data());
  widen(wanted.data(), dtype, count, means.data());
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_NEAR(values[i], means[i], 0.02);
}

class SixteenBits : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

INSTANTIATE_TEST_SUITE_P(Specs, SixteenBits,
                         ::testing::Combine(::testing::Values("direct(3lc)",
                                                              "direct(conv*: topk:k=0.1, rest int8)",
                                                              "direct(dgc)", "gather(sbc)", "ring(int8)"),
                                            ::testing::Values(2, 3)));

// Of these some or all parts have a codec without a residual.
class InTheirOwnBits : public SixteenBits {};

INSTANTIATE_TEST_SUITE_P(Specs, InTheirOwnBits,
                         ::testing::Combine(::testing::Values("direct(fp32)", "direct(gcomp)", "gather(fp32)",
                                                              "ring(fp32)", "ring(gcomp)", "powersgd:rank=2"),
                                            ::testing::Values(2, 3)));

// Float32 values, rounded to a tensor's type.
std::vector<std::byte> rounded(const void* values, const Shape& shape) {
  const FloatEnvironment environment;
  std::vector<std::byte> all(shape.count * dtype_bytes(shape.dtype));
  narrow(static_cast<const float*>(values), shape.count, shape.dtype, all.data());
  return all;
}

TEST_P(SixteenBits, AreWhatFloat32IsRoundedOnce) {
  const auto [spec, world] = GetParam();
  run_ranks(world, {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of(spec);
    const auto twin = reducer_of(spec);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Tensors own(rank, step, false);
      Tensors wide(rank, step, true);
      const auto report = reduce(*reducer, own.list, step, transport);
      ASSERT_TRUE(report) << report.error().message;
      const auto expected = reduce(*twin, wide.list, step, transport);
      ASSERT_TRUE(expected) << expected.error().message;
      EXPECT_EQ(report->digest, expected->digest);
      EXPECT_EQ(report->bytes_sent, expected->bytes_sent);
      for (std::size_t i = 0; i < kTensors.size(); ++i) {
        EXPECT_TRUE(own.memory[i] == rounded(wide.memory[i].data(), kTensors[i])) << kTensors[i].name;
      }
      EXPECT_TRUE(*reducer->save() == *twin->save()) << "residuals differ in step " << step;
    }
  });
}

// What ranks add up in turn, from the owner's neighbour on, and round whenever they send it.
std::vector<std::byte> ring_mean(std::size_t tensor, std::uint64_t step, int world) {
  const FloatEnvironment environment;
  const Shape& shape = kTensors[tensor];
  const float scale = 1.0F / static_cast<float>(world);
  std::vector<Tensors> ranks;
  for (int rank = 0; rank < world; ++rank) ranks.emplace_back(rank, step, true);
  std::vector<float> means(shape.count);
  for (const OwnedRange& range : owned_ranges(shape.name, shape.count, world, kRingMessageElements)) {
    for (int hop = 1; hop <= world; ++hop) {
      const auto rank = static_cast<std::size_t>((range.owner + hop) % world);
      const auto* values = reinterpret_cast<const float*>(ranks[rank].memory[tensor].data());
      for (std::uint64_t i = range.first; i < range.first + range.count; ++i) {
        std::array<std::byte, sizeof(float)> sent{};
        narrow(&means[i], 1, shape.dtype, sent.data());
        widen(sent.data(), shape.dtype, 1, &means[i]);
        means[i] = scale * values[i] + means[i];
      }
    }
  }
  return rounded(means.data(), shape);
}

TEST_P(InTheirOwnBits, AreTheMeanRoundedWhereItIsSent) {
  const auto [spec, world] = GetParam();
  const bool is_ring = std::string(spec).starts_with("ring");
  run_ranks(world, {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of(spec);
    const auto twin = reducer_of(is_ring ? "direct(fp32)" : spec);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Tensors own(rank, step, false);
      Tensors wide(rank, step, true);
      const auto report = reduce(*reducer, own.list, step, transport);
      ASSERT_TRUE(report) << report.error().message;
      const auto expected = reduce(*twin, wide.list, step, transport);
      ASSERT_TRUE(expected) << expected.error().message;
      EXPECT_LT(report->bytes_sent, report->raw_bytes + report->raw_bytes / 50 + 1000);
      for (std::size_t i = 0; i < kTensors.size(); ++i) {
        const auto mean = std::string(spec) == "ring(fp32)" ? ring_mean(i, step, world)
                                                            : rounded(wide.memory[i].data(), kTensors[i]);
        if (std::string(spec) == "ring(gcomp)") {
          expect_near(own.memory[i], mean, kTensors[i].dtype);
        } else {
          EXPECT_TRUE(own.memory[i] == mean) << kTensors[i].name;
        }
      }
    }
  });
}

// Of the plain mean: 2 (N-1) / N times in `direct` and `ring`, N - 1 times in `gather`.
TEST_P(SixteenBits, CountAsTwoBytes) {
  const auto [spec, world] = GetParam();
  std::vector<std::uint64_t> raw(static_cast<std::size_t>(world));
  run_ranks(world, {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of(spec);
    const Tensors own(rank, 0, false);
    const auto report = reduce(*reducer, own.list, 0, transport);
    ASSERT_TRUE(report) << report.error().message;
    raw[static_cast<std::size_t>(rank)] = report->raw_bytes;
    const auto uses = reducer->explain(own.list, 1);
    std::uint64_t explained = 0;
    for (const TensorUse& use : uses) explained += use.raw_bytes;
    // A ring passes others' means on, an unused tensor is coded by none, factors are no tensors of the model.
    if (std::string(spec) == "gather(fp32)") {
      EXPECT_EQ(explained, report->raw_bytes);
    }
  });
  std::uint64_t sum = 0;
  for (const std::uint64_t bytes : raw) sum += bytes;
  const std::uint64_t one = 2 * (50000 + 2400 + 500) + 4 * (900 + 30);
  const auto others = static_cast<std::uint64_t>(world - 1);
  const bool gathers = std::string(spec).starts_with("gather");
  EXPECT_EQ(sum, one * others * (gathers ? static_cast<std::uint64_t>(world) : 2));
}

// One large element a rank and step; what waits grows until it leaves, in step 1, as 120,000.
class BeyondRange : public ::testing::Test {
 protected:
  static std::vector<std::uint16_t> values(std::uint64_t step) {
    std::vector<std::uint16_t> all(300, 0);
    const auto half = [](float value) { return f16_of(std::bit_cast<std::uint32_t>(value)); };
    all[0] = half(step == 0 ? 65000.0F : 1.0F);
    all[1] = half(60000.0F);
    return all;
  }
  static constexpr const char* kSpec = "gather(topk:k=0.004)";  // one of 300
};

TEST_F(BeyondRange, IsAnErrorThatNamesTheTensor) {
  run_ranks(2, {}, [&](int, Transport& transport) {
    const auto reducer = reducer_of(kSpec);
    for (const std::uint64_t step : {0U, 1U}) {
      std::vector<std::uint16_t> own = values(step);
      const std::vector<Named> list{{"w", {own.data(), own.size(), DType::kF16}, 0}};
      const auto report = reduce(*reducer, list, step, transport);
      ASSERT_EQ(report.has_value(), step == 0);
      if (report) continue;
      // Or the other rank's word of it, which came first.
      EXPECT_TRUE(report.error().code == ErrorCode::kRange || report.error().code == ErrorCode::kAborted);
      EXPECT_NE(report.error().message.find("tensor 'w': a mean is"), std::string::npos);
      EXPECT_NE(report.error().message.find("beyond the largest float16"), std::string::npos);
      EXPECT_TRUE(own == values(step)) << "the caller's tensor was touched";
    }
  });
}

TEST_F(BeyondRange, IsAStepThatIsNotFiniteWhereThosePass) {
  ReducerOptions options;
  options.policy.nonfinite = NonFinite::kPass;
  run_ranks(2, {}, [&](int, Transport& transport) {
    const auto reducer = reducer_of(kSpec, options);
    std::vector<std::byte> before;
    for (const std::uint64_t step : {0U, 1U}) {
      std::vector<std::uint16_t> own = values(step);
      const std::vector<Named> list{{"w", {own.data(), own.size(), DType::kF16}, 0}};
      const auto report = reduce(*reducer, list, step, transport);
      ASSERT_TRUE(report) << report.error().message;
      EXPECT_EQ(report->finite, step == 0);
      if (step == 0) before = *reducer->save();
      EXPECT_EQ(own[1], step == 0 ? 0 : 0x7C00);  // infinity
    }
    EXPECT_TRUE(*reducer->save() == before);
  });
}

TEST(Dtypes, MustBeTheSameOnAllRanks) {
  for (const std::string spec : {"direct(fp32)", "gather(fp32)", "ring(fp32)"}) {
    run_ranks(2, {}, [&](int rank, Transport& transport) {
      std::vector<float> values(500);
      const std::vector<Named> list{{"w", {values.data(), 500, rank == 0 ? DType::kBF16 : DType::kF16}, 0}};
      const auto report = reduce(*reducer_of(spec), list, 0, transport);
      ASSERT_FALSE(report);
      EXPECT_NE(report.error().message.find("dtypes"), std::string::npos) << report.error().message;
    });
  }
}

// Pairs, too: of values that both can say the mean is the same.
TEST(Dtypes, OfPairsAreWidened) {
  for (const std::string spec : {"direct(fastsgd)", "gather(fastsgd)"}) {
    run_ranks(2, {}, [&](int rank, Transport& transport) {
      std::vector<Pairs> means(2);
      for (const bool widened : {false, true}) {
        // Dimensions that are cut, and raw.
        std::vector<std::uint32_t> keys;
        for (std::uint32_t key = static_cast<std::uint32_t>(rank); key < 40000; key += 7) keys.push_back(key);
        std::vector<float> values(keys.size());
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 60) + 1;
        std::vector<std::uint16_t> halves(values.size());
        narrow(values.data(), values.size(), DType::kBF16, halves.data());
        void* memory = widened ? static_cast<void*>(values.data()) : halves.data();
        const DType dtype = widened ? DType::kF32 : DType::kBF16;
        const std::vector<Named> list{{"large", {memory, keys.size(), dtype, keys.data(), 40000}, 0},
                                      {"raw", {memory, 20, dtype, keys.data(), 200}, 0}};
        std::vector<Pairs> found(2);
        const auto reducer = reducer_of(spec);
        const auto report =
            reducer->all_reduce({list, found}, {widened ? 1U : 0U, 0, true}, transport, in_seconds(20));
        ASSERT_TRUE(report) << report.error().message;
        if (!widened) means = found;
        for (std::size_t i = 0; i < 2; ++i) {
          EXPECT_GT(found[i].keys.size(), 20u);
          EXPECT_TRUE(found[i].keys == means[i].keys && found[i].values == means[i].values) << spec << i;
        }
      }
    });
  }
}

}  // namespace
}  // namespace deltawire::dtypes_test
