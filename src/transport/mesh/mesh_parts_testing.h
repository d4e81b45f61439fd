// For tests of a mesh's parts: one rank, with links to its peers in memory.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "transport/links/playback_link_testing.h"
#include "transport/mesh/engine.h"

namespace deltawire::test {

class MemoryLink final : public PlaybackLink {
 public:
  explicit MemoryLink(int fd) noexcept : fd_(fd) {}
  int fd() const noexcept override { return fd_; }  // of no file
  std::size_t unacknowledged() noexcept override { return unacknowledged_bytes; }

  std::size_t unacknowledged_bytes = 0;

 private:
  int fd_;
};

// The links, which live as long as the peers.
class MemoryLinks {
 public:
  MemoryLinks(int self, int world_size) : world_(static_cast<std::size_t>(world_size)) {
    for (int rank = 0; rank < world_size; ++rank) {
      if (rank == self) continue;
      Ends& ends = world_[static_cast<std::size_t>(rank)];
      auto data = std::make_unique<MemoryLink>(data_fd(rank));
      auto control = std::make_unique<MemoryLink>(control_fd(rank));
      ends.data = data.get();
      ends.control = control.get();
      ends.links = {std::move(data), std::move(control)};
    }
  }

  static int data_fd(int rank) noexcept { return 1'000'000 + 2 * rank; }
  static int control_fd(int rank) noexcept { return 1'000'001 + 2 * rank; }

  // May be called once.
  std::vector<PeerLinks> take() {
    std::vector<PeerLinks> links;
    for (Ends& ends : world_) links.push_back(std::move(ends.links));
    return links;
  }

  MemoryLink& data(int rank) { return *world_[static_cast<std::size_t>(rank)].data; }
  MemoryLink& control(int rank) { return *world_[static_cast<std::size_t>(rank)].control; }

  // The peer sends this; the next read returns it.
  void say(int rank, const ControlMessage& message) {
    std::vector<std::byte> bytes;
    append_control_message(message, static_cast<int>(world_.size()), bytes);
    control(rank).add(bytes);
  }
  // What was sent to it since the last call.
  std::vector<ControlMessage> said_to(int rank) {
    std::vector<ControlMessage> messages;
    EXPECT_TRUE(ControlParser(static_cast<int>(world_.size())).feed(control(rank).sent, messages));
    control(rank).sent.clear();
    return messages;
  }

 private:
  struct Ends {
    MemoryLink* data = nullptr;
    MemoryLink* control = nullptr;
    PeerLinks links;
  };
  std::vector<Ends> world_;
};

inline GuardedFd open_eventfd() {
  return GuardedFd::open([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
}

// Rank `self` in parts, without threads: a test uses the parts that it is about.
struct MeshParts {
  explicit MeshParts(int self = 0, int world_size = 3) : links(self, world_size), peers(self, links.take()) {}

  // An operation that was posted, as far as the table knows.
  Operation& post(int peer, Operation::Kind kind = Operation::Kind::kReceive) {
    Operation& posted = operations.add();
    posted.kind = kind;
    posted.peer = peer;
    return posted;
  }

  MemoryLinks links;
  Peers peers;
  OperationTable operations;
  Waiters waiters{operations};
  Driver driver{open_eventfd(), Streams::entries_for(peers.world_size()), waiters};
  StepSequence steps{peers};
  Consensus consensus{peers, waiters, driver};
  WaitAnnouncer announcer{peers, waiters, steps};
  Membership membership{peers, operations, waiters, driver, consensus, announcer};
  FailureJudge judge{peers, waiters, steps, consensus, announcer, membership};
  ControlReader control{peers, driver, steps, consensus, announcer, membership, judge};
  Streams streams{peers, driver, consensus, membership, judge, control};
  WaitLoop wait_loop{waiters, driver, consensus, announcer, judge, control, streams};
  std::mutex mutex;
};

// A waiter with the given time that is listed as long as it exists.
class ListedWaiter {
 public:
  ListedWaiter(Waiters& waiters, Operation& operation, Deadline began_at, Deadline deadline,
               bool others_announce = false)
      : waiter{.operation = &operation, .deadline = deadline, .began_at = began_at}, waiters_(waiters) {
    waiters.add(waiter, others_announce);
  }
  ~ListedWaiter() { waiters_.remove(waiter); }
  ListedWaiter(const ListedWaiter&) = delete;
  ListedWaiter& operator=(const ListedWaiter&) = delete;

  Waiter waiter;

 private:
  Waiters& waiters_;
};

inline bool says(const Error& error, const std::string& part) {
  return error.text().find(part) != std::string::npos;
}

}  // namespace deltawire::test
