// Values that ranks of one machine read where they lie: the means are those of messages, bit for bit, however
// little room there is and however slow a rank.
#include "reduce/patterns/shared_values.h"

#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/float16.h"
#include "base/little_endian.h"
#include "base/random.h"
#include "base/refusal_testing.h"
#include "reduce/forwarding_transport_testing.h"
#include "reduce/patterns/patterns.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::shared_values_test {
namespace {

constexpr std::uint64_t kPiece = 3200;

using Values = std::vector<float>;

// Several pieces for each owner, of one part and of many.
struct Model : Layers {
  Model(int rank, std::uint64_t step) : Layers({100, 40000, 3000, 30, 17000, 200, 9999}) {
    const CounterRng random(step * 16 + static_cast<std::uint64_t>(rank));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto bits = static_cast<std::uint32_t>(random.at(i));
      values[i] = i % 5 == 0 ? -0.0F : static_cast<float>(bits) * 0x1p-31F - 1;
    }
  }
};

// A rank that shares memory with the others of its mesh, as processes of one machine do.
class Sharing : public ForwardingTransport {
 public:
  Sharing(Transport& inner, std::unique_ptr<SharedAreas> areas)
      : ForwardingTransport(inner), areas_(std::move(areas)) {}

  SharedAreas* shared_areas() noexcept override { return areas_.get(); }
  Result<std::span<const Ballot>> vote(const Ballot& ballot, Deadline deadline) override {
    auto ballots = ForwardingTransport::vote(ballot, deadline);
    if (ballots) areas_->own().note_vote();
    return ballots;
  }
  Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) override {
    std::uint64_t bytes = 0;
    for (const Bytes piece : pieces) bytes += piece.size();
    longest = std::max(longest, bytes);
    return ForwardingTransport::post_send(peer, tag, pieces);
  }

  std::uint64_t longest = 0;  // of the messages that it sent

 private:
  std::unique_ptr<SharedAreas> areas_;
};

std::vector<std::unique_ptr<SharedAreas>> areas_of(int world) {
  const auto ranks = static_cast<std::size_t>(world);
  std::vector<OwnArea> own;
  for (std::size_t rank = 0; rank < ranks; ++rank) own.push_back(OwnArea::make());
  std::vector<std::vector<PeerArea>> peers(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t other = 0; other < ranks; ++other) {
      peers[rank].emplace_back();
      if (other == rank) continue;
      peers[rank].back() = PeerArea::take(GuardedFd::open([&] { return ::dup(own[other].file().get()); }));
      EXPECT_TRUE(peers[rank].back());
    }
  }
  std::vector<std::unique_ptr<SharedAreas>> areas;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    areas.push_back(std::make_unique<SharedAreas>(std::move(own[rank]), std::move(peers[rank])));
  }
  return areas;
}

std::unique_ptr<WakeableReducer> direct(const std::string& codec) {
  auto made = make_direct_reducer(codec, {}, kPiece);
  EXPECT_TRUE(made);
  return std::move(*made);
}

struct Outcome {
  std::vector<Values> means;  // by step
  std::vector<Report> reports;
};

// Steps with one bucket each.
Outcome run_steps(const std::string& codec, int rank, Transport& transport, std::uint64_t steps) {
  const auto reducer = direct(codec);
  Outcome outcome;
  for (std::uint64_t step = 0; step < steps; ++step) {
    Model model(rank, step);
    const auto report = reducer->all_reduce(model.tensors, {step, 0, true}, transport, in_seconds(20));
    EXPECT_TRUE(report) << report.error().message;
    if (!report) break;
    outcome.means.push_back(model.values);
    outcome.reports.push_back(*report);
  }
  return outcome;
}

std::vector<Outcome> run_by_messages(const std::string& codec, int world, std::uint64_t steps) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(world));
  run_ranks(world, {}, [&](int rank, Transport& transport) {
    outcomes[static_cast<std::size_t>(rank)] = run_steps(codec, rank, transport, steps);
  });
  return outcomes;
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), sizeof(float) * a.size()) == 0;
}

class SharedValuesOf : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, SharedValuesOf, ::testing::Values(2, 3, 5));

// Also means that codecs have changed, of sparse ones, and where pushes are coded and means are not.
TEST_P(SharedValuesOf, MeansAreThoseOfMessagesBitForBit) {
  const int world = GetParam();
  for (const std::string codec : {"fp32", "bf16", "3lc", "layer1: sbc:p=1%, rest fp32", "topk:k=1%"}) {
    const auto expected = run_by_messages(codec, world, 3);
    auto areas = areas_of(world);
    run_ranks(world, {}, [&](int rank, Transport& inner) {
      const auto own = static_cast<std::size_t>(rank);
      Sharing transport(inner, std::move(areas[own]));
      const Outcome got = run_steps(codec, rank, transport, 3);
      ASSERT_EQ(got.means.size(), 3u);
      for (std::size_t step = 0; step < 3; ++step) {
        EXPECT_TRUE(same_bits(got.means[step], expected[own].means[step])) << codec << ", step " << step;
        EXPECT_EQ(got.reports[step].digest, expected[own].reports[step].digest) << codec;
        EXPECT_EQ(got.reports[step].bytes_sent, expected[own].reports[step].bytes_sent) << codec;
        EXPECT_EQ(got.reports[step].raw_bytes, expected[own].reports[step].raw_bytes) << codec;
      }
      EXPECT_GT(transport.shared_areas()->own().held_bytes(), 0u) << codec;
      EXPECT_TRUE(codec != "fp32" || transport.longest < 1000) << "values went by messages";
    });
  }
}

// Where it lies is said only as long as there is room: what has none is sent, and others may have room.
TEST_P(SharedValuesOf, WithoutRoomItIsSent) {
  const int world = GetParam();
  for (const std::string codec : {"fp32", "bf16"}) {
    const auto expected = run_by_messages(codec, world, 3);
    for (const std::size_t room : {std::size_t{0}, std::size_t{20000}, std::size_t{110000}}) {
      auto areas = areas_of(world);
      ASSERT_FALSE(areas[0]->own().take(OwnArea::kBytes - room, OwnArea::Use::kNow).empty());
      run_ranks(world, {}, [&](int rank, Transport& inner) {
        const auto own = static_cast<std::size_t>(rank);
        Sharing transport(inner, std::move(areas[own]));
        const Outcome got = run_steps(codec, rank, transport, 3);
        for (std::size_t step = 0; step < got.means.size(); ++step) {
          EXPECT_TRUE(same_bits(got.means[step], expected[own].means[step])) << "step " << step;
          EXPECT_EQ(got.reports[step].digest, expected[own].reports[step].digest);
        }
        EXPECT_TRUE(codec != "fp32" || (transport.longest > 1000) == (rank == 0)) << "with room for " << room;
      });
    }
  }
}

// Means of 16-bit tensors are shared as float32, and rounded when they are published. One that its dtype
// can't hold is named alike by all ranks: the first tensor's, whichever came first.
TEST_P(SharedValuesOf, TensorsOf16Bits) {
  const int world = GetParam();
  auto areas = areas_of(world);
  run_ranks(world, {}, [&](int rank, Transport& inner) {
    Sharing transport(inner, std::move(areas[static_cast<std::size_t>(rank)]));
    const auto reducer = direct("topk:k=0.004");  // one of 300; the other waits, and is 120,000 in step 1
    const auto half = [](float value) { return f16_of(std::bit_cast<std::uint32_t>(value)); };
    for (const std::uint64_t step : {0U, 1U}) {
      std::vector<std::vector<std::uint16_t>> own(4, std::vector<std::uint16_t>(300, 0));
      std::vector<Named> tensors;
      for (std::size_t i = 0; i < own.size(); ++i) {
        own[i][0] = half(step == 0 ? 65000.0F : 1.0F);
        own[i][1] = half(i == 0 ? 1.0F : 60000.0F);
        tensors.push_back({std::string_view("abcd").substr(i, 1), {own[i].data(), 300, DType::kF16}});
      }
      const auto report = reducer->all_reduce(tensors, {step, 0, true}, transport, in_seconds(20));
      ASSERT_EQ(report.has_value(), step == 0);
      EXPECT_EQ(own[1][0], half(step == 0 ? 65000.0F : 1.0F));
      if (report) continue;
      EXPECT_NE(report.error().message.find("tensor 'b': a mean is"), std::string::npos)
          << report.error().message;
    }
  });
}

// A rank copies a bucket's means late, when their owner has long had all that it needs for the next ones: for
// those of the same step it takes other memory, for those of the next it waits.
class SharedMeansOf : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Codecs, SharedMeansOf, ::testing::Values("fp32", "bf16"));

TEST_P(SharedMeansOf, StayUntilTheSlowestHasCopiedThem) {
  constexpr std::uint64_t kSteps = 3;
  constexpr std::uint32_t kBuckets = 3;
  auto areas = areas_of(2);
  std::vector<std::vector<Values>> means(2);
  run_ranks(2, {}, [&](int rank, Transport& inner) {
    Sharing transport(inner, std::move(areas[static_cast<std::size_t>(rank)]));
    const auto reducer = direct(GetParam());
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      std::vector<std::unique_ptr<Model>> models;
      const auto begin = [&](std::uint32_t bucket) {
        models.push_back(std::make_unique<Model>(rank, step * kBuckets + bucket));
        const Bucket whole{models.back()->tensors, {}};
        const Status begun =
            reducer->begin(whole, {step, bucket, bucket + 1 == kBuckets}, transport, in_seconds(20));
        EXPECT_TRUE(begun) << begun.error().message;
      };
      const auto finish = [&] {
        const auto report = reducer->finish();
        EXPECT_TRUE(report) << report.error().message;
      };
      // The slow rank gives all that it has before it takes anything.
      for (std::uint32_t bucket = 0; bucket < kBuckets; ++bucket) {
        begin(bucket);
        if (rank == 1) finish();
      }
      for (std::uint32_t bucket = 0; rank == 0 && bucket < kBuckets; ++bucket) {
        Result<bool> complete = false;
        while (complete && !*complete) complete = reducer->advance();
        EXPECT_TRUE(complete);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the others go on, as far as they can
        finish();
      }
      for (const auto& model : models) means[static_cast<std::size_t>(rank)].push_back(model->values);
    }
  });
  ASSERT_EQ(means[0].size(), kSteps * kBuckets);
  const auto expected = run_by_messages(GetParam(), 2, kSteps * kBuckets);
  for (std::size_t i = 0; i < means[0].size(); ++i) {
    EXPECT_TRUE(same_bits(means[0][i], expected[0].means[i])) << i;
    EXPECT_TRUE(same_bits(means[1][i], expected[0].means[i])) << i;
  }
}

// The slow rank has voted, and not published.
class SlowAfterVote final : public Sharing {
 public:
  using Sharing::Sharing;
  Result<std::span<const Ballot>> vote(const Ballot& ballot, Deadline deadline) override {
    auto ballots = Sharing::vote(ballot, deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return ballots;
  }
};

TEST_P(SharedMeansOf, StayWhileARankThatHasVotedCopiesThem) {
  const auto expected = run_by_messages(GetParam(), 3, 4);
  auto areas = areas_of(3);
  run_ranks(3, {}, [&](int rank, Transport& inner) {
    const auto own = static_cast<std::size_t>(rank);
    std::unique_ptr<Sharing> transport = rank == 1
                                             ? std::make_unique<SlowAfterVote>(inner, std::move(areas[own]))
                                             : std::make_unique<Sharing>(inner, std::move(areas[own]));
    const Outcome got = run_steps(GetParam(), rank, *transport, 4);
    ASSERT_EQ(got.means.size(), 4u);
    for (std::size_t step = 0; step < 4; ++step) {
      EXPECT_TRUE(same_bits(got.means[step], expected[own].means[step])) << "step " << step;
    }
    // One step's means and the pushes of a window, page by page.
    EXPECT_LT(transport->shared_areas()->own().held_bytes(), 4 * expected[0].means[0].size());
  });
}

// A rank whose notes are wrong.
class Liar final : public Sharing {
 public:
  enum class Lie { kPlace, kLength, kUneven, kLayout, kLess };
  Liar(Transport& inner, std::unique_ptr<SharedAreas> areas, Lie lie)
      : Sharing(inner, std::move(areas)), lie_(lie) {}
  Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) override {
    std::byte* const note = const_cast<std::byte*>(pieces.front().data());
    if (!SharedValues::is_note(pieces.front())) return Sharing::post_send(peer, tag, pieces);
    if (lie_ == Lie::kPlace) store_le(note + 8, std::uint64_t{1} << 40);
    if (lie_ == Lie::kLength) store_le(note + 16, UINT64_MAX);
    if (lie_ == Lie::kUneven) store_le(note + 8, load_le<std::uint64_t>(note + 8) + 1);
    if (lie_ == Lie::kLayout) store_le(note + 40, load_le<std::uint32_t>(note + 40) ^ 1U);
    if (lie_ == Lie::kLess) store_le(note + 16, load_le<std::uint64_t>(note + 16) - 4);
    return Sharing::post_send(peer, tag, pieces);
  }

 private:
  Lie lie_;
};

void expect_refused(const std::string& codec, Liar::Lie lie, ErrorCode code = ErrorCode::kCorrupt) {
  auto areas = areas_of(2);
  run_ranks(2, {}, [&](int rank, Transport& inner) {
    const auto own = static_cast<std::size_t>(rank);
    std::unique_ptr<Sharing> transport = rank == 1 ? std::make_unique<Liar>(inner, std::move(areas[own]), lie)
                                                   : std::make_unique<Sharing>(inner, std::move(areas[own]));
    Model model(rank, 0);
    const Values before = model.values;
    testing::expect_refused(
        direct(codec)->all_reduce(model.tensors, {0, 0, true}, *transport, in_seconds(20)), code, 1);
    EXPECT_TRUE(same_bits(model.values, before));
  });
}

TEST(SharedValues, AWrongNoteNamesItsSender) {
  using Lie = Liar::Lie;
  for (const std::string codec : {"fp32", "3lc"}) {  // of the latter the means
    for (const auto lie : {Lie::kPlace, Lie::kLength, Lie::kUneven}) expect_refused(codec, lie);
    for (const auto lie : {Lie::kLayout, Lie::kLess}) expect_refused(codec, lie, ErrorCode::kMismatch);
  }
}

TEST(SharedValues, MemoryThatCannotBeMappedIsAnErrorThatSaysWhatToDo) {
  auto areas = areas_of(2);
  areas[0] = std::make_unique<SharedAreas>(OwnArea(), std::vector<PeerArea>(2));
  run_ranks(2, {}, [&](int rank, Transport& inner) {
    Sharing transport(inner, std::move(areas[static_cast<std::size_t>(rank)]));
    Model model(rank, 0);
    testing::expect_refused(
        direct("fp32")->all_reduce(model.tensors, {0, 0, true}, transport, in_seconds(20)),
        ErrorCode::kSystem, 0, {"DELTAWIRE_SHARED_MEMORY=off"});
  });
}

}  // namespace
}  // namespace deltawire::shared_values_test
