// A step that is like the steps before it allocates nothing.
#include <algorithm>
#include <array>
#include <barrier>
#include <numeric>

#include "base/counted_new_testing.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::steady_step_test {
namespace {

constexpr int kWorld = 3;
constexpr std::size_t kHeaderBytes = 32;
// The lengths of the messages to each peer.
constexpr std::array<std::size_t, 5> kLengths{0, 1, 5000, 70000, 300000};
constexpr std::size_t kMessages = kLengths.size() * (kWorld - 1);
constexpr std::uint64_t kBytes =
    (kWorld - 1) * std::accumulate(kLengths.begin(), kLengths.end(), kLengths.size() * kHeaderBytes);

// One end of a message, and its memory.
struct End {
  int peer;
  Tag tag;
  std::vector<std::byte> bytes;
  std::vector<std::byte> expected;
  Handle handle = Handle::kNone;
};

// A rank that exchanges messages with all others and votes, step after step, and takes all its memory before.
class Stepper {
 public:
  explicit Stepper(Transport& self) : self_(self) {
    for (int peer = 0; peer < kWorld; ++peer) {
      if (peer == self.rank()) continue;
      for (Tag tag = 0; tag < kLengths.size(); ++tag) {
        sends_.push_back({peer, tag, content(self.rank(), peer, tag), {}});
        receives_.push_back(
            {peer, tag, std::vector<std::byte>(kLengths[tag]), content(peer, self.rank(), tag)});
      }
    }
  }

  void post_sends() {
    for (End& send : sends_) {
      const Bytes whole(send.bytes);
      const std::array<Bytes, 3> pieces{whole.first(whole.size() / 3), {}, whole.subspan(whole.size() / 3)};
      send.handle = self_.post_send(send.peer, send.tag, pieces);
    }
  }
  void post_receives() {
    for (std::size_t i = kMessages; i-- > 0;) {
      std::ranges::fill(receives_[i].bytes, std::byte{0xEE});
      receives_[i].handle = handles_[i] =
          self_.post_recv(receives_[i].peer, receives_[i].tag, receives_[i].bytes);
    }
  }
  // Waits until this rank holds all that the others sent in this step, as unexpected messages.
  void await_unexpected() const {
    while (self_.traffic().bytes_received < received_ + kBytes) std::this_thread::sleep_for(1ms);
  }

  bool finish(std::uint64_t step) {
    bool good = true;
    for (std::size_t i = 0; i < kMessages; ++i) {
      while (!self_.done(handles_[i])) good = self_.wait_any(std::span(handles_).subspan(i), soon()) && good;
      good = self_.wait(handles_[i], soon()) && receives_[i].bytes == receives_[i].expected && good;
    }
    for (const End& send : sends_) good = self_.wait(send.handle, soon()) && good;
    good = self_.vote({step, 7}, soon()) && good;
    received_ = self_.traffic().bytes_received;
    return good;
  }

 private:
  static std::vector<std::byte> content(int from, int to, Tag tag) {
    return pattern(kLengths[tag], tag * 100 + static_cast<std::uint64_t>(from * 10 + to));
  }

  Transport& self_;
  std::vector<End> sends_, receives_;
  std::array<Handle, kMessages> handles_{};  // of the receives
  std::uint64_t received_ = 0;               // bytes, when the step began
};

class SteadyStep : public ::testing::TestWithParam<MeshKind> {};
INSTANTIATE_TEST_SUITE_P(Meshes, SteadyStep,
                         ::testing::Values(MeshKind::kInproc, MeshKind::kTcp, MeshKind::kTls),
                         mesh_kind_name);

// After ten steps without an unexpected message, all messages are unexpected in every other step.
TEST_P(SteadyStep, TakesNoMemory) {
  constexpr std::uint64_t kSteps = 30;
  Ranks ranks = connect_ranks(GetParam(), kWorld);
  ASSERT_EQ(ranks.size(), static_cast<std::size_t>(kWorld));
  std::barrier together(kWorld);
  std::array<bool, kWorld> good{};
  std::int64_t in_warm_up = 0;
  std::int64_t after = 0;
  run_ranks(kWorld, [&](int rank) {
    Transport& self = *ranks[static_cast<std::size_t>(rank)];
    Stepper stepper(self);
    bool all_good = true;
    together.arrive_and_wait();
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      if (rank == 0 && step == 0) testing::arm_failure(-1, 0);
      together.arrive_and_wait();
      self.arrive(step);
      const bool unexpected = step >= 10 && step % 2 == 0;
      if (!unexpected) stepper.post_receives();
      together.arrive_and_wait();
      stepper.post_sends();
      if (unexpected) {
        stepper.await_unexpected();
        stepper.post_receives();
      }
      all_good = stepper.finish(step) && all_good;
      together.arrive_and_wait();
      if (rank == 0 && step == 9) {
        in_warm_up = testing::disarm_failure();
        testing::arm_failure(-1, 0);
      }
    }
    if (rank == 0) after = testing::disarm_failure();
    together.arrive_and_wait();
    good[static_cast<std::size_t>(rank)] = all_good;
  });
  for (const bool each : good) EXPECT_TRUE(each);
  EXPECT_GT(in_warm_up, 0);
  EXPECT_EQ(after, 0);
}

}  // namespace
}  // namespace deltawire::test::steady_step_test
