// Ranks as processes that are killed, stopped or forked.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/mesh_testing.h"
#include "transport/tcp/handshake.h"

namespace deltawire::test::processes_test {
namespace {

constexpr int kWorld = 4;
constexpr int kVictim = 2;

struct Report {
  std::atomic<bool> is_there;
  ErrorCode code;
  int suspect;
  Deadline at;
  std::array<char, 600> message;
};

// Memory that all the processes of a test share.
struct Board {
  std::array<std::atomic<int>, kWorld> ports;
  std::atomic<int> connected;
  std::atomic<int> grandchild;
  std::atomic<int> limited;
  std::array<Report, kWorld> reports;
};

class Processes : public ::testing::Test {
 protected:
  void SetUp() override {
    void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    board_ = new (memory) Board{};
  }

  void TearDown() override {
    for (const pid_t pid : pids_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    if (board_->grandchild > 0) ::kill(board_->grandchild, SIGKILL);
    ::munmap(board_, sizeof(Board));
  }

  // Forks one process for each rank, which connects and, when all have, does `work`; its result goes on the
  // board. It waits for all because a rank that ended early would be missing in the others' bootstrap.
  void start(const std::function<Status(Transport&)>& work) {
    start_connecting([this, work](Transport& self) -> Status {
      if (!all_connect()) return fail(ErrorCode::kState, "not all ranks have connected");
      return work(self);
    });
    ASSERT_TRUE(all_connect());
  }

  bool all_connect() const {
    const Deadline until = soon();
    while (board_->connected < kWorld && Clock::now() < until) std::this_thread::sleep_for(1ms);
    return board_->connected == kWorld;
  }

  // The same, for ranks that will not all connect; `before` runs between listening and connecting.
  void start_connecting(const std::function<Status(Transport&)>& work,
                        const std::function<void(int, const Endpoint&)>& before = {}) {
    before_ = before;
    for (int rank = 0; rank < kWorld; ++rank) {
      const pid_t pid = ::fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) live(rank, work);
      pids_.push_back(pid);
    }
  }

  const Report& report_of(int rank) {
    const Report& report = board_->reports[static_cast<std::size_t>(rank)];
    const Deadline until = soon();
    while (!report.is_there && Clock::now() < until) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(report.is_there) << "rank " << rank << " never reported";
    return report;
  }

  void expect_victim_named(const Report& report, ErrorCode code) {
    EXPECT_EQ(report.code, code) << report.message.data();
    EXPECT_EQ(report.suspect, kVictim) << report.message.data();
  }

  void signal_victim(int signal) { ::kill(pids_[kVictim], signal); }

  void expect_a_kill_named_at_once() {
    const Deadline killed = Clock::now();
    signal_victim(SIGKILL);
    for (const int rank : {0, 1, 3}) {
      expect_victim_named(report_of(rank), ErrorCode::kPeerLost);
      EXPECT_LT(report_of(rank).at - killed, 10s);
    }
  }

  // All ranks say that the victim had too few descriptors, and how many it needs.
  void expect_shortage_named_by_all() {
    for (int rank = 0; rank < kWorld; ++rank) {
      const Report& report = report_of(rank);
      expect_victim_named(report, ErrorCode::kSystem);
      const std::string_view message = report.message.data();
      for (const std::string_view part : {"rank 2 needs 14 file descriptors", "4 ranks", "ulimit -n"}) {
        EXPECT_NE(message.find(part), message.npos) << "rank " << rank << ": " << message;
      }
    }
  }

  Board* board_ = nullptr;
  std::vector<pid_t> pids_;
  std::function<void(int, const Endpoint&)> before_;

 private:
  [[noreturn]] void live(int rank, const std::function<Status(Transport&)>& work) {
    const auto at = static_cast<std::size_t>(rank);
    auto listener = listen_tcp("127.0.0.1");
    if (!listener) ::_exit(1);
    board_->ports[at] = (*listener)->endpoint().port;
    std::vector<Endpoint> endpoints;
    for (const auto& port : board_->ports) {
      while (port == 0) std::this_thread::sleep_for(1ms);
      endpoints.push_back({"127.0.0.1", static_cast<std::uint16_t>(port.load())});
    }
    if (before_) before_(rank, endpoints[at]);
    auto transport = connect_tcp(std::move(*listener), mesh_options(rank, endpoints));
    if (transport) ++board_->connected;
    const Status status = transport ? work(**transport) : Status(forward_error(transport));
    Report& report = board_->reports[at];
    report.at = Clock::now();
    report.suspect = kNoSuspect;
    if (!status) {
      report.code = status.error().code;
      report.suspect = status.error().suspect;
      const std::size_t length = std::min(status.error().message.size(), report.message.size() - 1);
      std::memcpy(report.message.data(), status.error().message.data(), length);
    }
    report.is_there = true;
    if (transport) transport->reset();
    ::_exit(0);
  }
};

// Every rank waits for its right neighbour, so that only one of them waits for the victim itself.
Status wait_in_ring(Transport& self, std::chrono::milliseconds patience) {
  std::vector<std::byte> got(10);
  const Handle receive = self.post_recv((self.rank() + 1) % kWorld, 1, got);
  const auto moved = self.wait(receive, in(patience));
  return moved ? Status{} : Status(forward_error(moved));
}

TEST_F(Processes, AKilledRankIsNamedByAllAtOnce) {
  start([](Transport& self) { return wait_in_ring(self, 30s); });
  expect_a_kill_named_at_once();
}

TEST_F(Processes, AForkedChildDoesNotHideItsParentsDeath) {
  start([this](Transport& self) {
    if (self.rank() == kVictim) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::sleep(60);
        ::_exit(0);
      }
      board_->grandchild = child;
    }
    return wait_in_ring(self, 30s);
  });
  while (board_->grandchild == 0) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);
  expect_a_kill_named_at_once();
  EXPECT_EQ(::kill(board_->grandchild, 0), 0) << "the child was to outlive the test";
}

TEST_F(Processes, AKillInTheMiddleOfMessagesIsNamedByAll) {
  start([](Transport& self) -> Status {
    const std::vector<std::byte> bytes(3000000);
    std::vector<std::vector<std::byte>> got(kWorld, bytes);
    while (true) {
      std::vector<Handle> handles;
      for (int peer = 0; peer < kWorld; ++peer) {
        if (peer == self.rank()) continue;
        handles.push_back(self.post_recv(peer, 1, got[static_cast<std::size_t>(peer)]));
        handles.push_back(send_bytes(self, peer, 1, bytes));
      }
      for (const Handle handle : handles) {
        if (const auto moved = self.wait(handle, in(30s)); !moved) return forward_error(moved);
      }
    }
  });
  std::this_thread::sleep_for(300ms);
  expect_a_kill_named_at_once();
}

TEST_F(Processes, AnExitWithoutFarewellIsNamed) {
  start([](Transport& self) {
    if (self.rank() == kVictim) ::_exit(3);
    return wait_in_ring(self, 30s);
  });
  for (const int rank : {0, 1, 3}) expect_victim_named(report_of(rank), ErrorCode::kPeerLost);
}

TEST_F(Processes, AStoppedRankIsNamedByAllAtTheDeadlineAndByItselfLater) {
  start([](Transport& self) { return wait_in_ring(self, 3s); });
  signal_victim(SIGSTOP);
  for (const int rank : {0, 1, 3}) expect_victim_named(report_of(rank), ErrorCode::kTimeout);
  signal_victim(SIGCONT);
  expect_victim_named(report_of(kVictim), ErrorCode::kTimeout);
}

// Uses and destroys, in a forked child, the transport of its parent.
int use_and_end_in_child(Transport& self) {
  ::alarm(20);  // otherwise a wait for a lock that is held forever would hang in silence
  std::vector<std::byte> got(10);
  const auto result = self.wait(self.post_recv((self.rank() + 1) % kWorld, 1, got), in(1s));
  self.abort({ErrorCode::kAborted, "from a child", kNoSuspect});
  delete &self;  // as its owner would
  return !result && result.error().code == ErrorCode::kState ? 0 : 1;
}

TEST_F(Processes, AForkedChildCanNeitherUseNorHurtTheTransport) {
  start([](Transport& self) -> Status {
    // So that a child is sometimes forked while the transport's lock is held.
    std::atomic<bool> over = false;
    std::thread busy([&] {
      while (!over) (void)self.traffic();
    });
    int status = 0;
    for (int i = 0; i < 30 && status == 0; ++i) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(use_and_end_in_child(self));
      ::waitpid(child, &status, 0);
    }
    over = true;
    busy.join();
    if (status != 0) return fail(ErrorCode::kState, "the child went wrong");
    const std::vector<std::byte> bytes(10);
    send_and_forget(self, (self.rank() + kWorld - 1) % kWorld, 1, bytes);
    return wait_in_ring(self, 30s);
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    const Report& report = report_of(rank);
    EXPECT_STREQ(report.message.data(), "");
  }
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

void limit_descriptors(int count) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(count);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Leaves no number free below the limit: one that was open and is closed soon would be room for a connection.
void take_all_descriptors() {
  limit_descriptors(open_descriptors());
  while (::open("/dev/null", O_RDONLY) >= 0) {
  }
}

TEST_F(Processes, TooFewDescriptorsAreNamedByAllBeforeAnyIsTaken) {
  const auto unreached = [](Transport&) { return Status{}; };
  start_connecting(unreached, [](int rank, const Endpoint&) {
    if (rank == kVictim) limit_descriptors(open_descriptors() + 13);
  });
  expect_shortage_named_by_all();
  EXPECT_EQ(board_->connected, 0);
}

TEST_F(Processes, JustEnoughDescriptorsAreEnough) {
  start_connecting([](Transport&) { return Status{}; },
                   [](int rank, const Endpoint&) {
                     if (rank == kVictim) limit_descriptors(open_descriptors() + 14);
                   });
  for (int rank = 0; rank < kWorld; ++rank) EXPECT_STREQ(report_of(rank).message.data(), "");
}

// Waits until the rank that listens on the port answers a connection: it has begun to connect.
void wait_until_it_connects(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int caller = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(::connect(caller, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const Handshake handshake(token_of(8), Claims{}, Nonce{});
  (void)::send(caller, handshake.unsent().data(), handshake.unsent().size(), 0);
  Nonce answer;
  (void)::recv(caller, answer.data(), answer.size(), MSG_WAITALL);
  ::close(caller);
}

TEST_F(Processes, DescriptorsThatRunOutMeanwhileAreNamedByAll) {
  // Ranks 0 and 1 are dialed by the victim, and rank 3 comes when the victim has nothing left. The victim can
  // tell only ranks that answer it before it ends, so all three must have begun.
  start_connecting([](Transport& self) { return wait_in_ring(self, 30s); },
                   [this](int rank, const Endpoint&) {
                     if (rank == 3) {
                       while (board_->limited == 0) std::this_thread::sleep_for(1ms);
                     }
                     if (rank != kVictim) return;
                     std::thread([this] {
                       for (int each = 0; each <= kVictim; ++each) {
                         wait_until_it_connects(board_->ports[static_cast<std::size_t>(each)]);
                       }
                       take_all_descriptors();
                       board_->limited = 1;
                       ::pause();
                     }).detach();
                   });
  expect_shortage_named_by_all();
}

}  // namespace
}  // namespace deltawire::test::processes_test
