#include "transport/links/carried_lines.h"

#include <atomic>
#include <string>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "transport/links/memory_carrier_testing.h"
#include "transport/mesh_testing.h"

namespace deltawire::test {
namespace {

// Fails or holds up what rank 0 sends, once it was told to.
class Faulty final : public MemoryCarrier {
 public:
  enum class Fault { kNone, kFails, kStays };
  using MemoryCarrier::MemoryCarrier;
  ~Faulty() override { *ended_ = true; }
  Faulty(const Faulty&) = delete;
  Faulty& operator=(const Faulty&) = delete;

  bool send(int peer, Bytes bytes) noexcept override {
    if (fault == Fault::kFails) return false;
    while (fault == Fault::kStays) std::this_thread::sleep_for(5ms);
    return MemoryCarrier::send(peer, bytes);
  }

  std::atomic<Fault> fault = Fault::kNone;
  std::shared_ptr<std::atomic<bool>> ended_ = std::make_shared<std::atomic<bool>>(false);
};

class CarriedLines : public ::testing::Test {
 protected:
  CarriedLines() : links_(2) {
    faulty_ = std::make_shared<Faulty>(queues_, 0);
    links_[0].carrier = faulty_;
    links_[1].carrier = std::make_shared<MemoryCarrier>(queues_, 1);
    ranks_ = connect_threads_over_tcp(2, links_);
    links_.clear();
    exchange();
  }

  void exchange() {
    run_ranks(2, [this](int rank) { exchange_once(*ranks_[static_cast<std::size_t>(rank)]); });
  }

  const std::shared_ptr<Queues> queues_ = std::make_shared<Queues>();
  std::shared_ptr<Faulty> faulty_;
  std::vector<LinkOptions> links_;
  Ranks ranks_;
};

TEST_F(CarriedLines, TheCarrierMovesAllBytesOfMessages) {
  EXPECT_EQ(queues_->carried, 2 * (5000 + 32));
  EXPECT_EQ(ranks_[0]->shared_areas(), nullptr);
}

TEST_F(CarriedLines, ACarrierThatFailsEndsTheMeshOnBothRanks) {
  faulty_->fault = Faulty::Fault::kFails;
  run_ranks(2, [this](int rank) {
    Transport& self = *ranks_[static_cast<std::size_t>(rank)];
    std::vector<std::byte> got(5000);
    if (rank == 0) send_and_forget(self, 1, 1, pattern(5000, 3));
    testing::expect_refused(self.wait(self.post_recv(1 - rank, 1, got), soon()), ErrorCode::kPeerLost,
                            "was cut while its control connection still stands");
  });
}

TEST_F(CarriedLines, AHeldUpCallMissesTheDeadlineAndIsLeftBehind) {
  faulty_->fault = Faulty::Fault::kStays;
  const auto bytes = pattern(5000, 3);
  std::vector<std::byte> got(5000);
  (void)send_bytes(*ranks_[0], 1, 1, bytes);
  testing::expect_refused(ranks_[1]->wait(ranks_[1]->post_recv(0, 1, got), in(2s)), ErrorCode::kTimeout, 0);
  ranks_.clear();  // does not wait for the call
  const auto ended = faulty_->ended_;
  faulty_->fault = Faulty::Fault::kNone;
  faulty_.reset();
  for (const Deadline end = soon(); !*ended && Clock::now() < end;) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(*ended) << "the thread has not ended with its call";
}

}  // namespace
}  // namespace deltawire::test
