// `powersgd` on threads: against its model bit for bit, and what the paper promises of it.
#include <cmath>
#include <mutex>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "reduce/forwarding_transport_testing.h"
#include "reduce/patterns/powersgd_testing.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::powersgd_test {
namespace {

using namespace testing;
using Values = std::vector<float>;

const char* const kSpec = "powersgd:rank=4(fp32)";

std::vector<Tensors> gradients_of_all(int world, std::uint64_t step) {
  std::vector<Tensors> all;
  for (int rank = 0; rank < world; ++rank) all.push_back(shaped_gradients(rank, step));
  return all;
}

// One step of all ranks: their tensors become the means. Each tensor a bucket of its own, or all in one.
void run_step(Reducers& reducers, std::vector<Tensors>& tensors, std::uint64_t number, bool split = false) {
  run_ranks(static_cast<int>(reducers.size()), {}, [&](int rank, Transport& transport) {
    const auto at = static_cast<std::size_t>(rank);
    const std::vector<Named> all = named_shaped(tensors[at]);
    const std::size_t count = split ? all.size() : 1;
    for (std::size_t b = 0; b < count; ++b) {
      const auto bucket = split ? std::span(all).subspan(b, 1) : std::span(all);
      const Step step{number, static_cast<std::uint32_t>(b), b + 1 == count};
      const Status begun = reducers[at]->begin(bucket, step, transport, in_seconds(60));
      ASSERT_TRUE(begun) << begun.error().message;
    }
    for (std::size_t b = 0; b < count; ++b) {
      const auto report = reducers[at]->finish();
      ASSERT_TRUE(report) << report.error().message;
    }
  });
}

struct Case {
  std::string codec;
  int world;
};

class PowerSgd : public ::testing::TestWithParam<Case> {
 protected:
  static std::string spec() { return "powersgd:rank=4(" + GetParam().codec + ")"; }
};

INSTANTIATE_TEST_SUITE_P(Worlds, PowerSgd,
                         ::testing::Values(Case{"fp32", 1}, Case{"fp32", 2}, Case{"fp32", 3}, Case{"fp32", 5},
                                           Case{"bf16", 2}, Case{"bf16", 3}, Case{"gcomp", 3}),
                         [](const auto& chosen) {
                           return chosen.param.codec + "_" + std::to_string(chosen.param.world);
                         });

TEST_P(PowerSgd, EqualsItsModelBitForBit) {
  const int world = GetParam().world;
  Reducers reducers = reducers_of(spec(), world);
  PowerSgdModel model(GetParam().codec, world);
  for (std::uint64_t step = 0; step < 4; ++step) {
    std::vector<Tensors> tensors = gradients_of_all(world, step);
    const Tensors wanted = model.mean(tensors, step);
    run_step(reducers, tensors, step, step % 2 == 1);
    for (int rank = 0; rank < world; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      for (std::size_t t = 0; t < wanted.size(); ++t) {
        ASSERT_TRUE(tensors[at][t] == wanted[t]) << shaped_tensors()[t].name << ", step " << step;
      }
      const auto residuals = testing::saved_residuals(*reducers[at]->save());
      for (std::size_t t = 0; t < wanted.size(); ++t) {
        const auto found = residuals.find(shaped_tensors()[t].name);
        EXPECT_EQ(found != residuals.end(), shaped_tensors()[t].is_compressed) << shaped_tensors()[t].name;
        if (found == residuals.end()) continue;
        EXPECT_TRUE(found->second == model.residual(rank, t));
      }
    }
  }
}

// A restored reducer goes on with the bits that the original would have had.
TEST_P(PowerSgd, SavedStateGoesOnAsIfNothingHadHappened) {
  const int world = GetParam().world;
  Reducers straight = reducers_of(spec(), world);
  for (std::uint64_t step = 0; step < 2; ++step) {
    std::vector<Tensors> tensors = gradients_of_all(world, step);
    run_step(straight, tensors, step);
  }
  Reducers restored = reducers_of(spec(), world);
  for (std::size_t rank = 0; rank < restored.size(); ++rank) {
    const auto state = *straight[rank]->save();
    const Status loaded = restored[rank]->load(state);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(*restored[rank]->save(), state);
  }
  std::vector<Tensors> wanted = gradients_of_all(world, 2);
  run_step(straight, wanted, 2);
  std::vector<Tensors> got = gradients_of_all(world, 2);
  run_step(restored, got, 2);
  EXPECT_TRUE(got == wanted);
}

// What went in = what came out + what waits, up to rounding.
TEST(PowerSgdConservation, NothingIsLost) {
  constexpr int kWorld = 3;
  Reducers reducers = reducers_of(kSpec, kWorld);
  std::vector<std::vector<double>> balance;
  for (const auto& tensor : shaped_tensors()) balance.emplace_back(tensor.elements(), 0.0);
  for (std::uint64_t step = 0; step < 5; ++step) {
    std::vector<Tensors> tensors = gradients_of_all(kWorld, step);
    const auto inputs = tensors;
    run_step(reducers, tensors, step);
    for (std::size_t t = 0; t < balance.size(); ++t) {
      for (std::size_t i = 0; i < balance[t].size(); ++i) {
        for (const Tensors& input : inputs) balance[t][i] += static_cast<double>(input[t][i]) / kWorld;
        balance[t][i] -= static_cast<double>(tensors[0][t][i]);
      }
    }
  }
  for (const auto& reducer : reducers) {
    const auto residuals = testing::saved_residuals(*reducer->save());
    for (std::size_t t = 0; t < balance.size(); ++t) {
      const auto found = residuals.find(shaped_tensors()[t].name);
      if (found == residuals.end()) continue;
      for (std::size_t i = 0; i < balance[t].size(); ++i) {
        balance[t][i] -= static_cast<double>(found->second[i]) / kWorld;
      }
    }
  }
  for (std::size_t t = 0; t < balance.size(); ++t) {
    for (const double left : balance[t]) ASSERT_NEAR(left, 0, 2e-6) << shaped_tensors()[t].name;
  }
}

constexpr std::uint64_t kRows = 60;
constexpr std::uint64_t kColumns = 80;

// Of the orthonormal basis of the discrete cosine transform, without the constant one.
double basis(std::uint64_t size, std::size_t k, std::uint64_t i) {
  const auto length = static_cast<double>(size);
  const double angle =
      std::numbers::pi * static_cast<double>(k + 1) * (static_cast<double>(i) + 0.5) / length;
  return std::sqrt(2 / length) * std::cos(angle);
}

// A matrix of these singular values.
Values with_spectrum(const std::vector<double>& spectrum) {
  Values matrix;
  for (std::uint64_t i = 0; i < kRows; ++i) {
    for (std::uint64_t j = 0; j < kColumns; ++j) {
      double value = 0;
      for (std::size_t k = 0; k < spectrum.size(); ++k) {
        value += spectrum[k] * basis(kRows, k, i) * basis(kColumns, k, j);
      }
      matrix.push_back(static_cast<float>(value));
    }
  }
  return matrix;
}

double distance(const Values& a, const Values& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  }
  return std::sqrt(squares);
}

// Two ranks exchange a matrix of which each has a share; what waits is taken away after each step, so that
// all steps see the same one. The means' distances from it.
std::vector<double> distances(const Values& matrix, const std::string& spec, std::uint64_t steps) {
  std::vector<double> all;
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of(spec);
    Values waits(matrix.size(), 0.0F);
    for (std::uint64_t step = 0; step < steps; ++step) {
      Values values(matrix.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = matrix[i] * (rank == 0 ? 0.5F : 1.5F) - waits[i];
      }
      const std::vector<std::uint64_t> dims{kRows, kColumns};
      Named tensor{"w", {values.data(), values.size(), DType::kF32}, 0};
      tensor.tensor.dims = dims;
      const auto report =
          reducer->all_reduce(std::span(&tensor, 1), {step, 0, true}, transport, in_seconds(60));
      ASSERT_TRUE(report) << report.error().message;
      waits = testing::saved_residuals(*reducer->save())["w"];
      if (rank == 0) all.push_back(distance(values, matrix));
    }
  });
  return all;
}

// Eckart and Young: no matrix of rank r is nearer than the root of the sum of the other singular values'
// squares. With a warm start each step is one of subspace iteration: it comes within 1 % of that.
TEST(PowerSgdApproximation, ComesNearTheBestOfItsRank) {
  std::vector<double> spectrum;
  for (int k = 0; k < 40; ++k) spectrum.push_back(std::pow(0.8, k));
  const Values matrix = with_spectrum(spectrum);
  for (const int rank : {1, 4, 7}) {
    double best = 0;
    for (std::size_t k = static_cast<std::size_t>(rank); k < spectrum.size(); ++k)
      best += std::pow(spectrum[k], 2);
    best = std::sqrt(best);
    const auto found = distances(matrix, "powersgd:rank=" + std::to_string(rank) + "(fp32)", 16);
    EXPECT_GT(found.front(), 1.02 * best) << rank << ": one step alone is no subspace iteration";
    EXPECT_LT(found.front(), 3 * best) << rank;
    EXPECT_LT(found.back(), 1.01 * best) << rank;
    EXPECT_GT(found.back(), 0.9999 * best) << rank;
  }
}

// The first step finds all of a matrix of no higher rank, whatever Q it begins with.
TEST(PowerSgdApproximation, IsExactForLowRanks) {
  for (const std::vector<double>& spectrum : {std::vector<double>{3, 2, 0.5, 0.25}, {1, 0.5}, {2}}) {
    const Values matrix = with_spectrum(spectrum);
    for (const double found : distances(matrix, kSpec, 3)) EXPECT_LT(found, 1e-5);
  }
}

// 3 ranks send each factor and each other value four times: two to its owner, who sends two. A frame has a
// few bytes more.
TEST(PowerSgdReport, CountsBytesOfBothRounds) {
  std::uint64_t factors = 0;
  std::uint64_t others = 0;
  std::uint64_t elements = 0;
  for (const auto& tensor : shaped_tensors()) {
    elements += tensor.elements();
    (tensor.is_compressed ? factors : others) +=
        tensor.is_compressed ? 4 * (tensor.rows() + tensor.columns()) : tensor.elements();
  }
  std::vector<Report> reports(3);
  run_ranks(3, {}, [&](int rank, Transport& transport) {
    Tensors tensors = shaped_gradients(rank, 0);
    const auto report =
        reducer_of(kSpec)->all_reduce(named_shaped(tensors), {0, 0, true}, transport, in_seconds(60));
    ASSERT_TRUE(report) << report.error().message;
    reports[static_cast<std::size_t>(rank)] = *report;
  });
  std::uint64_t sent = 0;
  std::uint64_t raw = 0;
  for (const Report& report : reports) {
    EXPECT_EQ(report.element_count, elements);
    EXPECT_GT(report.encode_seconds, 0);
    EXPECT_GT(report.decode_seconds, 0);
    sent += report.bytes_sent;
    raw += report.raw_bytes;
  }
  EXPECT_EQ(raw, 4 * 4 * elements);
  EXPECT_GT(sent, 4 * 4 * (factors + others));
  EXPECT_LT(sent, 4 * 4 * (factors + others) + 5000);
}

// Which stages' messages were sent.
class StageRecorder final : public ForwardingTransport {
 public:
  explicit StageRecorder(Transport& inner) : ForwardingTransport(inner) {}
  Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) override {
    stages.insert(static_cast<std::uint16_t>(tag));
    return ForwardingTransport::post_send(peer, tag, pieces);
  }
  std::set<std::uint16_t> stages;
};

// docs/reference/format.md, "Buckets and stages".
TEST(PowerSgdRounds, HaveStagesOfTheirOwn) {
  std::set<std::uint16_t> all;
  std::mutex mutex;
  run_ranks(3, {}, [&](int rank, Transport& inner) {
    StageRecorder transport(inner);
    Tensors tensors = shaped_gradients(rank, 0);
    const auto report =
        reducer_of(kSpec)->all_reduce(named_shaped(tensors), {0, 0, true}, transport, in_seconds(60));
    ASSERT_TRUE(report) << report.error().message;
    const std::lock_guard lock(mutex);
    all.insert(transport.stages.begin(), transport.stages.end());
  });
  EXPECT_EQ(all, (std::set<std::uint16_t>{0, 1, 2, 3}));
}

TEST(PowerSgdSpec, IsReadAndWritten) {
  EXPECT_EQ(reducer_of("powersgd")->spec(), "powersgd:rank=4(fp32)");
  EXPECT_EQ(reducer_of("powersgd:rank=32")->spec(), "powersgd:rank=32(fp32)");
  EXPECT_EQ(reducer_of("powersgd(bf16)")->spec(), "powersgd:rank=4(bf16)");
  EXPECT_EQ(reducer_of("powersgd:rank=1(conv*: bf16, rest fp32)")->spec(),
            "powersgd:rank=1(conv*: bf16, rest fp32)");
  EXPECT_EQ(reducer_of("powersgd: bf16, rest fp32")->spec(), "direct(powersgd: bf16, rest fp32)");
  for (const char* wrong :
       {"powersgd:rank=0", "powersgd:rank=33", "powersgd:rank=4x", "powersgd:rank=-1",
        "powersgd:rank=", "powersgd:depth=4", "powersgd:rank=4,rank=4", "powersgd:rank=4(",
        "direct:rank=4(fp32)", "powersgd:rank=4()", "powersgdx:rank=4(fp32)"}) {
    testing::expect_refused(make_reducer(wrong), ErrorCode::kInvalidArgument);
  }
  EXPECT_NE(make_reducer("powersgd:depth=4").error().message.find("it has rank"), std::string::npos);
}

TEST(PowerSgdSpec, RefusesResidualsOfFactors) {
  for (const char* codec : {"3lc", "sbc", "int8", "onebit", "fastsgd:residual=on", "conv*: 3lc, rest fp32",
                            "fp32 with momentum=0.9"}) {
    testing::expect_refused(make_reducer("powersgd:rank=4(" + std::string(codec) + ")"),
                            ErrorCode::kInvalidArgument, "another basis");
  }
}

TEST(PowerSgdSpec, RefusesListsAndMasks) {
  run_ranks(1, {}, [&](int, Transport& transport) {
    const auto reducer = reducer_of(kSpec);
    std::uint32_t key = 3;
    float value = 1;
    Pairs mean;
    const Named pairs{"clicks", {&value, 1, DType::kF32, &key, 100}, 0};
    testing::expect_refused(reducer->all_reduce(Bucket(std::span(&pairs, 1), std::span(&mean, 1)),
                                                {0, 0, true}, transport, in_seconds(5)),
                            ErrorCode::kInvalidArgument, "key-value");
    EXPECT_EQ(reducer->mask_sent("clicks", std::span(&value, 1)).error().code, ErrorCode::kInvalidArgument);
  });
}

TEST(PowerSgdSpec, DimsThatContradictTheCountAreRefused) {
  for (const std::vector<std::uint64_t>& dims :
       std::vector<std::vector<std::uint64_t>>{{60, 99}, {60, 10, 11}, {50, 100}, {1ULL << 63, 6000}}) {
    run_ranks(1, {}, [&](int, Transport& transport) {
      Values values(6000, 1.0F);
      Named tensor{"w", {values.data(), values.size(), DType::kF32}, 0};
      tensor.tensor.dims = dims;
      testing::expect_refused(
          reducer_of(kSpec)->all_reduce(std::span(&tensor, 1), {0, 0, true}, transport, in_seconds(5)),
          ErrorCode::kInvalidArgument);
    });
  }
}

// Fewer elements than the policy's travel as they are.
TEST(PowerSgdSpec, LeavesSmallTensorsOut) {
  ReducerOptions options;
  options.policy.min_elements = 30300;  // fc.weight's
  Reducers reducers = reducers_of(kSpec, 1, options);
  std::vector<Tensors> tensors = gradients_of_all(1, 0);
  const auto before = tensors;
  run_step(reducers, tensors, 0);
  for (std::size_t t = 0; t < shaped_tensors().size(); ++t) {
    EXPECT_EQ(tensors[0][t] == before[0][t], shaped_tensors()[t].name != "fc.weight");
  }
}

}  // namespace
}  // namespace deltawire::powersgd_test
