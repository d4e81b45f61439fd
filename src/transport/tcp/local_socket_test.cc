// Connections within a machine: who is dialed on a local socket, and who is not.
#include "transport/tcp/local_socket.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/refusal_testing.h"
#include "transport/mesh_testing.h"
#include "transport/process/machine.h"
#include "transport/tcp/dialer.h"
#include "transport/tcp/listener.h"

namespace deltawire::test::local_socket_test {
namespace {

class Switched {
 public:
  explicit Switched(const char* setting, const char* name = "DELTAWIRE_LOCAL_SOCKETS") : name_(name) {
    ::setenv(name_, setting, 1);
  }
  ~Switched() { ::unsetenv(name_); }

 private:
  const char* name_;
};

// How often memory is mapped that ranks share.
int mapped_memories() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:deltawire") != line.npos ? 1 : 0;
  return count;
}

SocketAddress address_of(const Listener& listener, const std::string& host = "127.0.0.1") {
  return SocketAddress::from_numeric(host, listener.endpoint().port).value();
}

TEST(LocalSocket, AListenerIsReachedOnItWithoutTcp) {
  const auto listener = listen_tcp("127.0.0.1");
  ASSERT_TRUE(listener.has_value()) << listener.error().message;
  const GuardedFd dialed = dial_locally(address_of(**listener));
  ASSERT_TRUE(static_cast<bool>(dialed));
  EXPECT_EQ(SocketAddress::of_peer(dialed.get())->family(), AF_UNIX);
  const auto& tcp = static_cast<const TcpListener&>(**listener);
  std::vector<pollfd> polls;
  tcp.add_interests(polls);
  EXPECT_EQ(::poll(polls.data(), polls.size(), 5000), 1);
  const GuardedFd accepted = tcp.accept();
  ASSERT_TRUE(static_cast<bool>(accepted));
  const char sent = 'x';
  char got = 0;
  EXPECT_EQ(::send(dialed.get(), &sent, 1, 0), 1);
  EXPECT_EQ(::recv(accepted.get(), &got, 1, 0), 1);
  EXPECT_EQ(got, sent);
  EXPECT_FALSE(static_cast<bool>(tcp.accept())) << "nobody else came";
}

// A rank that dials while another begins to listen would stay on TCP, and all ranks of the machine without
// shared memory.
TEST(LocalSocket, IsDialedThoughItCameAfterTheFirstLook) {
  const auto connect = [](const SocketAddress& to) {
    GuardedFd socket =
        GuardedFd::open([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    (void)::connect(socket.get(), to.get(), to.length());
    return socket;
  };
  const SocketAddress any = SocketAddress::from_numeric("127.0.0.1", 0).value();
  const GuardedFd tcp = GuardedFd::open([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
  ASSERT_EQ(::bind(tcp.get(), any.get(), any.length()), 0);
  ASSERT_EQ(::listen(tcp.get(), 0), 0);
  const SocketAddress address = SocketAddress::of_socket(tcp.get()).value();
  const GuardedFd first = connect(address);  // the queue is full: who comes next is not connected
  const Token token{};
  Dialer dialer(0, Claims::Stream::kControl, address.endpoint());
  std::vector<pollfd> interests;
  for (int turn = 0; turn < 1000 && interests.empty(); ++turn) {
    EXPECT_FALSE(dialer.advance(MachineClock::now(), token, {}, {}));
    dialer.add_interests(interests);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(interests.size(), 1u);
  ASSERT_EQ(interests[0].events, POLLOUT) << "connected already";
  const auto local = listen_locally(address, 4);
  ASSERT_TRUE(local && *local);
  const GuardedFd taken = GuardedFd::open([&] { return ::accept(tcp.get(), nullptr, nullptr); });
  pollfd dialed{local->get(), POLLIN, 0};
  for (int turn = 0; turn < 1000 && ::poll(&dialed, 1, 10) == 0; ++turn) {
    EXPECT_FALSE(dialer.advance(MachineClock::now(), token, {}, {}));
  }
  EXPECT_EQ(dialed.revents, POLLIN) << "the name was not tried again";
}

TEST(LocalSocket, NobodyElsesIsDialed) {
  const auto listener = listen_tcp("127.0.0.1");
  EXPECT_FALSE(static_cast<bool>(dial_locally(address_of(**listener, "127.0.0.2")))) << "another address";
  auto ended = listen_tcp("127.0.0.1");
  const SocketAddress address = address_of(**ended);
  ended->reset();
  EXPECT_FALSE(static_cast<bool>(dial_locally(address)));
  const auto everywhere = listen_tcp("0.0.0.0");
  EXPECT_FALSE(static_cast<bool>(dial_locally(address_of(**everywhere, "0.0.0.0"))));
}

TEST(LocalSocket, AnotherUsersIsNotDialed) {
  constexpr uid_t kNobody = 65534;
  if (::geteuid() != 0) GTEST_SKIP() << "only root can listen as another user";
  ASSERT_EQ(::seteuid(kNobody), 0);
  const auto listener = listen_tcp("127.0.0.1");
  ASSERT_EQ(::seteuid(0), 0);
  ASSERT_TRUE(listener.has_value());
  EXPECT_FALSE(static_cast<bool>(dial_locally(address_of(**listener))));
}

TEST(LocalSocket, AVariableTurnsItOff) {
  {
    const Switched off("off");
    const auto listener = listen_tcp("127.0.0.1");
    ASSERT_TRUE(listener.has_value()) << listener.error().message;
    EXPECT_FALSE(static_cast<bool>(dial_locally(address_of(**listener))));
  }
  const Switched odd("no");
  testing::expect_refused(listen_tcp("127.0.0.1"), ErrorCode::kInvalidArgument,
                          "DELTAWIRE_LOCAL_SOCKETS=\"no\"");
}

// Established connections with that local port, in the kernel's list.
int tcp_connections_at(std::uint16_t port) {
  constexpr const char* kEstablished = "01";
  std::ifstream list("/proc/net/tcp");
  std::string line;
  std::getline(list, line);
  int count = 0;
  for (std::string number, own, other, state; std::getline(list, line);) {
    std::istringstream(line) >> number >> own >> other >> state;
    const auto at = std::stoul(own.substr(own.find(':') + 1), nullptr, 16);
    count += at == port && state == kEstablished ? 1 : 0;
  }
  return count;
}

TEST(LocalSocket, RanksOnOneMachineExchangeOverIt) {
  for (const bool is_on : {true, false}) {
    const Switched setting(is_on ? "on" : "off");
    Listeners all = listen_all(2);
    const std::uint16_t port = all.endpoints[0].port;
    run_ranks(2, [&](int rank) {
      auto mesh = connect_tcp(std::move(all.listeners[static_cast<std::size_t>(rank)]),
                              mesh_options(rank, all.endpoints));
      ASSERT_TRUE(mesh.has_value()) << mesh.error().message;
      if (rank == 0) {
        EXPECT_EQ(tcp_connections_at(port), is_on ? 0 : 2);
      }
      ASSERT_TRUE((*mesh)->vote({}, soon()).has_value());
    });
  }
}

// Three ranks of this process, each of which maps what it shares with the two others: a ring with each, its
// own area and theirs. Where one takes no part, nobody keeps an area of its own.
TEST(SharedMemoryOfRanks, IsUsedWhereBothWantItAndTheirConnectionIsInTheClear) {
  struct Row {
    const char* variable;
    Encryption encryption;
    std::array<bool, 3> wants;
    int mapped;
    std::size_t notices;
  };
  constexpr auto kAuto = Encryption::kAuto;
  constexpr std::array<bool, 3> kAll{true, true, true};
  for (const Row& row :
       {Row{"on", kAuto, kAll, 6 + 9, 0}, Row{"off", kAuto, kAll, 0, 0},
        Row{"on", Encryption::kRequired, kAll, 0, 0}, Row{"on", kAuto, {true, false, true}, 2 + 2, 2},
        Row{"on", kAuto, {true, false, false}, 0, 1}}) {
    const Switched variable(row.variable, "DELTAWIRE_SHARED_MEMORY");
    Listeners all = listen_all(3);
    std::array<std::vector<std::string>, 3> notices;
    Ranks ranks(3);
    run_ranks(3, [&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      MeshOptions options = mesh_options(rank, all.endpoints);
      options.encryption = row.encryption;
      options.shared_memory = row.wants[at];
      options.notice = [&, at](const std::string& text) { notices[at].push_back(text); };
      auto mesh = connect_tcp(std::move(all.listeners[at]), options);
      ASSERT_TRUE(mesh.has_value()) << mesh.error().message;
      ranks[at] = std::move(*mesh);
    });
    EXPECT_EQ(mapped_memories(), row.mapped);
    run_ranks(3, [&](int rank) { exchange_once(*ranks[static_cast<std::size_t>(rank)]); });
    EXPECT_EQ(notices[0].size() + notices[1].size() + notices[2].size(), row.notices);
    if (row.notices == 2) {
      EXPECT_EQ(notices[0].at(0),
                "rank 0 shares no memory with rank 1 of the same machine and uses sockets, which are slower: "
                "rank 1 offers none");
      EXPECT_NE(notices[2].at(0).find("rank 1 takes none"), std::string::npos) << notices[2].at(0);
    }
    ranks.clear();
    EXPECT_EQ(mapped_memories(), 0);
  }
}

TEST(SharedMemoryOfRanks, ASystemThatGivesNoneIsSaidOnceAndSocketsAreUsed) {
  const rlimit before = [] {
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    return limit;
  }();
  // fallocate() beyond this fails, with a signal that is ignored.
  const rlimit tiny{4096, before.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &tiny);
  Listeners all = listen_all(2);
  std::array<std::vector<std::string>, 2> notices;
  run_ranks(2, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    MeshOptions options = mesh_options(rank, all.endpoints);
    options.notice = [&, at](const std::string& text) { notices[at].push_back(text); };
    auto mesh = connect_tcp(std::move(all.listeners[at]), options);
    ASSERT_TRUE(mesh.has_value()) << mesh.error().message;
    exchange_once(**mesh);
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  ASSERT_EQ(notices[0].size(), 1u);
  ASSERT_EQ(notices[1].size(), 1u);
  EXPECT_NE(notices[1][0].find("the system gives none (File too large)"), std::string::npos) << notices[1][0];
  EXPECT_NE(notices[0][0].find("rank 1 offers none"), std::string::npos) << notices[0][0];
}

// Takes the name of an address, and says nothing, or hangs up at once.
class Squatter {
 public:
  Squatter(const Endpoint& endpoint, bool hangs_up)
      : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)), hangs_up_(hangs_up) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const std::string text = std::string(1, '\0') + "deltawire/" + to_string(endpoint);
    std::ranges::copy(text, name.sun_path);
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&name), bytes), 0);
    EXPECT_EQ(::listen(fd_, 50), 0);
    thread_ = std::thread([this] { run(); });
  }
  ~Squatter() {
    stops_ = true;
    thread_.join();
    for (const int caller : callers_) ::close(caller);
    ::close(fd_);
  }
  Squatter(const Squatter&) = delete;
  Squatter& operator=(const Squatter&) = delete;

 private:
  void run() {
    while (!stops_) {
      pollfd entry{fd_, POLLIN, 0};
      ::poll(&entry, 1, 20);
      const int caller = ::accept(fd_, nullptr, nullptr);
      if (caller < 0) continue;
      if (hangs_up_) {
        ::close(caller);
      } else {
        callers_.push_back(caller);
      }
    }
  }

  int fd_;
  bool hangs_up_;
  std::vector<int> callers_;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

TEST(LocalSocket, WhoeverElseHoldsTheNameKeepsNoRankWaiting) {
  for (const bool hangs_up : {true, false}) {
    Listeners all = [] {
      const Switched off("off");
      return listen_all(2);
    }();
    const Squatter squatter(all.endpoints[0], hangs_up);
    run_ranks(2, [&](int rank) {
      MeshOptions options = mesh_options(rank, all.endpoints);
      options.connect_timeout = 20s;
      auto mesh = connect_tcp(std::move(all.listeners[static_cast<std::size_t>(rank)]), options);
      ASSERT_TRUE(mesh.has_value()) << mesh.error().message;
      ASSERT_TRUE((*mesh)->vote({}, soon()).has_value());
    });
  }
}

// A rank that is slow to come is waited for on both ways, and meets the others on its own name.
TEST(LocalSocket, ARankThatComesLateIsReachedOnIt) {
  Listeners all = listen_all(2);
  const std::uint16_t port = all.endpoints[0].port;
  run_ranks(2, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(2s);
    auto mesh = connect_tcp(std::move(all.listeners[static_cast<std::size_t>(rank)]),
                            mesh_options(rank, all.endpoints));
    ASSERT_TRUE(mesh.has_value()) << mesh.error().message;
    if (rank == 0) {
      EXPECT_EQ(tcp_connections_at(port), 0);
    }
    ASSERT_TRUE((*mesh)->vote({}, soon()).has_value());
  });
}

}  // namespace
}  // namespace deltawire::test::local_socket_test
