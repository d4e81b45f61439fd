// What an exchange holds, in bytes of this rank's heap: the bounds that docs/design/memory.md states.
#include <algorithm>
#include <cctype>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/counted_new_testing.h"
#include "base/random.h"
#include "reduce/forwarding_transport_testing.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::memory_test {
namespace {

constexpr std::size_t kTensors = 24;
constexpr std::uint64_t kCount = 100000;
constexpr std::uint64_t kColumns = 400;
// Of a model much larger than a few pieces.
const std::uint64_t kLongCount = testing::whole_or_brief<std::uint64_t>(400000, 240000);
constexpr std::size_t kInFlight = 4;  // ReduceQueue's

// A step as DDP makes it: the first has one bucket with the whole model, the later ones several.
Status step_of(Reducer& reducer, std::span<const Named> tensors, std::uint64_t number, std::size_t buckets,
               Transport& transport) {
  const std::size_t per_bucket = tensors.size() / buckets;
  std::size_t in_flight = 0;
  for (std::size_t b = 0; b < buckets; ++b) {
    const Step step{number, static_cast<std::uint32_t>(b), b + 1 == buckets};
    const auto bucket = tensors.subspan(b * per_bucket, per_bucket);
    if (Status begun = reducer.begin(bucket, step, transport, in_seconds(60)); !begun) return begun;
    if (++in_flight < kInFlight) continue;
    if (const auto done = reducer.finish(); !done) return forward_error(done);
    --in_flight;
  }
  for (; in_flight > 0; --in_flight) {
    if (const auto done = reducer.finish(); !done) return forward_error(done);
  }
  return {};
}

constexpr Revert kExact = Revert::kExact;
constexpr Revert kFold = Revert::kFold;

struct Case {
  std::string spec;
  int world;
  std::vector<std::size_t> buckets;  // of the steps, one after another
  double peak;                       // at most, in units of the gradients
  Revert revert = kExact;
  std::uint64_t count = kCount;  // of each tensor
};

// The most that any rank held, and what it held after the last step, in units of its gradients; by the heap
// and by the reducer's own counters.
struct Held {
  double peak = 0;
  double after = 0;
  double counted_peak = 0;
  double counted_after = 0;
};

// A thread that waits moves messages, early ones too, and takes the memory that the transport has for them.
// Here it counts for nobody.
class UncountedTransport final : public ForwardingTransport {
 public:
  // `count` is that of the calling thread.
  UncountedTransport(Transport& inner, testing::HeapCount& count)
      : ForwardingTransport(inner), count_(&count) {}

  Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) override {
    const Pause pause(count_);
    return ForwardingTransport::post_send(peer, tag, pieces);
  }
  Handle post_recv(int peer, Tag tag, MutBytes capacity) override {
    const Pause pause(count_);
    return ForwardingTransport::post_recv(peer, tag, capacity);
  }
  Result<std::uint64_t> wait(Handle handle, Deadline deadline) override {
    const Pause pause(count_);
    return ForwardingTransport::wait(handle, deadline);
  }
  Status wait_any(std::span<const Handle> handles, Deadline deadline) override {
    const Pause pause(count_);
    return ForwardingTransport::wait_any(handles, deadline);
  }
  Result<std::span<const Ballot>> vote(const Ballot& ballot, Deadline deadline) override {
    const Pause pause(count_);
    return ForwardingTransport::vote(ballot, deadline);
  }

 private:
  struct Pause {
    explicit Pause(testing::HeapCount* paused) : count(paused) { testing::count_heap(nullptr); }
    ~Pause() { testing::count_heap(count); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
    testing::HeapCount* count;
  };

  testing::HeapCount* count_;
};

constexpr std::size_t kDrawn = 65537;  // a prime: no two tensors begin at the same place

// Before any heap is counted, and once: for each step and rank anew it takes longer than most exchanges.
const std::vector<float> kNoise = [] {
  CounterRng random(0);
  std::vector<float> drawn(kDrawn);
  for (float& value : drawn) value = static_cast<float>(random.next_uniform() - 0.5);
  return drawn;
}();

// The noise again and again, from another place on for each step and rank.
void fill(std::span<float> values, std::uint64_t step, std::uint64_t rank) {
  std::size_t from = (10007 * step + 1009 * rank) % kDrawn;
  for (std::size_t filled = 0; filled < values.size(); from = 0) {
    const std::size_t count = std::min(kDrawn - from, values.size() - filled);
    std::ranges::copy(std::span(kNoise).subspan(from, count), values.subspan(filled).begin());
    filled += count;
  }
}

Held held_by(const Case& chosen) {
  std::vector<Held> held(static_cast<std::size_t>(chosen.world));
  run_ranks(chosen.world, {}, [&](int rank, Transport& counted) {
    std::vector<float> values(kTensors * chosen.count);
    const double gradient_bytes = 4.0 * static_cast<double>(values.size());
    std::vector<std::string> names;
    std::vector<Named> tensors;
    for (std::size_t i = 0; i < kTensors; ++i) names.push_back("layer" + std::to_string(i));
    const std::vector<std::uint64_t> dims{chosen.count / kColumns, kColumns};
    for (std::size_t i = 0; i < kTensors; ++i) {
      tensors.push_back({names[i], {values.data() + i * chosen.count, chosen.count, DType::kF32}, 0});
      tensors[i].tensor.dims = dims;
    }
    // Left to the program's end: what the transport and the test's own messages took is freed later.
    auto& heap = *new testing::HeapCount;
    testing::count_heap(&heap);
    UncountedTransport transport(counted, heap);
    ReducerOptions options;
    options.revert = chosen.revert;
    options.threads = 1;  // this thread alone is counted
    auto reducer = reducer_of(chosen.spec, options);
    for (std::size_t step = 0; step < chosen.buckets.size(); ++step) {
      fill(values, step, static_cast<std::uint64_t>(rank));
      const Status done = step_of(*reducer, tensors, step, chosen.buckets[step], transport);
      EXPECT_TRUE(done) << done.error().message;
    }
    testing::count_heap(nullptr);
    const Memory memory = reducer->memory();
    held[static_cast<std::size_t>(rank)] = {
        static_cast<double>(heap.peak_bytes) / gradient_bytes,
        static_cast<double>(heap.held_bytes) / gradient_bytes,
        static_cast<double>(memory.peak_bytes) / gradient_bytes,
        static_cast<double>(memory.residual_bytes + memory.staging_bytes + memory.message_bytes) /
            gradient_bytes};
  });
  return *std::ranges::max_element(held, {}, &Held::peak);
}

class Memories : public ::testing::TestWithParam<Case> {};

// The parts' names, and the messages' lists and slack, are 0.12 of these small gradients.
TEST_P(Memories, StayWithinTheirBounds) {
  const Held held = held_by(GetParam());
  EXPECT_LE(held.peak, GetParam().peak + 0.12);
  EXPECT_LE(held.counted_peak, held.peak);
  EXPECT_GE(held.counted_peak, held.peak - 0.25);
  EXPECT_NEAR(held.counted_after, held.after, 0.02);
}

const std::vector<std::size_t> kDdp{1, 6, 6, 6};
const std::vector<std::size_t> kOne{1, 1, 1};
const std::vector<std::size_t> kMany{24, 24, 24};

// docs/design/memory.md has the formulas. A step of six buckets has at most four in flight. How many of
// `direct`'s pieces there are at one time depends on who is ahead: what it mostly holds says nothing.
INSTANTIATE_TEST_SUITE_P(
    Specs, Memories,
    ::testing::Values(Case{"direct(fp32)", 2, kDdp, 1.5}, Case{"direct(fp32)", 2, kOne, 1.5},
                      Case{"direct(fp32)", 4, kDdp, 2.2}, Case{"direct(fp32)", 4, kOne, 2.2},
                      Case{"direct(3lc)", 2, kDdp, 3.8}, Case{"direct(3lc)", 2, kOne, 4.2},
                      Case{"direct(3lc)", 4, kDdp, 3.3}, Case{"direct(3lc)", 4, kOne, 3.6},
                      Case{"direct(3lc)", 2, kDdp, 2.8, kFold}, Case{"direct(3lc)", 4, kOne, 2.6, kFold},
                      Case{"direct(fp32)", 2, kOne, 3.5, kFold}, Case{"direct(bf16)", 4, kDdp, 3.2, kFold},
                      Case{"direct(fp32)", 2, kOne, 1.5, kExact, kLongCount},
                      Case{"direct(fp32)", 4, kOne, 1.5, kExact, kLongCount},
                      Case{"direct(fp32)", 4, kDdp, 1.5, kExact, kLongCount},
                      Case{"direct(fp32)", 4, kMany, 1.5, kExact, kLongCount},
                      Case{"direct(bf16)", 4, kOne, 1.5, kExact, kLongCount},
                      Case{"direct(gcomp)", 4, kOne, 1.5, kExact, kLongCount},
                      Case{"direct(3lc)", 4, kOne, 2.6, kFold, kLongCount},
                      Case{"direct(3lc)", 4, kOne, 3.6, kExact, kLongCount},
                      Case{"direct(int8)", 4, kMany, 2.0, kFold, kLongCount},
                      Case{"ring(fp32)", 2, kDdp, 3.0}, Case{"ring(fp32)", 4, kOne, 2.7},
                      Case{"ring(onebit)", 2, kDdp, 2.8}, Case{"ring(onebit)", 4, kOne, 3.1},
                      Case{"ring(gcomp)", 2, kDdp, 3.2}, Case{"gather(fp32)", 2, kDdp, 3.0},
                      Case{"gather(fp32)", 4, kOne, 5.0}, Case{"gather(3lc)", 2, kDdp, 3.1},
                      Case{"gather(sbc)", 4, kDdp, 3.0}, Case{"gather(sbc)", 2, kOne, 3.0},
                      Case{"gather(3lc)", 2, kDdp, 2.1, kFold}, Case{"gather(sbc)", 2, kOne, 2.0, kFold},
                      Case{"powersgd:rank=2", 4, kOne, 3.15}, Case{"powersgd:rank=2", 2, kOne, 3.15},
                      Case{"powersgd:rank=2", 4, kOne, 2.15, kFold},
                      Case{"powersgd:rank=2", 4, kDdp, 2.15, kFold}),
    [](const auto& chosen) {
      std::string name = chosen.param.spec;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name + std::to_string(chosen.param.world) + "_" + std::to_string(chosen.param.buckets.back()) +
             (chosen.param.revert == kFold ? "_fold" : "") + (chosen.param.count == kCount ? "" : "_long");
    });

// The first step's bucket has the whole model; the later ones have no use for its memory.
TEST(Memories, WhatNoStepHasUsedForLongIsFreed) {
  run_ranks(2, {}, [&](int, Transport& transport) {
    std::vector<float> values(kCount, 1.0F);
    const Named whole{"w", {values.data(), kCount, DType::kF32}};
    const Named half{"w", {values.data(), kCount / 2, DType::kF32}};
    const auto reducer = reducer_of("direct(fp32)");
    const auto held = [&] { return reducer->memory().staging_bytes + reducer->memory().message_bytes; };
    std::uint64_t first = 0;
    for (std::uint64_t step = 0; step < 40; ++step) {
      const Named& tensor = step == 0 ? whole : half;
      ASSERT_TRUE(reducer->all_reduce(std::span(&tensor, 1), {step, 0, true}, transport, in_seconds(60)));
      if (step == 0) first = held();
      EXPECT_LE(held(), first) << step;
    }
    EXPECT_LE(held(), first / 2 + 10000);
  });
}

// What a bucket notes down goes with it: a long run holds no more than a short one.
TEST(Memories, AThousandStepsHoldWhatOneDoes) {
  for (const char* spec : {"direct(fp32)", "ring(fp32)", "gather(fp32)"}) {
    run_ranks(2, {}, [&](int, Transport& counted) {
      std::vector<float> values(100, 1.0F);
      const Named tensor{"w", {values.data(), values.size(), DType::kF32}, 0};
      auto& heap = *new testing::HeapCount;
      testing::count_heap(&heap);
      UncountedTransport transport(counted, heap);
      const auto reducer = reducer_of(spec);
      std::int64_t early = 0;
      for (std::uint64_t step = 0; step < 1050; ++step) {
        if (step == 50) early = heap.held_bytes;
        ASSERT_TRUE(reducer->all_reduce(std::span(&tensor, 1), {step, 0, true}, transport, in_seconds(60)));
      }
      EXPECT_LT(heap.held_bytes - early, 2000) << spec;
      testing::count_heap(nullptr);
    });
  }
}

// Names and dims are copied, and names put into a hash, in the step that first has them. Here a name is
// longer than all else together.
TEST(Memories, AStepOfKnownTensorsCopiesNoName) {
  constexpr std::size_t kNameBytes = 200000;
  for (const char* spec :
       {"direct(3lc)", "ring(gcomp)", "gather(sbc)", "direct(*b: int8, rest fp32)", "powersgd"}) {
    run_ranks(2, {}, [&](int, Transport& transport) {
      const std::vector<std::uint64_t> dims{20, 30};
      std::vector<float> values(1000, 1.0F);
      const std::string first = std::string(kNameBytes, 'a');
      const std::string second = first + 'b';
      std::vector<Named> tensors{{first, {values.data(), 600, DType::kF32}},
                                 {second, {values.data() + 600, 400, DType::kF32}}};
      tensors[0].tensor.dims = dims;
      const auto reducer = reducer_of(spec);
      const auto step = [&](std::uint64_t number) {
        auto& heap = *new testing::HeapCount;
        testing::count_heap(&heap);
        const auto reduced = reducer->all_reduce(tensors, {number, 0, true}, transport, in_seconds(60));
        testing::count_heap(nullptr);
        EXPECT_TRUE(reduced) << reduced.error().message;
        return heap.peak_bytes.load();
      };
      EXPECT_GT(step(0), std::int64_t{2 * kNameBytes}) << spec;
      for (std::uint64_t number = 1; number < 4; ++number) {
        EXPECT_LT(step(number), std::int64_t{kNameBytes}) << spec;
      }
    });
  }
}

// After a failed step nothing is held but residuals, and scratch, of which this codec needs none.
TEST(Memories, AFailedStepGivesEverythingBack) {
  run_ranks(2, {}, [](int rank, Transport& transport) {
    std::vector<float> values(kCount, 1.0F);
    const Named tensor{"w", {values.data(), kCount, DType::kF32}, 0};
    const auto reducer = reducer_of("direct(onebit)");
    ASSERT_TRUE(reducer->begin(std::span(&tensor, 1), {}, transport, in_seconds(20)));
    EXPECT_GT(reducer->memory().message_bytes, 0u);
    EXPECT_GT(reducer->memory().staging_bytes, 0u);
    if (rank == 0) transport.abort({ErrorCode::kAborted, "test", 0});
    while (reducer->finish()) {
    }
    EXPECT_EQ(reducer->memory().staging_bytes, 0u);
    EXPECT_EQ(reducer->memory().message_bytes, 0u);
    EXPECT_GE(reducer->memory().residual_bytes, 4 * kCount);
  });
}

}  // namespace
}  // namespace deltawire::memory_test
