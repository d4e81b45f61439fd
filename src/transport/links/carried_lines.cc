#include "transport/links/carried_lines.h"

#include <array>
#include <cerrno>
#include <condition_variable>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/errors.h"
#include "base/little_endian.h"
#include "base/mutex.h"
#include "transport/links/connection.h"
#include "transport/links/shared_link.h"
#include "transport/process/fork_guard.h"
#include "transport/process/signals.h"

namespace deltawire {
namespace {

// What the carrier moves at most in one call.
constexpr std::size_t kCarriedBytes = std::size_t{1} << 20;
// How many bytes follow, little-endian; 0: the stream ends here.
using Announcement = std::array<std::byte, 4>;
// How long a rank that leaves waits for threads that have nothing left to do.
constexpr std::chrono::milliseconds kStopTime{500};

// The engine's end of a socket pair. Round trips are those of the connection.
class CarriedLink final : public LinkDecorator {
 public:
  CarriedLink(std::unique_ptr<Link> near, std::chrono::microseconds round_trip)
      : LinkDecorator(std::move(near)), round_trip_(round_trip) {}

  bool stands_alone() const noexcept override { return true; }
  LineState state() const noexcept override { return {.round_trip = round_trip_}; }

 private:
  std::chrono::microseconds round_trip_;
};

// Both ends of a stream within this process: a socket pair with rings of this size, or, where the system
// refuses them (or 0), as it is. Empty, with errno set, if there is none.
std::array<std::unique_ptr<Link>, 2> link_pair(std::size_t ring_bytes) {
  std::array<GuardedFd, 2> sockets = GuardedFd::open_socket_pair();
  if (!sockets[0]) return {};
  std::array<std::unique_ptr<Link>, 2> ends{std::make_unique<SocketLink>(std::move(sockets[0])),
                                            std::make_unique<SocketLink>(std::move(sockets[1]))};
  if (ring_bytes == 0) return ends;
  SharedMemory near = SharedMemory::make(ring_bytes);
  SharedMemory far = near ? SharedMemory::take(std::move(near.file())) : SharedMemory();
  if (!far) return ends;
  ends[0] = std::make_unique<SharedLink>(std::move(ends[0]), std::move(near), SharedMemory::Side::kMaker);
  ends[1] = std::make_unique<SharedLink>(std::move(ends[1]), std::move(far), SharedMemory::Side::kTaker);
  return ends;
}

// What the threads of a rank share.
struct CarryingThreads {
  Mutex mutex;
  std::condition_variable ended;
  int sending DELTAWIRE_GUARDED_BY(mutex) = 0;
  int receiving DELTAWIRE_GUARDED_BY(mutex) = 0;
  GuardedFd stop = GuardedFd::open([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });

  void end(int CarryingThreads::* kind) noexcept {
    const MutexLock lock(mutex);
    --(this->*kind);
    ended.notify_all();
  }
  // Whether all threads have ended, or those that send.
  bool await(bool all, Deadline until) noexcept {
    MutexLock lock(mutex);
    const auto none = [&]() DELTAWIRE_UNCHECKED_LOCKS {  // called with the lock
      return sending == 0 && (!all || receiving == 0);
    };
    return ended.wait_until(lock.standard(), until, none);
  }
};

// The stream to and from one peer, beyond the engine's end.
class CarriedLine {
 public:
  CarriedLine(int peer, std::unique_ptr<Link> connection, std::unique_ptr<Link> far,
              std::shared_ptr<Carrier> carrier, std::shared_ptr<CarryingThreads> threads)
      : peer_(peer),
        connection_(std::move(connection)),
        far_(std::move(far)),
        carrier_(std::move(carrier)),
        threads_(std::move(threads)),
        outgoing_(std::make_unique_for_overwrite<std::byte[]>(kCarriedBytes)),
        incoming_(std::make_unique_for_overwrite<std::byte[]>(kCarriedBytes)) {}

  void send_all() noexcept {
    bool works = true;
    while (works) {
      const Bytes packet = next_packet();
      works = announce(packet.size());
      if (packet.empty()) break;
      works = works && carrier_->send(peer_, packet);
    }
    if (!works) give_up();
    // As at the mesh's end: closing a socket may throw away what its peer's machine has not got.
    while (works && !connection_->delivered()) works = await(-1, 0, 1);
    threads_->end(&CarryingThreads::sending);
  }

  void receive_all() noexcept {
    Announcement head;
    bool works = true;
    // What comes when the engine has gone is received, too: its sender waits for that.
    bool is_wanted = true;
    while (works && read_whole(*connection_, head)) {
      const std::size_t bytes = load_le<std::uint32_t>(head.data());
      if (bytes == 0) break;
      const MutBytes packet(incoming_.get(), std::min(bytes, kCarriedBytes));
      works = bytes <= kCarriedBytes && carrier_->receive(peer_, packet);
      is_wanted = works && is_wanted && write_whole(*far_, packet);
    }
    if (!works) give_up();
    ::shutdown(far_->fd(), SHUT_WR);
    threads_->end(&CarryingThreads::receiving);
  }

 private:
  // What the engine has written, once there is something; nothing once it has closed its end.
  Bytes next_packet() noexcept {
    const MutBytes whole(outgoing_.get(), kCarriedBytes);
    std::size_t bytes = read(*far_, whole);
    while (bytes > 0 && bytes < whole.size()) {
      const IoResult more = far_->recv(whole.subspan(bytes));
      if (more.kind != IoResult::Kind::kOk) break;  // an end is found again
      bytes += more.bytes;
    }
    return whole.first(bytes);
  }

  bool announce(std::size_t bytes) noexcept {
    Announcement head;
    store_le(head.data(), static_cast<std::uint32_t>(bytes));
    return write_whole(*connection_, head);
  }

  // 0: the stream has ended, or the mesh has.
  std::size_t read(Link& from, MutBytes into) noexcept {
    while (true) {
      const IoResult result = from.recv(into);
      if (result.kind == IoResult::Kind::kOk) return result.bytes;
      if (result.kind != IoResult::Kind::kWouldBlock || !await(from.fd(), POLLIN)) return 0;
    }
  }

  bool read_whole(Link& from, MutBytes into) noexcept {
    while (!into.empty()) {
      const std::size_t bytes = read(from, into);
      if (bytes == 0) return false;
      into = into.subspan(bytes);
    }
    return true;
  }

  bool write_whole(Link& to, Bytes bytes) noexcept {
    while (!bytes.empty()) {
      const IoResult result = to.send_bytes(bytes);
      if (result.kind == IoResult::Kind::kOk) {
        bytes = bytes.subspan(result.bytes);
      } else if (result.kind != IoResult::Kind::kWouldBlock || !await(to.send_fd(), POLLOUT)) {
        return false;
      }
    }
    return true;
  }

  // Until the descriptor is ready, or for so long; false: the mesh has ended.
  bool await(int fd, short events, int milliseconds = -1) noexcept {
    std::array<pollfd, 2> entries{{{fd, events, 0}, {threads_->stop.get(), POLLIN, 0}}};
    while (::poll(entries.data(), entries.size(), milliseconds) < 0 && errno == EINTR) {
    }
    return entries[1].revents == 0;
  }

  // Both ranks' engines find that the stream is broken.
  void give_up() noexcept {
    ::shutdown(far_->fd(), SHUT_RDWR);
    ::shutdown(connection_->fd(), SHUT_RDWR);
  }

  const int peer_;
  const std::unique_ptr<Link> connection_;  // stands alone
  const std::unique_ptr<Link> far_;
  const std::shared_ptr<Carrier> carrier_;
  const std::shared_ptr<CarryingThreads> threads_;
  const std::unique_ptr<std::byte[]> outgoing_, incoming_;  // uninitialized
};

class CarriedLines final : public LinkHost {
 public:
  CarriedLines(std::shared_ptr<CarryingThreads> shared, std::unique_ptr<LinkHost> inner)
      : inner_(std::move(inner)), shared_(std::move(shared)) {}

  // Links have ended, and so the threads that send come to the end of what there is.
  ~CarriedLines() override {
    shared_->await(false, Clock::now() + kFarewellTime);
    const std::uint64_t one = 1;
    (void)!::write(shared_->stop.get(), &one, sizeof one);
    const bool all = shared_->await(true, Clock::now() + kStopTime);
    for (std::thread& thread : threads_) all ? thread.join() : thread.detach();
  }
  CarriedLines(const CarriedLines&) = delete;
  CarriedLines& operator=(const CarriedLines&) = delete;

  void start(const std::shared_ptr<CarriedLine>& line) {
    const SignalsHeldBack no_signals;
    begin(&CarryingThreads::sending, [line] { line->send_all(); });
    begin(&CarryingThreads::receiving, [line] { line->receive_all(); });
  }

 private:
  void begin(int CarryingThreads::* kind, auto body) {
    {
      const MutexLock lock(shared_->mutex);
      ++(*shared_.*kind);
    }
    try {
      threads_.emplace_back(std::move(body));
    } catch (...) {
      shared_->end(kind);
      throw;
    }
  }

  const std::unique_ptr<LinkHost> inner_;
  const std::shared_ptr<CarryingThreads> shared_;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<LinkHost>> carry_data(std::vector<PeerLinks>& links,
                                             const std::shared_ptr<Carrier>& carrier,
                                             std::unique_ptr<LinkHost> inner) {
  const auto threads = std::make_shared<CarryingThreads>();
  auto lines = std::make_unique<CarriedLines>(threads, std::move(inner));
  for (std::size_t peer = 0; peer < links.size(); ++peer) {
    std::unique_ptr<Link>& data = links[peer].data;
    if (!data) continue;
    std::array<std::unique_ptr<Link>, 2> ends = link_pair(SharedMemory::ring_bytes_for(links.size() - 1));
    if (!ends[0] || !threads->stop) {
      return fail(ErrorCode::kSystem, "a carrier's socket pair: " + os_error_text(errno) +
                                          "; is the limit of open files high enough?");
    }
    const auto round_trip = data->state().round_trip;
    const auto line = std::make_shared<CarriedLine>(static_cast<int>(peer), std::move(data),
                                                    std::move(ends[1]), carrier, threads);
    data = std::make_unique<CarriedLink>(std::move(ends[0]), round_trip);
    lines->start(line);
  }
  return lines;
}

}  // namespace deltawire
