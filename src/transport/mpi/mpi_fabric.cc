#include "transport/mpi/mpi_fabric.h"

#include <algorithm>
#include <cerrno>

#include <sys/prctl.h>

#include "transport/process/signals.h"

namespace deltawire {
namespace {

constexpr int kTag = 0;

// MPI has no descriptor to sleep on, so a thread polls. How often is a trade-off between a rank's processor
// time and its latency: often while packets come and go, rarely in silence.
constexpr std::chrono::microseconds kShortPause{50};
constexpr std::chrono::microseconds kLongPause{1000};
constexpr std::chrono::milliseconds kSilence{2};
// The kernel lengthens pauses by up to this much; its default is 50 us.
constexpr unsigned long kTimerSlackNanoseconds = 1000;
// Packets matched before the first of them is delivered.
constexpr int kMatchedAtOnce = 16;

}  // namespace

MpiFabric::MpiFabric(MPI_Comm communicator) : communicator_(communicator) {
  int world_size = 0;
  MPI_Comm_size(communicator_, &world_size);
  peers_.resize(static_cast<std::size_t>(world_size));
  for (Peer& peer : peers_) peer.sends.fill(MPI_REQUEST_NULL);
}

void MpiFabric::start(PacketPort& port) {
  const SignalsHeldBack no_signals;
  looker_ = std::thread([this, &port] { run(port); });
}

void MpiFabric::run(PacketPort& port) noexcept {
  (void)::prctl(PR_SET_TIMERSLACK, kTimerSlackNanoseconds, 0, 0, 0);
  Deadline last_news = Clock::now();
  auto pause = kShortPause;
  while (!stopping_) {
    const bool news = look(port);
    MutexLock lock(mutex_);
    const Deadline now = Clock::now();
    if (news || busy_) {
      busy_ = false;
      last_news = now;
      pause = kShortPause;
    } else if (now - last_news > kSilence) {
      pause = std::min(2 * pause, kLongPause);
    }
    // A new send ends a long pause: for large packets this thread must continue the rendezvous protocol.
    if (!news)
      changed_.wait_for(lock.standard(), pause,
                        [this, pause]() DELTAWIRE_REQUIRES(mutex_) { return pause > kShortPause && busy_; });
  }
}

bool MpiFabric::look(PacketPort& port) {
  bool news = false;
  for (int i = 0; i < kMatchedAtOnce && match_one(port); ++i) news = true;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (!at(rank).incoming.empty()) news = deliver_from(port, rank) || news;
  }
  return news;
}

// Matches the next message from any rank, and starts to receive it.
bool MpiFabric::match_one(PacketPort& port) {
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  const int result = MPI_Improbe(MPI_ANY_SOURCE, kTag, communicator_, &found, &message, &status);
  if (result != MPI_SUCCESS || found == 0) return false;
  const int rank = status.MPI_SOURCE;
  Incoming incoming;
  MPI_Get_count(&status, MPI_BYTE, &incoming.bytes);
  incoming.room = port.take_room(rank);
  if (incoming.room.bytes.size() < static_cast<std::size_t>(incoming.bytes)) {
    // This violates the protocol: accept nothing more from that rank.
    clean_ = false;
    port.lost(rank, EBADMSG);
    return true;
  }
  if (MPI_Imrecv(incoming.room.bytes.data(), incoming.bytes, MPI_BYTE, &message, &incoming.request) !=
      MPI_SUCCESS) {
    port.lost(rank, 0);
  } else {
    at(rank).incoming.push_back(incoming);
  }
  return true;
}

// A small packet can be complete before a large one that was sent earlier: it waits.
bool MpiFabric::deliver_from(PacketPort& port, int rank) {
  std::deque<Incoming>& queue = at(rank).incoming;
  bool news = false;
  while (!queue.empty()) {
    int complete = 0;
    const int result = MPI_Test(&queue.front().request, &complete, MPI_STATUS_IGNORE);
    if (result == MPI_SUCCESS && complete == 0) break;
    const Incoming front = queue.front();
    queue.pop_front();
    news = true;
    if (result == MPI_SUCCESS) {
      port.arrived(rank, front.room, static_cast<std::size_t>(front.bytes));
    } else {
      clean_ = false;
      port.lost(rank, 0);
    }
  }
  return news;
}

bool MpiFabric::start_send(int rank, std::size_t slot, Bytes packet) noexcept {
  if (MPI_Isend(packet.data(), static_cast<int>(packet.size()), MPI_BYTE, rank, kTag, communicator_,
                &at(rank).sends[slot]) != MPI_SUCCESS) {
    return false;
  }
  const MutexLock lock(mutex_);
  busy_ = true;
  changed_.notify_one();
  return true;
}

bool MpiFabric::finish_send(int rank, std::size_t slot) noexcept {
  return MPI_Wait(&at(rank).sends[slot], MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

bool MpiFabric::sends_complete() noexcept {
  for (Peer& peer : peers_) {
    int complete = 0;
    if (MPI_Testall(static_cast<int>(kSlots), peer.sends.data(), &complete, MPI_STATUSES_IGNORE) !=
            MPI_SUCCESS ||
        complete == 0) {
      return false;
    }
  }
  return true;
}

bool MpiFabric::stop(Deadline deadline, bool drained) noexcept {
  if (!looker_.joinable()) return clean_;
  stopping_ = true;
  looker_.join();
  bool complete = sends_complete();
  while (!complete && Clock::now() < deadline) {
    std::this_thread::sleep_for(kShortPause);
    complete = sends_complete();
  }
  clean_ = clean_ && complete &&
           std::ranges::all_of(peers_, [](const Peer& peer) { return peer.incoming.empty(); });
  drained_ = clean_ && drained;
  if (!drained_) ranks_left_behind() = true;
  return clean_;
}

MpiFabric::~MpiFabric() {
  (void)stop(Clock::now(), false);
  if (drained_) MPI_Comm_free(&communicator_);
}

std::atomic<bool>& MpiFabric::ranks_left_behind() noexcept {
  static std::atomic<bool> left_behind{false};
  return left_behind;
}

}  // namespace deltawire
