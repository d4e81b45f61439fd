#include "deltawire/connect_mpi.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include <mpi.h>
#include <sys/prctl.h>

#include "base/mutex.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/packet_peer.h"
#include "transport/fabric/packet_port.h"
#include "transport/mesh/settings.h"
#include "transport/process/signals.h"

namespace deltawire {

// Packets over MPI: non-blocking sends, matched probes, and one thread that polls. Several threads call MPI
// at once: it must have been initialized with MPI_THREAD_MULTIPLE.
class MpiFabric final : public Fabric {
 public:
  // Takes over `communicator`, a duplicate whose errors are returned.
  explicit MpiFabric(MPI_Comm communicator);
  ~MpiFabric() override;
  MpiFabric(const MpiFabric&) = delete;
  MpiFabric& operator=(const MpiFabric&) = delete;

  void start(PacketPort& port) override;
  bool start_send(int peer, std::size_t slot, Bytes packet) noexcept override;
  bool finish_send(int peer, std::size_t slot) noexcept override;
  bool stop(Deadline deadline, bool drained) noexcept override;
  // A communicator must not be freed with a message in it: Open MPI reuses its number, and takes the message
  // for one of the new communicator.
  bool ends_drained() const noexcept override { return true; }

  // Whether a fabric of this process has ended while a rank was silent: MPI_Finalize would wait for that
  // rank, perhaps forever.
  static std::atomic<bool>& ranks_left_behind() noexcept;

 private:
  // A packet that has been matched and is coming in.
  struct Incoming {
    PacketPort::Room room;
    MPI_Request request = MPI_REQUEST_NULL;
    int bytes = 0;
    bool complete = false;
  };
  struct Peer {
    std::array<MPI_Request, kSlots> sends;  // null: none
    std::deque<Incoming> incoming;          // in the order of matching
  };

  void run(PacketPort& port) noexcept;
  bool look(PacketPort& port);
  bool match_one(PacketPort& port);
  bool deliver_from(PacketPort& port, int peer);
  bool sends_complete() noexcept;
  Peer& at(int peer) noexcept { return peers_[static_cast<std::size_t>(peer)]; }

  MPI_Comm communicator_;
  std::vector<Peer> peers_;

  Mutex mutex_;
  std::condition_variable changed_;
  bool busy_ DELTAWIRE_GUARDED_BY(mutex_) = false;  // a send was started since the thread last looked
  std::atomic<bool> stopping_{false};
  bool clean_ = true;     // MPI has released all memory
  bool drained_ = false;  // the communicator is empty, too
  std::thread looker_;    // last: it uses all the above
};

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

namespace {

constexpr std::chrono::milliseconds kLook{1};

// Finalizes MPI with the process, not with the transport, because it can't be initialized a second time.
void finalize_at_exit() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && !MpiFabric::ranks_left_behind()) MPI_Finalize();
}

Status initialize() {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  int flag = 0;
  MPI_Finalized(&flag);
  if (flag != 0) return fail(ErrorCode::kState, "connect_mpi: MPI has been finalized already");
  int level = MPI_THREAD_SINGLE;
  MPI_Initialized(&flag);
  if (flag != 0) {
    MPI_Query_thread(&level);
    if (level == MPI_THREAD_MULTIPLE) return {};
    return fail(ErrorCode::kState,
                "connect_mpi: MPI was not initialized for several threads; call MPI_Init_thread with "
                "MPI_THREAD_MULTIPLE, or let deltawire initialize MPI");
  }
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) {
    return fail(ErrorCode::kSystem, "connect_mpi: MPI can't be initialized; see its own messages");
  }
  if (std::atexit(finalize_at_exit) == 0 && level == MPI_THREAD_MULTIPLE) return {};
  return fail(ErrorCode::kSystem,
              "connect_mpi: this MPI library doesn't offer MPI_THREAD_MULTIPLE; install one that does");
}

// Waits for a collective operation of all ranks, with a deadline, which MPI itself lacks.
bool complete(MPI_Request& request, Deadline deadline) {
  int flag = 0;
  while (MPI_Test(&request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS) {
    if (flag != 0) return true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kLook);
  }
  return false;
}

tl::unexpected<Error> not_all_there(const MpiOptions& options) {
  MpiFabric::ranks_left_behind() = true;
  return fail(ErrorCode::kTimeout, "connect_mpi: not all ranks of the communicator called it within " +
                                       std::to_string(options.connect_timeout.count()) + " ms");
}

}  // namespace

bool has_mpi() noexcept {
  return true;
}

Result<std::unique_ptr<Transport>> connect_mpi(const MpiOptions& options) {
  if (Status status = check_settings("connect_mpi", options.settings); !status) return forward_error(status);
  if (Status status = initialize(); !status) return forward_error(status);
  const Deadline deadline = Clock::now() + options.connect_timeout;
  const MPI_Comm parent =
      options.fortran_communicator ? MPI_Comm_f2c(*options.fortran_communicator) : MPI_COMM_WORLD;
  if (parent == MPI_COMM_NULL) {
    return fail(ErrorCode::kInvalidArgument,
                "connect_mpi: fortran_communicator is MPI_COMM_NULL; give a communicator of this rank");
  }
  auto communicator = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Comm_idup(parent, communicator.get(), &request) != MPI_SUCCESS) {
    return fail(ErrorCode::kSystem, "connect_mpi: the communicator can't be duplicated");
  }
  if (!complete(request, deadline)) {
    [[maybe_unused]] const MPI_Comm* still_written = communicator.release();
    return not_all_there(options);
  }
  FabricMember self;
  MPI_Comm_set_errhandler(*communicator, MPI_ERRORS_RETURN);
  MPI_Comm_rank(*communicator, &self.rank);
  MPI_Comm_size(*communicator, &self.world_size);
  self.settings = options.settings;
  self.epoch = options.epoch;
  return connect_fabric(self, std::make_unique<MpiFabric>(*communicator), deadline);
}

}  // namespace deltawire
