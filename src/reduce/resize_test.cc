// A job goes on with another number of ranks (Reducer::load_resized): what it owes is the same as before.
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "base/little_endian.h"
#include "base/random.h"
#include "base/refusal_testing.h"
#include "channel/channel_state.h"
#include "reduce/patterns/factor_store.h"
#include "reduce/rank_threads_testing.h"
#include "reduce/reducer_state.h"

namespace deltawire::resize_test {
namespace {

using State = std::vector<std::byte>;
using States = std::vector<State>;
using Means = std::map<std::string, std::vector<double>>;  // by tensor

constexpr int kSavedWorld = 4;

struct Shaped {
  std::string name;
  std::vector<std::uint64_t> dims;
};

// Cut among owners, a matrix; cut with an odd last row; one owner; raw.
const std::vector<Shaped> kTensors{
    {"large", {300, 235}}, {"odd", {20001}}, {"small", {40, 20}}, {"raw", {20}}};

std::uint64_t count_of(const Shaped& tensor) {
  std::uint64_t count = 1;
  for (const std::uint64_t dim : tensor.dims) count *= dim;
  return count;
}

std::vector<Named> named(std::vector<std::vector<float>>* values) {
  std::vector<Named> all;
  for (std::size_t i = 0; i < kTensors.size(); ++i) {
    Named tensor{kTensors[i].name, {nullptr, count_of(kTensors[i]), DType::kF32}, 0};
    tensor.tensor.dims = kTensors[i].dims;
    if (values != nullptr) tensor.tensor.values = (*values)[i].data();
    all.push_back(tensor);
  }
  return all;
}

// Drawn once: every spec and number of ranks asks for the same ones.
const std::vector<float>& gradient(std::size_t tensor, int rank, std::uint64_t step) {
  static std::mutex mutex;
  static std::map<std::tuple<std::size_t, int, std::uint64_t>, std::vector<float>> drawn;
  const std::scoped_lock lock(mutex);
  std::vector<float>& values = drawn[{tensor, rank, step}];
  const CounterRng random(17 * step + static_cast<std::uint64_t>(rank), tensor);
  while (values.size() < count_of(kTensors[tensor])) {
    const double u = random.uniform_at(values.size()) - 0.5;
    values.push_back(static_cast<float>(u * u * u));
  }
  return values;
}

void add(std::span<const float> values, std::uint64_t first, double factor, std::vector<double>& sum) {
  sum.resize(std::max<std::size_t>(sum.size(), first + values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) sum[first + i] += factor * static_cast<double>(values[i]);
}

// One step; takes what came out off `owed`, and adds what went in.
void train(Reducers& reducers, std::uint64_t number, float scale, Means& owed) {
  const int world = static_cast<int>(reducers.size());
  run_ranks(world, {}, [&](int rank, Transport& transport) {
    std::vector<std::vector<float>> values;
    for (std::size_t t = 0; t < kTensors.size(); ++t) {
      for (float& value : values.emplace_back(gradient(t, rank, number))) value *= scale;
    }
    const auto report = reducers[static_cast<std::size_t>(rank)]->all_reduce(
        named(&values), {number, 0, true, scale}, transport, in_seconds(30));
    ASSERT_TRUE(report) << report.error().message;
    if (rank != 0) return;
    for (std::size_t t = 0; t < kTensors.size(); ++t) {
      auto& sum = owed[kTensors[t].name];
      for (int each = 0; each < world; ++each) add(gradient(t, each, number), 0, 1.0 / world, sum);
      add(values[t], 0, -1.0 / static_cast<double>(scale), sum);
    }
  });
}

Status load_resized(WakeableReducer& reducer, const States& states, int world, int rank,
                    const std::vector<int>& continued = {}) {
  const std::vector<Bytes> all(states.begin(), states.end());
  const std::vector<Named> tensors = named(nullptr);
  return reducer.load_resized({all, tensors, world, rank, continued});
}

// What saved ranks owe in the unit of the mean of `world` ranks, read from their bytes; momentum under
// another name. Empty states are of ranks that are lost.
Means owed_by(const std::string& spec, const States& states, int world) {
  Means owed;
  const std::string pattern = spec.substr(0, spec.find_first_of("(:"));
  const double own_share = sends_own(pattern) ? 1.0 / world : 1.0;
  for (Bytes state : states) {
    if (state.empty()) continue;
    if (pattern == "powersgd") {
      FactorStore matrices(2, Revert::kFold, nullptr);
      state = state.subspan(*matrices.load(state));
      for (const Named& tensor : named(nullptr)) {
        if (tensor.tensor.dims.size() != 2) continue;
        const low_rank::Shape shape{tensor.tensor.dims[0], tensor.tensor.dims[1], 2};
        const auto matrix = matrices.obtain(tensor, shape);
        add((*matrix)->kept, 0, own_share / static_cast<double>((*matrix)->scale),
            owed[std::string(tensor.name)]);
      }
    }
    const std::string magic(reinterpret_cast<const char*>(state.data()), 8);
    const auto parts = unpack_reducer_state(state, magic, pattern == "gather" ? 1 : 2);
    EXPECT_TRUE(parts) << parts.error().message;
    EXPECT_EQ(parts->world, world);
    for (std::size_t c = 0; c < parts->channels.size(); ++c) {
      ResidualStore store;
      const Bytes channel = parts->channels[c];
      EXPECT_TRUE(load_residuals(channel, load_le<std::uint64_t>(channel.data() + 16), store));
      const double share = c == 0 ? own_share : 1.0;
      for (const ResidualStore::Entry* entry : store.sorted()) {
        add(entry->values, entry->first, share / static_cast<double>(entry->scale), owed[entry->name]);
        const auto velocity = entry->velocity.values();
        if (velocity.empty()) continue;
        add(velocity, entry->first, share / static_cast<double>(entry->velocity.scale()),
            owed["momentum of " + entry->name]);
      }
    }
  }
  return owed;
}

Means owed_by(const std::string& spec, const States& states) {
  return owed_by(spec, states, static_cast<int>(states.size()));
}

void expect_same(const Means& got, const Means& wanted, double tolerance) {
  for (const auto& [name, values] : wanted) {
    double largest = 0;
    double error = 0;
    const auto found = got.find(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool is_there = found != got.end() && i < found->second.size();
      largest = std::max(largest, std::abs(values[i]));
      error = std::max(error, std::abs(values[i] - (is_there ? found->second[i] : 0.0)));
    }
    EXPECT_LE(error, tolerance * (largest + 0.01)) << name;
  }
}

// By reducer spec.
class Resized : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Specs, Resized,
                         ::testing::Values("direct(3lc:s=1.75)", "direct(int8)", "direct(sbc)",
                                           "direct(topk:k=5%)", "direct(onebit)", "direct(fp32)",
                                           "ring(onebit)", "ring(int8)", "ring(sbc)", "ring(fp8)",
                                           "gather(3lc:s=1.75)", "gather(int8)", "gather(topk:k=5%)",
                                           "gather(signsgd)", "powersgd:rank=2", "hierarchical:group=2(3lc)",
                                           "hierarchical:group=3(sbc)",
                                           "direct(large: sbc, odd: int8, rest 3lc)"));

TEST_P(Resized, KeepsWhatIsOwed) {
  Reducers reducers = reducers_of(GetParam(), kSavedWorld);
  Means owed;
  for (std::uint64_t step = 0; step < 2; ++step) train(reducers, step, 4.0F, owed);
  const States before = states(reducers);
  expect_same(owed_by(GetParam(), before), owed, 1e-5);
  for (const int world : {1, 2, 3, 5, 8}) {
    SCOPED_TRACE(world);
    Reducers others = reducers_of(GetParam(), world);
    for (int rank = 0; rank < world; ++rank) {
      const Status loaded = load_resized(*others[static_cast<std::size_t>(rank)], before, world, rank);
      ASSERT_TRUE(loaded) << loaded.error().message;
    }
    expect_same(owed_by(GetParam(), states(others)), owed_by(GetParam(), before), 1e-7);
    // And all of it leaves: the parts are those that the next steps encode.
    Means then = owed;
    for (std::uint64_t step = 2; step < 4; ++step) train(others, step, 1.0F, then);
    expect_same(owed_by(GetParam(), states(others)), then, 1e-5);
  }
}

// Without those that don't go on.
States emptied(States states, const std::vector<int>& continued) {
  for (int rank = 0; rank < static_cast<int>(states.size()); ++rank) {
    if (std::ranges::find(continued, rank) == continued.end()) states[static_cast<std::size_t>(rank)].clear();
  }
  return states;
}

// The states of which rank `own` goes on: all of its own, and of the others what they share.
States for_rank(States states, int own) {
  for (int rank = 0; rank < static_cast<int>(states.size()); ++rank) {
    State& state = states[static_cast<std::size_t>(rank)];
    if (rank != own && !state.empty()) state = *shared_state(state);
  }
  return states;
}

// Rank 1 of four is lost, and perhaps two come: what the others owe stays, each keeps its own, and all of it
// leaves in the steps after.
TEST_P(Resized, WhoGoesOnKeepsItsOwn) {
  Reducers reducers = reducers_of(GetParam(), kSavedWorld);
  Means ignored;
  for (std::uint64_t step = 0; step < 2; ++step) train(reducers, step, 4.0F, ignored);
  const States all = states(reducers);
  for (const std::vector<int>& continued :
       std::vector<std::vector<int>>{{0, 2, 3}, {0, 2, 3, -1}, {1, -1, -1, -1, -1}, {2}}) {
    SCOPED_TRACE(continued.size());
    const States before = emptied(all, continued);
    const int world = static_cast<int>(continued.size());
    Reducers others = reducers_of(GetParam(), world);
    for (int rank = 0; rank < world; ++rank) {
      const int own = continued[static_cast<std::size_t>(rank)];
      const Status loaded = load_resized(*others[static_cast<std::size_t>(rank)], for_rank(before, own),
                                         world, rank, continued);
      ASSERT_TRUE(loaded) << loaded.error().message;
    }
    Means owed = owed_by(GetParam(), before, kSavedWorld);
    expect_same(owed_by(GetParam(), states(others), world), owed, 1e-6);
    for (std::uint64_t step = 2; step < 4; ++step) train(others, step, 1.0F, owed);
    expect_same(owed_by(GetParam(), states(others), world), owed, 1e-5);
  }
}

TEST(Resize, RanksThatGoOnAreNamedInOrder) {
  for (const std::string spec : {"direct(3lc)", "powersgd:rank=2"}) {
    Reducers reducers = reducers_of(spec, 3);
    Means ignored;
    train(reducers, 0, 1.0F, ignored);
    const States good = states(reducers);
    const auto other = reducer_of(spec);
    const State before = *other->save();
    const auto refused = [&](const States& states, const std::vector<int>& continued, int world) {
      testing::expect_refused(load_resized(*other, states, world, 0, continued), ErrorCode::kInvalidArgument);
      EXPECT_TRUE(*other->save() == before);
    };
    refused(good, {0}, 2);
    refused(good, {1, 0}, 2);
    refused(good, {0, 3}, 2);
    refused(good, {1, 1}, 2);
    refused({good[0], {}, good[2]}, {0, 1}, 2);
  }
}

TEST(Resize, FactorsFollowTheScaleAndTheQOfTheFirst) {
  const low_rank::Shape shape{30, 20, 1};
  const Named tensor{"w", {nullptr, shape.elements(), DType::kF32}, 0};
  States states;
  for (const float value : {8.0F, 1.0F}) {
    FactorStore store(1, Revert::kFold, nullptr);
    FactorStore::Matrix& matrix = **store.obtain(tensor, shape);
    matrix.kept.assign(shape.elements(), value);
    matrix.scale = value / 2;
    matrix.start.assign(shape.q_elements(), value);
    states.push_back(store.save());
  }
  const std::vector<WeightedState> weighted{{states[0], 1}, {states[1], 2}};
  FactorStore sum(1, Revert::kFold, nullptr);
  ASSERT_TRUE(sum.load_weighted(weighted, std::span(&tensor, 1)));
  const FactorStore::Matrix& matrix = **sum.obtain(tensor, shape);
  EXPECT_EQ(matrix.scale, 4.0F);
  EXPECT_EQ(matrix.kept.front(), 8.0F + 2 * 1.0F * (4.0F / 0.5F));
  EXPECT_EQ(matrix.start, std::vector<float>(shape.q_elements(), 8.0F));
}

TEST(Resize, AsManyRanksGetWhatTheyHad) {
  for (const std::string spec :
       {"direct(3lc)", "ring(int8)", "gather(sbc)", "powersgd:rank=2", "hierarchical:group=2(3lc)"}) {
    Reducers reducers = reducers_of(spec, 3);
    Means owed;
    train(reducers, 0, 1.0F, owed);
    const States before = states(reducers);
    for (const std::vector<int>& continued : {std::vector<int>{}, {0, 1, 2}}) {
      Reducers others = reducers_of(spec, 3);
      for (int rank = 0; rank < 3; ++rank) {
        ASSERT_TRUE(load_resized(*others[static_cast<std::size_t>(rank)], before, 3, rank, continued));
      }
      EXPECT_TRUE(states(others) == before) << spec << ", " << continued.size() << " named";
    }
  }
}

// Twice as many ranks: each state is loaded by two, bit for bit.
TEST(Resize, RanksOfAFinerCutGetCopies) {
  Reducers reducers = reducers_of("gather(3lc)", 2);
  Means owed;
  train(reducers, 0, 1.0F, owed);
  const States before = states(reducers);
  for (int rank = 0; rank < 4; ++rank) {
    const auto other = reducer_of("gather(3lc)");
    ASSERT_TRUE(load_resized(*other, before, 4, rank));
    const State state = *other->save();
    const State& source = before[static_cast<std::size_t>(rank / 2)];
    EXPECT_TRUE(State(state.begin() + 32, state.end()) == State(source.begin() + 32, source.end())) << rank;
  }
}

TEST(Resize, MomentumIsAveragedToo) {
  const std::string rules =
      "(small: fp32 with momentum=0.5, rest sbc:p=5% with clip=1,momentum=0.9,masking=on)";
  for (const std::string& spec : std::vector<std::string>{"direct" + rules, "gather" + rules}) {
    Reducers reducers = reducers_of(spec, kSavedWorld);
    Means ignored;
    for (std::uint64_t step = 0; step < 2; ++step) train(reducers, step, 2.0F, ignored);
    const States before = states(reducers);
    const Means owed = owed_by(spec, before);
    ASSERT_EQ(owed.count("momentum of large"), 1u);
    for (const int world : {2, 3}) {
      Reducers others = reducers_of(spec, world);
      for (int rank = 0; rank < world; ++rank) {
        ASSERT_TRUE(load_resized(*others[static_cast<std::size_t>(rank)], before, world, rank));
      }
      expect_same(owed_by(spec, states(others)), owed, 1e-7);
      train(others, 2, 1.0F, ignored);
    }
  }
}

// `world` ranks that begin with these states owe nothing.
void expect_nothing_owed(const std::string& spec, const States& before, int world) {
  Reducers others = reducers_of(spec, world);
  Means owed;
  for (int rank = 0; rank < world; ++rank) {
    const Status loaded = load_resized(*others[static_cast<std::size_t>(rank)], before, world, rank);
    ASSERT_TRUE(loaded) << spec << ": " << loaded.error().message;
  }
  train(others, 0, 1.0F, owed);
  expect_same(owed_by(spec, states(others)), owed, 1e-5);
}

TEST(Resize, RanksWithoutAStepOweNothing) {
  for (const std::string spec : {"direct(3lc)", "ring(onebit)", "gather(3lc)", "powersgd:rank=2"}) {
    ASSERT_NO_FATAL_FAILURE(expect_nothing_owed(spec, states(reducers_of(spec, 3)), 2));
  }
}

// Rank 0 never began it. What the others say about it afterwards goes together with what rank 0 says.
TEST(Resize, RanksWhoseFirstStepFailedOweNothing) {
  for (const std::string spec : {"direct(3lc)", "ring(onebit)", "gather(3lc)", "powersgd:rank=2"}) {
    SCOPED_TRACE(spec);
    Reducers reducers = reducers_of(spec, 3);
    run_ranks(3, {}, [&](int rank, Transport& transport) {
      if (rank == 0) {
        transport.abort({ErrorCode::kAborted, "others want to join", 0});
        return;
      }
      std::vector<std::vector<float>> values;
      for (const Shaped& tensor : kTensors) values.emplace_back(count_of(tensor), 1.0F);
      EXPECT_FALSE(reducers[static_cast<std::size_t>(rank)]->all_reduce(named(&values), {0, 0, true, 1.0F},
                                                                        transport, in_seconds(30)));
    });
    const States before = states(reducers);
    for (const int world : {2, 3, 4}) ASSERT_NO_FATAL_FAILURE(expect_nothing_owed(spec, before, world));
  }
}

// Each leaves the reducer as it was.
TEST(Resize, StatesThatDontFitAreRefused) {
  for (const std::string spec : {"direct(3lc)", "ring(onebit)", "gather(3lc)", "powersgd:rank=2"}) {
    SCOPED_TRACE(spec);
    Reducers reducers = reducers_of(spec, 3);
    Means owed;
    train(reducers, 0, 1.0F, owed);
    const States good = states(reducers);
    const auto other = reducer_of(spec);
    ASSERT_TRUE(load_resized(*other, good, 2, 1));
    const State before = *other->save();
    const auto refused = [&](const States& states, ErrorCode code, int world = 2, int rank = 0) {
      testing::expect_refused(load_resized(*other, states, world, rank), code);
      EXPECT_TRUE(*other->save() == before);
    };
    refused({}, ErrorCode::kInvalidArgument);
    refused(good, ErrorCode::kInvalidArgument, 2, 2);
    refused(good, ErrorCode::kInvalidArgument, 0, 0);
    refused({good[0], good[1]}, ErrorCode::kMismatch, 3);
    refused({good[0], good[2], good[1]}, ErrorCode::kMismatch);
    refused({good[0], good[1], *reducer_of(spec)->save()}, ErrorCode::kMismatch);
    for (const std::size_t at : {good[1].size() / 2, good[1].size() - 1}) {  // in the first and last channel
      States changed = good;
      changed[1][at] ^= std::byte{1};
      refused(changed, ErrorCode::kCorrupt);
    }
    States cut = good;
    cut[0].resize(10);
    refused(cut, ErrorCode::kTruncated);
    const std::vector<Bytes> all(good.begin(), good.end());
    std::vector<Named> tensors = named(nullptr);
    tensors.front().tensor.count -= 1;
    testing::expect_refused(other->load_resized({all, tensors, 2, 0}), ErrorCode::kMismatch, "'large'");
    EXPECT_TRUE(*other->save() == before);
  }
}

}  // namespace
}  // namespace deltawire::resize_test
