#include "deltawire/connect_mpi.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <mpi.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/errors.h"
#include "deltawire/connect.h"
#include "transport/mesh/settings.h"
#include "transport/tcp/proof.h"

namespace deltawire {
namespace {

// MPI has no descriptor to sleep on, so calls look: often at first, rarely in silence.
constexpr std::chrono::microseconds kYieldTime{20};
constexpr std::chrono::microseconds kShortPause{50};
constexpr std::chrono::microseconds kLongPause{1000};
constexpr std::chrono::milliseconds kSilence{2};
// The kernel lengthens pauses by up to this much; its default is 50 us.
constexpr unsigned long kTimerSlackNanoseconds = 1000;

// All that MPI promises: a mesh that failed so many meshes ago has left nothing.
constexpr int kTags = 32768;

// Calls that have not ended. MPI_Finalize would wait for their other ends, perhaps forever.
std::atomic<int> calls_under_way = 0;
std::atomic<bool> ranks_left_behind = false;

bool complete(MPI_Request& request, Deadline deadline) {
  const Deadline begin = Clock::now();
  auto pause = kShortPause;
  int flag = 0;
  while (MPI_Test(&request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS) {
    if (flag != 0) return true;
    const Deadline now = Clock::now();
    if (now >= deadline) return false;
    if (now - begin < kYieldTime) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(pause);
    if (now - begin > kSilence) pause = std::min(2 * pause, kLongPause);
  }
  return false;
}

// Moves a mesh's bytes under a tag of its own, so that what a mesh that failed has left is nobody's.
class MpiCarrier final : public Carrier {
 public:
  MpiCarrier(MPI_Comm communicator, int tag) : communicator_(communicator), tag_(tag) {}

  bool send(int peer, Bytes bytes) noexcept override {
    MPI_Request request = MPI_REQUEST_NULL;
    return ends(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, peer, tag_, communicator_,
                          &request),
                request);
  }
  bool receive(int peer, MutBytes into) noexcept override {
    MPI_Request request = MPI_REQUEST_NULL;
    return ends(
        MPI_Irecv(into.data(), static_cast<int>(into.size()), MPI_BYTE, peer, tag_, communicator_, &request),
        request);
  }

 private:
  static bool ends(int begun, MPI_Request& request) noexcept {
    thread_local const int slack = ::prctl(PR_SET_TIMERSLACK, kTimerSlackNanoseconds, 0, 0, 0);
    (void)slack;
    ++calls_under_way;
    const bool done = begun == MPI_SUCCESS && complete(request, Deadline::max());
    --calls_under_way;
    if (!done) ranks_left_behind = true;
    return done;
  }

  MPI_Comm communicator_;
  int tag_;
};

// Finalizes MPI with the process, not with the transport, because it can't be initialized a second time.
void finalize_at_exit() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && !ranks_left_behind && calls_under_way == 0) MPI_Finalize();
}

Status initialize() {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  int flag = 0;
  MPI_Finalized(&flag);
  if (flag != 0) return wrong_state("connect_mpi: MPI has been finalized already");
  int level = MPI_THREAD_SINGLE;
  MPI_Initialized(&flag);
  if (flag != 0) {
    MPI_Query_thread(&level);
    if (level == MPI_THREAD_MULTIPLE) return {};
    return wrong_state(
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

// The communicator of the meshes of another, which has it as an attribute.
struct Duplicate {
  MPI_Comm communicator = MPI_COMM_NULL;
  int meshes = 0;
};

extern "C" int forget_duplicate(MPI_Comm, int, void* duplicate, void*) {
  delete static_cast<Duplicate*>(duplicate);
  return MPI_SUCCESS;
}

// Null: the others have not come by the deadline.
Result<Duplicate*> duplicate_of(MPI_Comm parent, Deadline deadline) {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget_duplicate, &made, nullptr);
    return made;
  }();
  void* known = nullptr;
  int flag = 0;
  MPI_Comm_get_attr(parent, key, &known, &flag);
  if (flag != 0) return static_cast<Duplicate*>(known);
  auto* const made = new Duplicate;  // MPI writes into it, also after the deadline
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Comm_idup(parent, &made->communicator, &request) != MPI_SUCCESS) {
    return fail(ErrorCode::kSystem, "connect_mpi: the communicator can't be duplicated");
  }
  if (!complete(request, deadline)) return nullptr;
  MPI_Comm_set_errhandler(made->communicator, MPI_ERRORS_RETURN);
  MPI_Comm_set_attr(parent, key, made);
  return made;
}

// What ranks tell each other before they can connect.
struct Meeting {
  using Host = std::array<char, 256>;  // of a rank's machine
  explicit Meeting(int world_size) : hosts(static_cast<std::size_t>(world_size)) {}

  Host own{};
  std::vector<Host> hosts;
  struct {
    Token token{};
    std::array<char, 512> address{};  // of rank 0, or empty
    std::array<char, 512> problem{};  // why there is none
  } first;
};

template <std::size_t kSize>
void put(std::array<char, kSize>& to, const std::string& text) {
  text.copy(to.data(), kSize - 1);
}

// Rank 0's listener: on the address towards another machine, if there is one.
Result<std::unique_ptr<Listener>> listen_for_all(const Meeting& meeting) {
  const auto far = std::ranges::find_if(meeting.hosts, [&](const auto& host) { return host != meeting.own; });
  ASSIGN_OR_RETURN(
      const std::string own,
      local_address_towards(far == meeting.hosts.end() ? "127.0.0.1" : std::string(far->data())));
  return listen_tcp(own);
}

// Fills mesh.rendezvous and mesh.token. Empty, without an error: the others have not come by the deadline.
Result<std::unique_ptr<Listener>> meet(MPI_Comm communicator, MeshOptions& mesh, Deadline deadline) {
  auto meeting = std::make_unique<Meeting>(mesh.world_size);
  (void)::gethostname(meeting->own.data(), meeting->own.size() - 1);
  constexpr int kHostBytes = sizeof(Meeting::Host);
  MPI_Request request = MPI_REQUEST_NULL;
  std::unique_ptr<Listener> listener;
  bool met = MPI_Iallgather(meeting->own.data(), kHostBytes, MPI_CHAR, meeting->hosts.data(), kHostBytes,
                            MPI_CHAR, communicator, &request) == MPI_SUCCESS &&
             complete(request, deadline);
  if (met && mesh.rank == 0) {
    auto made = listen_for_all(*meeting);
    const std::optional<Nonce> token = random_nonce();
    if (made && token) {
      listener = std::move(*made);
      meeting->first.token = *token;
      put(meeting->first.address, to_string(listener->endpoint()));
    } else {
      put(meeting->first.problem, made ? "the system gives no random bytes" : made.error().message);
    }
  }
  met = met &&
        MPI_Ibcast(&meeting->first, sizeof meeting->first, MPI_BYTE, 0, communicator, &request) ==
            MPI_SUCCESS &&
        complete(request, deadline);
  if (!met) {
    [[maybe_unused]] const Meeting* still_written = meeting.release();
    return std::unique_ptr<Listener>();
  }
  const Result<Endpoint> address = parse_endpoint(meeting->first.address.data());
  if (!address) {
    return fail(
        ErrorCode::kSystem,
        "connect_mpi: rank 0 can't listen for the others: " + std::string(meeting->first.problem.data()) +
            "; DELTAWIRE_INTERFACE names the network interface or address to listen on",
        0);
  }
  mesh.rendezvous = *address;
  mesh.token = meeting->first.token;
  if (listener) return listener;
  return listen_for(*address, mesh.rank);
}

tl::unexpected<Error> not_all_there(const MpiOptions& options) {
  ranks_left_behind = true;
  return fail(ErrorCode::kTimeout, "connect_mpi: not all ranks of the communicator called it within " +
                                       std::to_string(options.connect_timeout.count()) + " ms");
}

}  // namespace

bool has_mpi() noexcept {
  return true;
}

Result<std::unique_ptr<Transport>> connect_mpi(const MpiOptions& options) {
  RETURN_IF_ERROR(check_settings("connect_mpi", options.settings));
  RETURN_IF_ERROR(initialize());
  const Deadline deadline = Clock::now() + options.connect_timeout;
  const MPI_Comm parent =
      options.fortran_communicator ? MPI_Comm_f2c(*options.fortran_communicator) : MPI_COMM_WORLD;
  if (parent == MPI_COMM_NULL) {
    return invalid("connect_mpi: fortran_communicator is MPI_COMM_NULL; give a communicator of this rank");
  }
  ASSIGN_OR_RETURN(auto* const duplicate, duplicate_of(parent, deadline));
  if (duplicate == nullptr) return not_all_there(options);
  MeshOptions mesh;
  MPI_Comm_rank(duplicate->communicator, &mesh.rank);
  MPI_Comm_size(duplicate->communicator, &mesh.world_size);
  mesh.settings = options.settings;
  mesh.epoch = options.epoch;
  mesh.link.carrier = std::make_shared<MpiCarrier>(duplicate->communicator, duplicate->meshes++ % kTags);
  ASSIGN_OR_RETURN(auto listener, meet(duplicate->communicator, mesh, deadline));
  if (listener == nullptr) return not_all_there(options);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  mesh.connect_timeout = std::max(left, std::chrono::milliseconds(1));
  return connect_tcp(std::move(listener), mesh);
}

}  // namespace deltawire
