#include "deltawire/session.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/mutex.h"
#include "reduce/reduce_queue.h"
#include "reduce/session_calls.h"
#include "reduce/wakeable_reducer.h"
#include "transport/mesh/settings.h"
#include "transport/process/fork_guard.h"

namespace deltawire {
namespace {

std::optional<Error> failure_of(const Transport& transport, std::chrono::milliseconds wait) {
  std::optional<Error> error = transport.failure(wait);
  if (error) transport.names().to_numbers(*error);
  return error;
}

}  // namespace

struct Session::Parts {
  Parts(std::unique_ptr<WakeableReducer> made, std::unique_ptr<Transport> taken)
      : reducer(std::move(made)),
        transport(std::move(taken)),
        names(transport->names()),
        rank(transport->rank()),
        queue(*reducer, *transport, 4, true) {}

  bool forked() const noexcept { return home != fork_generation(); }
  void abort(Error error);
  void close(std::chrono::milliseconds wait);
  // Nothing: it is closed. For calls that may wait: without the lock, others may abort or close meanwhile.
  std::shared_ptr<Transport> open_transport() {
    const MutexLock lock(mutex);
    return transport;
  }

  const std::uint64_t home = fork_generation();
  std::atomic<bool> closed = false;
  std::unique_ptr<WakeableReducer> reducer;
  Mutex closing;  // held while the thread is joined
  Mutex mutex;
  std::shared_ptr<Transport> transport DELTAWIRE_GUARDED_BY(mutex);
  // What is kept of it: written once, before it goes.
  Traffic last_traffic;
  LastCommit last_commit;
  std::optional<Error> last_failure;
  const RankNames names;
  const int rank;
  ReduceQueue queue;  // last: it uses reducer and transport
};

void Session::Parts::abort(Error error) {
  const MutexLock lock(mutex);
  if (!transport) return;
  names.to_ranks(error);
  transport->abort(error);
}

void Session::Parts::close(std::chrono::milliseconds wait) {
  const bool from_done = queue.on_own_thread();
  closed = true;
  queue.refuse_more();
  const Deadline deadline = Clock::now() + (from_done ? std::chrono::milliseconds{} : wait);
  if (const std::size_t left = queue.wait_idle(deadline); left > 0) {
    abort({.code = ErrorCode::kAborted,
           .message =
               names.of(rank) + " closed its session with " + std::to_string(left) + " buckets in flight",
           .suspect = names.number_of(rank),
           .reporter = names.number_of(rank)});
  }
  if (from_done) return;
  const MutexLock one_at_a_time(closing);
  queue.stop();
  std::shared_ptr<Transport> ended = open_transport();  // outlives the lock: its goodbye takes a while
  if (!ended) return;
  const LastCommit commit = ended->last_commit();
  const MutexLock lock(mutex);
  last_traffic = ended->traffic();
  last_commit = commit;
  last_failure = failure_of(*ended, {});
  transport.reset();
}

Session::Session(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Result<std::unique_ptr<Session>> Session::open(std::string_view spec, const ReducerOptions& options,
                                               std::unique_ptr<Transport> transport) {
  ASSIGN_OR_RETURN(auto reducer, make_wakeable_reducer(spec, options));
  if (transport == nullptr) return invalid("the transport is null; connect it first");
  try {
    auto parts = std::make_unique<Parts>(std::move(reducer), std::move(transport));
    return std::unique_ptr<Session>(new Session(std::move(parts)));
  } catch (const std::system_error& error) {
    return no_thread("the session", error);
  }
}

Result<std::unique_ptr<Session>> Session::connect(std::string_view spec, const ReducerOptions& options,
                                                  std::unique_ptr<Listener> listener, MeshOptions mesh) {
  ASSIGN_OR_RETURN(auto settings, agreed_settings(spec, options));
  mesh.settings = fitted_settings(mesh.settings.empty() ? settings : settings + " " + mesh.settings);
  ASSIGN_OR_RETURN(auto transport, connect_tcp(std::move(listener), mesh));
  return open(spec, options, std::move(transport));
}

Session::~Session() {
  if (parts_->forked()) {
    [[maybe_unused]] const Parts* leaked = parts_.release();
  } else if (parts_->queue.on_own_thread()) {
    // Dropped by a bucket's `done`, whose thread can't join itself: another one does it.
    Parts* const parts = parts_.release();
    try {
      std::thread([parts] { std::unique_ptr<Parts>(parts)->close({}); }).detach();
    } catch (const std::exception&) {
      parts->close({});  // refuses more, and tells the others; the memory is the process's to free
    }
  } else {
    parts_->close({});
  }
}

void Session::submit(const Bucket& bucket, const Step& step, std::chrono::milliseconds timeout, Done done) {
  if (parts_->forked()) {
    done(refused_in_child());
  } else {
    parts_->queue.submit(bucket, step, timeout, std::move(done));
  }
}

Result<Report> Session::all_reduce(const Bucket& bucket, const Step& step,
                                   std::chrono::milliseconds timeout) {
  if (parts_->queue.on_own_thread()) {
    return wrong_state("all_reduce would wait for the `done` that calls it; submit the bucket");
  }
  struct {
    Mutex mutex;
    std::condition_variable over;
    std::optional<Result<Report>> outcome DELTAWIRE_GUARDED_BY(mutex);
  } waiting;
  submit(bucket, step, timeout, [&waiting](const Result<Report>& report) {
    const MutexLock lock(waiting.mutex);
    waiting.outcome = or_no_memory("handing over a report", [&] { return report; });
    waiting.over.notify_one();
  });
  MutexLock lock(waiting.mutex);
  waiting.over.wait(lock.standard(),
                    [&]() DELTAWIRE_REQUIRES(waiting.mutex) { return waiting.outcome.has_value(); });
  return *std::move(waiting.outcome);
}

Status Session::mask_sent(std::span<const Named> momenta) {
  if (parts_->forked()) return refused_in_child();
  return parts_->queue.while_idle([&] { return mask_all(*parts_->reducer, momenta); });
}

Result<std::vector<TensorUse>> Session::explain(std::span<const Named> tensors, std::uint64_t step) {
  if (parts_->forked()) return refused_in_child();
  return parts_->queue.while_idle([&] {
    return or_no_memory("explaining", [&]() -> Result<std::vector<TensorUse>> {
      return parts_->reducer->explain(tensors, step);
    });
  });
}

Result<std::vector<std::byte>> Session::save() {
  if (parts_->forked()) return refused_in_child();
  return parts_->queue.while_idle([&] { return parts_->reducer->save(); });
}

Status Session::load(Bytes state) {
  if (parts_->forked()) return refused_in_child();
  return parts_->queue.while_idle([&] { return parts_->reducer->load(state); });
}

Status Session::load_resized(const SavedRanks& saved) {
  if (parts_->forked()) return refused_in_child();
  return parts_->queue.while_idle([&] { return parts_->reducer->load_resized(saved); });
}

Status Session::recode(const Spec& spec) {
  if (parts_->forked()) return refused_in_child();
  return parts_->queue.while_idle([&] { return parts_->reducer->recode(spec); });
}

void Session::abort(std::string_view reason, int suspect) {
  abort(Error{ErrorCode::kAborted, std::string(reason), suspect});
}

void Session::abort(Error error) {
  if (!parts_->forked()) parts_->abort(std::move(error));
}

std::optional<Error> Session::failure(std::chrono::milliseconds wait) const {
  if (parts_->forked()) return refused_in_child().value();
  if (const auto transport = parts_->open_transport()) return failure_of(*transport, wait);
  return parts_->last_failure;
}

void Session::close(std::chrono::milliseconds wait) {
  if (!parts_->forked()) parts_->close(wait);
}

bool Session::closed() const noexcept {
  return parts_->closed;
}

std::string Session::spec() const {
  return parts_->reducer->spec();
}

Memory Session::memory() const noexcept {
  return parts_->reducer->memory();
}

Traffic Session::traffic() const {
  if (parts_->forked()) return {};
  const MutexLock lock(parts_->mutex);
  return parts_->transport ? parts_->transport->traffic() : parts_->last_traffic;
}

std::vector<LineState> Session::lines() const {
  std::vector<LineState> lines;
  const auto transport = parts_->forked() ? nullptr : parts_->open_transport();
  for (int rank = 0; transport && rank < transport->world_size(); ++rank) {
    lines.push_back(transport->line_state(rank));
  }
  return lines;
}

bool Session::shares_memory() const {
  const auto transport = parts_->forked() ? nullptr : parts_->open_transport();
  return transport && transport->shared_areas() != nullptr;
}

LastCommit Session::last_commit() const {
  if (parts_->forked()) return {};
  if (const auto transport = parts_->open_transport()) return transport->last_commit();
  return parts_->last_commit;
}

}  // namespace deltawire
