// What only the ring has: messages of a hop that follow each other, and buffers that take turns.
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "reduce/forwarding_transport_testing.h"
#include "reduce/patterns/ring_plan.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::ring_test {
namespace {

// More elements than one message holds, on each rank.
std::vector<float> long_tensor(int rank, std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), static_cast<float>(rank));
  return values;
}

std::vector<float> reduced(const char* spec, const ReducerOptions& options, std::size_t count,
                           std::uint64_t* bytes_sent) {
  std::vector<std::vector<float>> results(2);
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of(spec, options);
    std::vector<float> values = long_tensor(rank, count);
    const Named tensor{"w", {values.data(), count, DType::kF32}, 0};
    const auto report = reducer->all_reduce(std::span(&tensor, 1), {0, 0, true}, transport, in_seconds(20));
    ASSERT_TRUE(report) << report.error().message;
    if (rank == 0) *bytes_sent = report->bytes_sent;
    results[static_cast<std::size_t>(rank)] = values;
  });
  EXPECT_EQ(results[0], results[1]);
  return results[0];
}

TEST(Ring, ThreadsChangeNothing) {
  constexpr std::size_t kCount = 2 * kRingMessageElements + 17;
  ReducerOptions three;
  three.threads = 3;
  std::uint64_t bytes = 0;
  std::uint64_t bytes_of_three = 0;
  for (const char* spec : {"ring(gcomp)", "gather(gcomp)", "direct(gcomp:cut=6)"}) {
    EXPECT_EQ(reduced(spec, {}, kCount, &bytes), reduced(spec, three, kCount, &bytes_of_three)) << spec;
    EXPECT_EQ(bytes, bytes_of_three) << spec;
  }
}

TEST(Ring, SendsTwoTensorsLessTheOwnShare) {
  constexpr std::size_t kCount = 4 * kRingMessageElements;
  run_ranks(4, {}, [](int rank, Transport& transport) {
    const auto reducer = reducer_of("ring(fp32)");
    std::vector<float> values = long_tensor(rank, kCount);
    const Named tensor{"w", {values.data(), kCount, DType::kF32}, 0};
    const auto report = reducer->all_reduce(std::span(&tensor, 1), {0, 0, true}, transport, in_seconds(20));
    ASSERT_TRUE(report) << report.error().message;
    const double expected = 2.0 * 3 / 4 * 4 * kCount;
    EXPECT_NEAR(static_cast<double>(report->bytes_sent), expected, 0.002 * expected);
  });
}

// Sends end late, at the first wait that could be for them; until then their memory is looked after.
class LateSends final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) override {
    const Handle handle = ForwardingTransport::post_send(peer, tag, pieces);
    sending_[handle].assign(pieces.begin(), pieces.end());
    return handle;
  }
  Handle post_recv(int peer, Tag tag, MutBytes capacity) override {
    for (const auto& [handle, pieces] : sending_) {
      for (const Bytes piece : pieces) {
        const bool apart = piece.data() + piece.size() <= capacity.data() ||
                           capacity.data() + capacity.size() <= piece.data();
        if (!apart) ++overlaps_;
      }
    }
    return ForwardingTransport::post_recv(peer, tag, capacity);
  }
  bool done(Handle handle) const noexcept override {
    return !sending_.contains(handle) && ForwardingTransport::done(handle);
  }
  Result<std::uint64_t> wait(Handle handle, Deadline deadline) override {
    sending_.erase(handle);
    return ForwardingTransport::wait(handle, deadline);
  }
  Status wait_any(std::span<const Handle> handles, Deadline deadline) override {
    const Status status = ForwardingTransport::wait_any(handles, deadline);
    for (const Handle handle : handles) {
      if (ForwardingTransport::done(handle) && sending_.erase(handle) > 0) ++awaited_;
    }
    return status;
  }
  int overlaps() const noexcept { return overlaps_; }
  int awaited() const noexcept { return awaited_; }

 private:
  std::map<Handle, std::vector<Bytes>> sending_;
  int overlaps_ = 0;
  int awaited_ = 0;
};

// Four ranks and hops of three messages: each buffer is wanted again while the mean in it is being passed on.
TEST(Ring, ABufferIsNotReceivedIntoWhileItIsPassedOn) {
  constexpr std::size_t kCount = 4 * (2 * kRingMessageElements + 17);
  run_ranks(4, {}, [](int rank, Transport& transport) {
    LateSends late(transport);
    std::vector<float> values = long_tensor(rank, kCount);
    const Named tensor{"w", {values.data(), kCount, DType::kF32}, 0};
    const auto reducer = reducer_of("ring(bf16)");
    const auto report = reducer->all_reduce(std::span(&tensor, 1), {0, 0, true}, late, in_seconds(60));
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(late.overlaps(), 0) << "rank " << rank;
    EXPECT_GT(late.awaited(), 0) << "rank " << rank;
  });
}

TEST(Ring, CannotMaskMomentum) {
  std::vector<float> momentum(10);
  EXPECT_EQ(reducer_of("ring(fp32)")->mask_sent("w", momentum).error().code, ErrorCode::kInvalidArgument);
}

// What it sends is others' too: neither can a rank's momentum be added to it.
TEST(Ring, RefusesFeedback) {
  const auto refused = make_reducer("ring(rest sbc with momentum=0.9)");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("partial sums"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace deltawire::ring_test
