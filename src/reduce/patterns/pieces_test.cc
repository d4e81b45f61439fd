// `direct` in pieces: however a bucket is cut, whoever fails in the middle of it, and how little is on its
// way.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/random.h"
#include "reduce/forwarding_transport_testing.h"
#include "reduce/patterns/patterns.h"
#include "reduce/patterns/piece_window.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::pieces_test {
namespace {

constexpr int kWorld = 3;
constexpr std::uint64_t kPiece = 3200;  // of the reducers here

using Values = std::vector<float>;

std::unique_ptr<WakeableReducer> small_pieces(const std::string& codec, const ReducerOptions& options = {},
                                              std::uint64_t piece = kPiece) {
  auto made = make_direct_reducer(codec, options, piece);
  EXPECT_TRUE(made);
  return std::move(*made);
}

// Uneven for the owners: many pieces of one part, some of many parts, some of one small part.
struct Model : Layers {
  Model(int rank, std::uint64_t step) : Layers({100, 40000, 3000, 30, 17000, 200, 16384, 9999}) {
    // Whole numbers, so that sums of a few are exact.
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>((i * 7919 + static_cast<std::size_t>(rank) * 31 + step * 101) % 41) - 20;
    }
  }
};

// Counts messages, and ends the mesh at one of them.
class Meter final : public ForwardingTransport {
 public:
  explicit Meter(Transport& inner, std::size_t abort_at = SIZE_MAX)
      : ForwardingTransport(inner), abort_at_(abort_at) {}

  Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) override {
    std::uint64_t bytes = 0;
    for (const Bytes piece : pieces) bytes += piece.size();
    longest = std::max(longest, bytes);
    ++messages[{peer, tag & 1}];
    if (sent++ == abort_at_) abort({ErrorCode::kAborted, "test", rank()});
    const Handle handle = ForwardingTransport::post_send(peer, tag, pieces);
    return handle;
  }
  Handle post_recv(int peer, Tag tag, MutBytes capacity) override {
    posted += capacity.size();
    most_posted = std::max(most_posted, posted);
    const Handle handle = ForwardingTransport::post_recv(peer, tag, capacity);
    capacities_[handle] = capacity.size();
    return handle;
  }
  Result<std::uint64_t> wait(Handle handle, Deadline deadline) override {
    const auto receive = capacities_.find(handle);
    if (receive != capacities_.end()) {
      posted -= receive->second;
      capacities_.erase(receive);
    }
    return ForwardingTransport::wait(handle, deadline);
  }

  std::map<std::pair<int, std::uint64_t>, int> messages;  // by peer and stage
  std::size_t sent = 0;
  std::uint64_t longest = 0;
  std::uint64_t posted = 0;  // bytes of receives
  std::uint64_t most_posted = 0;

 private:
  std::size_t abort_at_;
  std::map<Handle, std::uint64_t> capacities_;
};

Result<Report> reduce(Reducer& reducer, Model& model, std::uint64_t step, Transport& transport) {
  return reducer.all_reduce(model.tensors, {step, 0, true}, transport, in_seconds(20));
}

// fp32 adds the ranks' shares, each scaled, in rank order: whatever the pieces are, and whoever is first.
class LongDirect : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, LongDirect, ::testing::Values(1, 2, 3, 5));

TEST_P(LongDirect, Fp32IsTheSumInRankOrderBitForBit) {
  const int world = GetParam();
  const std::vector<std::size_t> counts{1300001, 700, 400000, 16384};
  const auto gradient = [&](int rank, std::size_t i) {
    const CounterRng random(static_cast<std::uint64_t>(rank), i);
    Values values(counts[i]);
    for (std::size_t k = 0; k < values.size(); ++k)
      values[k] = static_cast<float>(random.uniform_at(k) - 0.5);
    return values;
  };
  const std::vector<std::string> names{"embedding", "norm", "fc", "out"};
  std::vector<Values> sums;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    Values& sum = sums.emplace_back(counts[i], 0.0F);
    for (int rank = 0; rank < world; ++rank) {
      const Values share = gradient(rank, i);
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += 1.0F / static_cast<float>(world) * share[k];
    }
  }
  run_ranks(world, {}, [&](int rank, Transport& transport) {
    std::vector<Values> values;
    std::vector<Named> tensors;
    for (std::size_t i = 0; i < counts.size(); ++i) values.push_back(gradient(rank, i));
    for (std::size_t i = 0; i < counts.size(); ++i) {
      tensors.push_back({names[i], {values[i].data(), counts[i], DType::kF32}, 0});
    }
    const auto reducer = reducer_of("direct(fp32)");
    const auto report = reducer->all_reduce(tensors, {0, 0, true}, transport, in_seconds(60));
    ASSERT_TRUE(report) << report.error().message;
    for (std::size_t i = 0; i < counts.size(); ++i) EXPECT_TRUE(values[i] == sums[i]) << names[i];
  });
}

// One huge part, as far as its owner is concerned, leaves in pieces, few of which are on their way.
TEST(Pieces, OfALongTensorAreShortAndFew) {
  run_ranks(2, {}, [](int rank, Transport& inner) {
    Meter transport(inner);
    constexpr std::uint64_t kRounds = 10;
    Values values(2 * kRounds * kPieceElements, static_cast<float>(rank));
    const Named tensor{"embedding", {values.data(), values.size(), DType::kF32}, 0};
    const auto report =
        reducer_of("direct(fp32)")->all_reduce(std::span(&tensor, 1), {}, transport, in_seconds(60));
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(values, Values(values.size(), 0.5F));
    EXPECT_EQ(transport.sent, 2 * kRounds);
    EXPECT_LT(transport.longest, 4 * kPieceElements + 1000);
    EXPECT_LT(transport.most_posted, 2 * PieceWindow::kPieces * (4 * kPieceElements + 1000));
  });
}

// What fits into one piece costs one message each way, whatever it is made of.
TEST(Pieces, OfASmallBucketIsOne) {
  run_ranks(kWorld, {}, [](int, Transport& inner) {
    Meter transport(inner);
    std::vector<Values> values(40, Values(2000, 1.0F));
    std::vector<std::string> names;
    for (std::size_t i = 0; i < values.size(); ++i) names.push_back("layer" + std::to_string(i));
    std::vector<Named> tensors;
    for (std::size_t i = 0; i < values.size(); ++i) {
      tensors.push_back({names[i], {values[i].data(), values[i].size(), DType::kF32}, 0});
    }
    const auto report = reducer_of("direct(fp32)")->all_reduce(tensors, {}, transport, in_seconds(20));
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(transport.messages.size(), 2u * (kWorld - 1));
    for (const auto& [whereto, count] : transport.messages) EXPECT_EQ(count, 1) << whereto.first;
  });
}

// Younger buckets wait for room, and all come through; what is on its way does not grow with their number.
TEST(Pieces, OfManyBucketsShareOneWindow) {
  std::map<std::size_t, std::uint64_t> posted;
  for (const std::size_t buckets : {2U, 8U}) {
    std::atomic<std::uint64_t> most = 0;
    run_ranks(kWorld, {}, [&](int rank, Transport& inner) {
      Meter transport(inner);
      const auto reducer = small_pieces("fp32");
      std::vector<Values> values(buckets, Values(60000, static_cast<float>(rank)));
      std::vector<std::string> names;
      for (std::size_t b = 0; b < buckets; ++b) names.push_back("layer" + std::to_string(b));
      for (std::uint32_t b = 0; b < buckets; ++b) {
        const Named tensor{names[b], {values[b].data(), values[b].size(), DType::kF32}, 0};
        const auto begun =
            reducer->begin(std::span(&tensor, 1), {0, b, b + 1 == buckets}, transport, in_seconds(20));
        ASSERT_TRUE(begun) << begun.error().message;
      }
      for (std::size_t b = 0; b < buckets; ++b) {
        const auto report = reducer->finish();
        ASSERT_TRUE(report) << report.error().message;
        EXPECT_EQ(values[b], Values(60000, 1.0F));
      }
      if (rank == 0) most = transport.most_posted;
    });
    posted[buckets] = most;
  }
  EXPECT_LE(posted[8], posted[2] + posted[2] / 2);
}

// A rank ends the step at its n-th message, for some n: what was encoded is folded, and what was not is kept
// as if it had been, so that nothing is lost or comes twice.
class FailedPieces : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Codecs, FailedPieces, ::testing::Values("3lc", "3lc:s=1.5", "sbc", "int8", "fp32"),
                         [](const auto& codec) {
                           return codec.param.substr(0, 4) == "3lc:" ? "sparse3lc" : codec.param;
                         });

Reducers reducers_of(const std::string& codec, const ReducerOptions& options = folding()) {
  Reducers reducers;
  // So small that the window takes a part of a strongly compressed bucket, too.
  for (int rank = 0; rank < kWorld; ++rank) reducers.push_back(small_pieces(codec, options, 320));
  return reducers;
}

// Messages that rank 1 sent.
std::size_t play(
    Reducers& reducers, std::uint64_t step, std::size_t abort_at,
    const std::function<void(int, Values&)>& change = [](int, Values&) {}) {
  std::atomic<std::size_t> sent = 0;
  run_ranks(kWorld, {}, [&](int rank, Transport& inner) {
    Meter transport(inner, rank == 1 ? abort_at : SIZE_MAX);
    Model model(rank, step);
    change(rank, model.values);
    const Values before = model.values;
    const auto report = reduce(*reducers[static_cast<std::size_t>(rank)], model, step, transport);
    const bool is_finite = std::ranges::all_of(before, [](float value) { return std::isfinite(value); });
    if (rank == 1) {
      EXPECT_EQ(report.has_value(), abort_at == SIZE_MAX && is_finite);
    }
    if (!report) {
      EXPECT_EQ(std::memcmp(model.values.data(), before.data(), 4 * before.size()), 0);
    }
    if (rank == 1) sent = transport.sent;
  });
  return sent;
}

TEST_P(FailedPieces, AreFoldedWhole) {
  Reducers reducers = reducers_of(GetParam());
  play(reducers, 0, SIZE_MAX);
  const auto before = states(reducers);
  play(reducers, 1, 0);
  const auto folded = states(reducers);
  EXPECT_FALSE(folded == before);
  for (int rank = 0; rank < kWorld; ++rank)
    ASSERT_TRUE(reducers[static_cast<std::size_t>(rank)]->load(before[static_cast<std::size_t>(rank)]));
  const std::size_t messages = play(reducers, 1, SIZE_MAX);
  ASSERT_GT(messages, 40u);
  for (std::size_t at = 1; at < messages; at += messages / testing::whole_or_brief(9U, 4U)) {
    for (int rank = 0; rank < kWorld; ++rank)
      ASSERT_TRUE(reducers[static_cast<std::size_t>(rank)]->load(before[static_cast<std::size_t>(rank)]));
    play(reducers, 1, at);
    EXPECT_TRUE(states(reducers) == folded) << "at message " << at << " of " << messages;
  }
}

// A piece that can't be encoded, amid a round, of a part that is not raw: those before it are folded, it and
// those after it are kept.
TEST(UnsentPieces, KeepWhatCameAfterAValueThatIsNotFinite) {
  for (const std::size_t spoiled :
       {std::size_t{5000}, std::size_t{20000}, std::size_t{42000}, std::size_t{86000}}) {
    std::vector<std::vector<std::vector<std::byte>>> left;
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), 0.0F}) {
      Reducers reducers = reducers_of("3lc");
      play(reducers, 0, SIZE_MAX);
      play(reducers, 1, value == 0.0F ? 0 : SIZE_MAX, [&](int rank, Values& values) {
        if (rank == 1) values[spoiled] = value;
      });
      left.push_back(states(reducers));
    }
    EXPECT_TRUE(left[0] == left[1]) << "spoiled at " << spoiled;
  }
}

}  // namespace
}  // namespace deltawire::pieces_test
