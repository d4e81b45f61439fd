// A link through shared memory: its bytes, its doorbell, and peers that die or write nonsense.
#include "transport/links/shared_link.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transport/links/connection.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::shared_link_test {
namespace {

using Kind = IoResult::Kind;
using Side = SharedMemory::Side;

constexpr std::size_t kRing = SharedMemory::kRingBytesMin;

// Both ends, with a second view of the maker's memory for what a peer could do to it.
struct Pair {
  Pair() {
    auto sockets = GuardedFd::open_socket_pair();
    SharedMemory made = SharedMemory::make(kRing);
    EXPECT_TRUE(static_cast<bool>(made));
    std::array<GuardedFd, kPassedFilesMax> files;
    const GuardedFd* const made_file = &made.file();
    std::byte byte{};
    for (SharedMemory* const view : {&taken, &hostile}) {
      EXPECT_EQ(send_with_files(sockets[0].get(), std::byte{'H'}, {&made_file, 1}).bytes, 1u);
      EXPECT_EQ(receive_with_files(sockets[1].get(), byte, files).bytes, 1u);
      *view = SharedMemory::take(std::move(files[0]));
      EXPECT_TRUE(static_cast<bool>(*view));
    }
    made.file().reset();
    maker = std::make_unique<SharedLink>(std::make_unique<SocketLink>(std::move(sockets[0])), std::move(made),
                                         Side::kMaker);
    taker = std::make_unique<SharedLink>(std::make_unique<SocketLink>(std::move(sockets[1])),
                                         std::move(taken), Side::kTaker);
  }

  SharedMemory taken;
  SharedMemory hostile;
  std::unique_ptr<SharedLink> maker;
  std::unique_ptr<SharedLink> taker;
};

IoResult send(Link& link, Bytes bytes) {
  const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return link.send({&piece, 1});
}

bool is_ready(const Link& link, short event, int milliseconds = 0) {
  pollfd entry{link.fd(), event, 0};
  return ::poll(&entry, 1, milliseconds) > 0;
}

int bytes_in_socket(const Link& link) {
  int bytes = 0;
  EXPECT_EQ(::ioctl(link.fd(), FIONREAD, &bytes), 0);
  return bytes;
}

// As the engine does it: polls only when the link would block, or when it holds nothing.
void send_all(Link& link, Bytes bytes, std::size_t at_once) {
  while (!bytes.empty()) {
    const IoResult sent = send(link, bytes.first(std::min(at_once, bytes.size())));
    if (sent.kind == Kind::kWouldBlock) {
      ASSERT_TRUE(is_ready(link, POLLOUT, 20000)) << "nobody says that there is room";
      continue;
    }
    ASSERT_EQ(sent.kind, Kind::kOk);
    bytes = bytes.subspan(sent.bytes);
  }
}

std::vector<std::byte> receive_all(Link& link, std::size_t count, std::size_t at_once) {
  std::vector<std::byte> got(count);
  for (std::size_t have = 0; have < count;) {
    if (!link.holds_received() && !is_ready(link, POLLIN, 20000)) {
      ADD_FAILURE() << "nobody rings";
      break;
    }
    const IoResult result = link.recv(MutBytes(got).subspan(have, std::min(at_once, count - have)));
    if (result.kind == Kind::kWouldBlock) continue;
    if (result.kind != Kind::kOk) break;
    have += result.bytes;
  }
  return got;
}

TEST(SharedLink, CarriesBytesBothWaysInPiecesOfAnySize) {
  for (const std::size_t at_once : {1u, 7u, 1000u, 65536u, 65537u, 1u << 20}) {
    Pair pair;
    const std::size_t count = at_once < 100 ? 20000 : 3000000;
    const auto up = pattern(count, 1);
    const auto down = pattern(count, 2);
    std::thread first([&] { send_all(*pair.maker, up, at_once); });
    std::thread second([&] { send_all(*pair.taker, down, 100000); });
    std::thread third([&] { EXPECT_TRUE(same_bytes(receive_all(*pair.maker, count, at_once), down)); });
    EXPECT_TRUE(same_bytes(receive_all(*pair.taker, count, 70000), up)) << at_once;
    first.join();
    second.join();
    third.join();
  }
}

TEST(SharedLink, GathersPieces) {
  Pair pair;
  const auto bytes = pattern(70000, 3);
  std::array<iovec, 3> pieces{};
  const Bytes all(bytes);
  pieces[0] = {const_cast<std::byte*>(all.data()), 32};
  pieces[1] = {const_cast<std::byte*>(all.data()) + 32, 0};
  pieces[2] = {const_cast<std::byte*>(all.data()) + 32, all.size() - 32};
  EXPECT_EQ(pair.maker->send(pieces).bytes, bytes.size());
  EXPECT_TRUE(same_bytes(receive_all(*pair.taker, bytes.size(), 1 << 20), bytes));
}

// One byte wakes a sleeping reader; one that is awake needs none.
TEST(SharedLink, OnlyASleepingReaderIsRung) {
  Pair pair;
  const auto bytes = pattern(100, 4);
  std::vector<std::byte> got(100);
  EXPECT_FALSE(pair.taker->holds_received());
  EXPECT_FALSE(is_ready(*pair.taker, POLLIN));
  ASSERT_EQ(send(*pair.maker, bytes).bytes, 100u);
  ASSERT_EQ(send(*pair.maker, bytes).bytes, 100u);
  EXPECT_EQ(bytes_in_socket(*pair.taker), 1);
  EXPECT_EQ(pair.taker->recv(got).bytes, 100u);
  EXPECT_TRUE(pair.taker->holds_received()) << "its reader was filled, so it comes again";
  ASSERT_EQ(send(*pair.maker, bytes).bytes, 100u);
  EXPECT_EQ(bytes_in_socket(*pair.taker), 0);
  EXPECT_EQ(pair.taker->recv(got).bytes, 100u);
  got.resize(200);
  EXPECT_EQ(pair.taker->recv(got).bytes, 100u);
  EXPECT_FALSE(pair.taker->holds_received()) << "a short read has emptied it";
  EXPECT_EQ(pair.taker->recv(got).kind, Kind::kWouldBlock);
  ASSERT_EQ(send(*pair.maker, bytes).bytes, 100u);
  EXPECT_EQ(bytes_in_socket(*pair.taker), 1);
}

TEST(SharedLink, AFullRingIsNotWritableUntilHalfOfItIsFree) {
  Pair pair;
  const auto bytes = pattern(2 * kRing, 5);
  EXPECT_TRUE(is_ready(*pair.maker, POLLOUT));
  // The reader is awake: one that wakes up takes what is in the socket in any case.
  ASSERT_EQ(send(*pair.maker, Bytes(bytes).first(1)).bytes, 1u);
  (void)receive_all(*pair.taker, 1, 1);
  ASSERT_EQ(send(*pair.maker, bytes).bytes, kRing);
  ASSERT_EQ(send(*pair.maker, Bytes(bytes).subspan(kRing)).kind, Kind::kWouldBlock);
  EXPECT_FALSE(is_ready(*pair.maker, POLLOUT));
  std::vector<std::byte> got(kRing / 2 - 1);
  ASSERT_EQ(pair.taker->recv(got).bytes, got.size());
  EXPECT_FALSE(is_ready(*pair.maker, POLLOUT)) << "for little room nobody is woken";
  ASSERT_EQ(pair.taker->recv(MutBytes(got).first(1)).bytes, 1u);
  EXPECT_TRUE(is_ready(*pair.maker, POLLOUT));
  EXPECT_EQ(send(*pair.maker, Bytes(bytes).subspan(kRing)).bytes, kRing / 2);
  const auto rest = receive_all(*pair.taker, kRing, 1 << 20);
  EXPECT_TRUE(std::ranges::equal(rest, Bytes(bytes).subspan(kRing / 2, kRing)));
}

TEST(SharedLink, WhatWasSentBeforeTheEndIsReceived) {
  Pair pair;
  const auto bytes = pattern(1000, 6);
  ASSERT_EQ(send(*pair.maker, bytes).bytes, 1000u);
  pair.maker.reset();
  EXPECT_TRUE(same_bytes(receive_all(*pair.taker, 1000, 300), bytes));
  std::vector<std::byte> got(1);
  EXPECT_EQ(pair.taker->recv(got).kind, Kind::kWouldBlock) << "it has not looked at the socket yet";
  EXPECT_FALSE(pair.taker->holds_received());
  EXPECT_TRUE(is_ready(*pair.taker, POLLIN));
  EXPECT_EQ(pair.taker->recv(got).kind, Kind::kClosed);
  EXPECT_EQ(pair.taker->recv(got).kind, Kind::kClosed);
  EXPECT_EQ(send(*pair.taker, bytes).kind, Kind::kClosed) << "its bell finds nobody";
}

TEST(SharedLink, AWriterThatWaitsForRoomLearnsOfTheEnd) {
  Pair pair;
  const auto bytes = pattern(kRing, 7);
  ASSERT_EQ(send(*pair.maker, bytes).bytes, kRing);
  ASSERT_EQ(send(*pair.maker, bytes).kind, Kind::kWouldBlock);
  pair.taker.reset();
  EXPECT_TRUE(is_ready(*pair.maker, POLLOUT));
  EXPECT_EQ(send(*pair.maker, bytes).kind, Kind::kClosed);
}

// Killed at any instant, between copying and publishing too: whole words of its sequence, then the end.
TEST(SharedLink, AKilledWriterHasWrittenAPrefix) {
  for (int round = 0; round < 20; ++round) {
    auto sockets = GuardedFd::open_socket_pair();
    SharedMemory made = SharedMemory::make(kRing);
    const int file = ::dup(made.file().get());
    const int line = ::dup(sockets[1].get());
    const auto bytes = pattern(kRing, 8);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      SharedLink link(std::make_unique<SocketLink>(GuardedFd::open([line] { return line; })),
                      SharedMemory::take(GuardedFd::open([file] { return file; })), Side::kTaker);
      while (true) {
        for (Bytes rest(bytes); !rest.empty();) {
          const IoResult sent = send(link, rest.first(std::min<std::size_t>(rest.size(), 30011)));
          if (sent.kind == Kind::kClosed) ::_exit(0);
          rest = rest.subspan(sent.bytes);
        }
      }
    }
    ::close(file);
    ::close(line);
    sockets[1].reset();
    made.file().reset();
    SharedLink link(std::make_unique<SocketLink>(std::move(sockets[0])), std::move(made), Side::kMaker);
    std::vector<std::byte> got(50000);
    std::size_t read = 0;
    const Deadline until = soon();
    const std::size_t kill_after = static_cast<std::size_t>(round) * 40000;
    for (bool killed = false; Clock::now() < until;) {
      if (!killed && read >= kill_after) {
        ::kill(child, SIGKILL);
        killed = true;
      }
      if (!link.holds_received()) is_ready(link, POLLIN, 20000);
      const IoResult result = link.recv(got);
      if (result.kind == Kind::kClosed) break;
      for (std::size_t i = 0; i < result.bytes; ++i, ++read) {
        ASSERT_EQ(got[i], bytes[read % kRing]) << read;
      }
    }
    EXPECT_LT(Clock::now(), until);
    EXPECT_GE(read, kill_after);
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  }
}

TEST(SharedLink, PositionsThatCannotBeAreAnError) {
  std::vector<std::byte> got(kRing);
  const auto bytes = pattern(1000, 9);
  constexpr std::uint64_t kFar = std::uint64_t{1} << 63;
  for (const auto& [written, read] : {std::pair<std::uint64_t, std::uint64_t>{kRing + 1, 2},
                                      {~std::uint64_t{0}, kRing + 2},
                                      {kFar, kFar}}) {
    Pair pair;
    ASSERT_EQ(send(*pair.maker, Bytes(bytes).first(1)).bytes, 1u);
    pair.hostile.state(Side::kTaker).written = written;
    const IoResult received = pair.maker->recv(got);
    EXPECT_EQ(received.kind, Kind::kError);
    EXPECT_EQ(received.error, EPROTO);
    pair.hostile.state(Side::kMaker).read = read;
    const IoResult sent = send(*pair.maker, bytes);
    EXPECT_EQ(sent.kind, Kind::kError);
    EXPECT_EQ(sent.error, EPROTO);
  }
}

// Positions may also go back, and flags be anything, at any time: this end stays within its memory (the
// sanitizer looks), and ends its calls.
TEST(SharedLink, AnythingInTheSharedMemoryIsSurvived) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Pair pair;
    std::mt19937_64 random(seed);
    std::uint64_t around = 0;
    for (int i = 0; i < 60; ++i) {
      RingState& state = pair.hostile.state(random() % 2 == 0 ? Side::kMaker : Side::kTaker);
      around += random() % (kRing / 2);
      const std::uint64_t value = random() % 8 == 0 ? random() : around - random() % 3000;
      switch (random() % 4) {
        case 0: state.written = value; break;
        case 1: state.read = value; break;
        case 2: state.reader_sleeps = static_cast<std::uint32_t>(value); break;
        default: state.writer_waits = static_cast<std::uint32_t>(value); break;
      }
      const std::size_t count = 1 + random() % (kRing + 1000);
      const std::vector<std::byte> bytes(count);
      std::vector<std::byte> got(1 + random() % count);
      EXPECT_LE(pair.maker->recv(got).bytes, got.size());
      EXPECT_LE(send(*pair.maker, bytes).bytes, bytes.size());
    }
  }
}

TEST(SharedMemory, OnlyItsOwnSealedFilesAreTaken) {
  const auto file = [](std::size_t bytes, int seals) {
    GuardedFd made = GuardedFd::open([] { return ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING); });
    EXPECT_EQ(::ftruncate(made.get(), static_cast<off_t>(bytes)), 0);
    EXPECT_EQ(::fcntl(made.get(), F_ADD_SEALS, seals), 0);
    return made;
  };
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const auto is_taken = [](GuardedFd made) { return static_cast<bool>(SharedMemory::take(std::move(made))); };
  EXPECT_TRUE(is_taken(file(4096 + 2 * kRing, kAll)));
  EXPECT_FALSE(is_taken(file(4096 + 2 * kRing, F_SEAL_GROW | F_SEAL_SEAL))) << "it could shrink";
  EXPECT_FALSE(is_taken(file(4096 + 2 * kRing, kAll | F_SEAL_WRITE)));
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{100}, std::size_t{4096}, 4096 + kRing, 4096 + 2 * kRing + 1,
        4096 + 3 * kRing, 4096 + 4 * kRing + 2, 4096 + 4 * SharedMemory::kRingBytesMax}) {
    EXPECT_FALSE(is_taken(file(bytes, kAll))) << bytes;
  }
  auto sockets = GuardedFd::open_socket_pair();
  EXPECT_FALSE(is_taken(std::move(sockets[0])));
  EXPECT_FALSE(is_taken(GuardedFd()));
}

TEST(SharedMemory, RingsAreBoundedHoweverManyShareIt) {
  EXPECT_EQ(SharedMemory::ring_bytes_for(0), 0u);
  EXPECT_EQ(SharedMemory::ring_bytes_for(1), SharedMemory::kRingBytesMax);
  for (std::size_t others = 1; others < 2000; ++others) {
    const std::size_t bytes = SharedMemory::ring_bytes_for(others);
    EXPECT_LE(2 * bytes * others, std::size_t{32} << 20);
    EXPECT_TRUE(bytes == 0 || bytes >= SharedMemory::kRingBytesMin);
  }
  EXPECT_GT(SharedMemory::ring_bytes_for(127), 0u);
}

TEST(SharedMemory, AForkedChildDoesNotHaveIt) {
  const SharedMemory made = SharedMemory::make(kRing);
  ASSERT_TRUE(static_cast<bool>(made));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("memfd:deltawire") != line.npos) ::_exit(1);
    }
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace deltawire::test::shared_link_test
