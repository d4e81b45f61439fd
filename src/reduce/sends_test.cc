// What is being sent does not change, whether it is a message's own memory, the caller's or that of means,
// and however slowly it leaves.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "reduce/forwarding_transport_testing.h"
#include "reduce/patterns/ring_plan.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::sends_test {
namespace {

using Message = std::vector<std::byte>;

Message joined(std::span<const Bytes> pieces) {
  Message all;
  for (const Bytes piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
  return all;
}

// A transport whose sends are over only when they are waited for.
class SlowSends final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) override {
    const Handle handle = ForwardingTransport::post_send(peer, tag, pieces);
    open_[handle] = {std::vector(pieces.begin(), pieces.end()), joined(pieces)};
    return handle;
  }
  bool done(Handle handle) const noexcept override {
    return !open_.contains(handle) && ForwardingTransport::done(handle);
  }
  Result<std::uint64_t> wait(Handle handle, Deadline deadline) override {
    end(handle);
    return ForwardingTransport::wait(handle, deadline);
  }
  Status wait_any(std::span<const Handle> handles, Deadline deadline) override {
    for (const Handle handle : handles) awaited_ += end(handle) ? 1 : 0;
    return ForwardingTransport::wait_any(handles, deadline);
  }

  bool are_as_posted() const {
    for (const auto& [handle, sent] : open_) {
      if (!is_as_posted(sent)) return false;
    }
    return true;
  }
  bool are_over() const noexcept { return open_.empty(); }
  int awaited() const noexcept { return awaited_; }  // among others
  // Sends under way that read this memory.
  std::size_t reading(const std::vector<float>& values) const {
    const Bytes own = std::as_bytes(std::span(values));
    std::size_t found = 0;
    for (const auto& [handle, sent] : open_) {
      for (const Bytes piece : sent.pieces) {
        if (piece.data() >= own.data() && piece.data() < own.data() + own.size()) ++found;
      }
    }
    return found;
  }

 private:
  struct Sent {
    std::vector<Bytes> pieces;
    Message posted;
  };
  bool end(Handle handle) {
    const auto sent = open_.find(handle);
    if (sent == open_.end()) return false;
    EXPECT_TRUE(is_as_posted(sent->second));
    open_.erase(sent);
    return true;
  }
  static bool is_as_posted(const Sent& sent) { return joined(sent.pieces) == sent.posted; }

  std::map<Handle, Sent> open_;
  int awaited_ = 0;
};

constexpr std::size_t kCount = 200000;  // several messages

std::vector<float> gradients(int rank, std::uint64_t bucket, std::size_t count = kCount) {
  const CounterRng random(static_cast<std::uint64_t>(rank) + 1, bucket);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.uniform_at(i) - 0.5);
  return values;
}

class Sends : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Patterns, Sends,
                         ::testing::Values("direct(fp32)", "direct(3lc)", "direct(bf16)", "gather(fp32)",
                                           "gather(3lc)", "ring(fp32)", "ring(bf16)", "powersgd:rank=2",
                                           "hierarchical:group=2(fp32)",
                                           "hierarchical:group=2,within=bf16(3lc)"),
                         [](const auto& each) { return "spec" + std::to_string(each.index); });

// Some buckets at once, or each after another, in whose memory it may be.
TEST_P(Sends, StayAsTheyArePosted) {
  constexpr std::uint32_t kBuckets = 3;
  const std::vector<std::string> names{"a", "b", "c"};
  const std::vector<std::uint64_t> dims{400, 500};
  run_ranks(3, {}, [&](int rank, Transport& mesh) {
    SlowSends transport(mesh);
    const auto reducer = reducer_of(GetParam());
    for (const std::uint32_t at_once : {1U, kBuckets}) {
      std::vector<std::vector<float>> tensors;
      for (std::uint32_t b = 0; b < kBuckets; ++b) tensors.push_back(gradients(rank, b));
      for (std::uint32_t begun = 0, b = 0; b < kBuckets; ++b) {
        for (; begun < std::min(kBuckets, b + at_once); ++begun) {
          Named tensor{names[begun], {tensors[begun].data(), kCount, DType::kF32}};
          tensor.tensor.dims = dims;
          const Step step{at_once, begun, begun + 1 == kBuckets};
          ASSERT_TRUE(reducer->begin(std::span(&tensor, 1), step, transport, in_seconds(60)));
        }
        const auto report = reducer->finish();
        ASSERT_TRUE(report) << report.error().message;
        EXPECT_TRUE(transport.are_as_posted()) << GetParam() << ", bucket " << b;
        EXPECT_EQ(transport.reading(tensors[b]), 0U) << GetParam() << ", bucket " << b;
      }
      EXPECT_TRUE(transport.are_over());
    }
  });
}

// Four ranks and hops of three messages: each buffer is wanted again while the mean in it is being passed on.
TEST(SendsOfARing, StayThoughTheirBuffersAreWantedAgain) {
  run_ranks(4, {}, [](int rank, Transport& mesh) {
    SlowSends transport(mesh);
    std::vector<float> values = gradients(rank, 0, 4 * (2 * kRingMessageElements + 17));
    const Named tensor{"w", {values.data(), values.size(), DType::kF32}};
    const auto report =
        reducer_of("ring(bf16)")->all_reduce(std::span(&tensor, 1), {0, 0, true}, transport, in_seconds(60));
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_GT(transport.awaited(), 0) << "rank " << rank;
    EXPECT_TRUE(transport.are_over());
  });
}

// Otherwise the first test shows little.
TEST(SendsOfValues, ReadTheCallersMemory) {
  for (const char* spec : {"direct(fp32)", "gather(fp32)"}) {
    run_ranks(2, {}, [&](int rank, Transport& mesh) {
      SlowSends transport(mesh);
      const auto reducer = reducer_of(spec);
      std::vector<float> values = gradients(rank, 0);
      const Named tensor{"w", {values.data(), kCount, DType::kF32}};
      ASSERT_TRUE(reducer->begin(std::span(&tensor, 1), {}, transport, in_seconds(60)));
      EXPECT_GT(transport.reading(values), 0U) << spec;
      ASSERT_TRUE(reducer->finish());
      EXPECT_EQ(transport.reading(values), 0U) << spec;
    });
  }
}

// After a failure the caller may free its tensors: nothing reads them any more.
TEST(SendsOfValues, AreOverWhenAStepHasFailed) {
  for (const char* spec : {"direct(fp32)", "gather(fp32)"}) {
    run_ranks(2, {}, [&](int rank, Transport& mesh) {
      if (rank == 1) return mesh.abort({.code = ErrorCode::kAborted, .message = "enough"});
      SlowSends transport(mesh);
      const auto reducer = reducer_of(spec);
      std::vector<float> values = gradients(rank, 0);
      const Named tensor{"w", {values.data(), kCount, DType::kF32}};
      const bool begun = reducer->begin(std::span(&tensor, 1), {}, transport, in_seconds(60)).has_value();
      if (begun) {
        EXPECT_FALSE(reducer->finish());
      }
      EXPECT_TRUE(transport.are_over()) << spec;
    });
  }
}

}  // namespace
}  // namespace deltawire::sends_test
