#include "session.h"

#include <thread>
#include <utility>

#include <unistd.h>

namespace deltawire::python {
namespace {

// The session parts whose `done` runs on this thread, to notice a session that is destroyed by it.
thread_local const void* completing = nullptr;

}  // namespace

Result<std::unique_ptr<Session>> Session::open(std::unique_ptr<Listener> listener, const MeshOptions& mesh,
                                               std::string_view spec, const ReducerOptions& options) {
  auto reducer = make_reducer(spec, options);
  if (!reducer) return forward_error(reducer);
  auto transport = connect_tcp(std::move(listener), mesh);
  if (!transport) return forward_error(transport);
  auto parts = std::make_unique<Parts>();
  parts->reducer = std::move(*reducer);
  parts->transport = std::move(*transport);
  parts->rank = mesh.rank;
  parts->process = static_cast<int>(getpid());
  parts->queue = std::make_unique<ReduceQueue>(*parts->reducer, *parts->transport);
  return std::unique_ptr<Session>(new Session(std::move(parts)));
}

Session::~Session() {
  if (parts_->forked()) {
    (void)parts_.release();
  } else if (completing == parts_.get()) {
    // Dropped by its own communication thread (a garbage collection in a callback), which can't join
    // itself: another thread does it.
    std::thread([parts = std::move(parts_)] { parts->close(); }).detach();
  } else {
    parts_->close();
  }
}

void Session::submit(std::span<const Named> tensors, const Step& step, std::chrono::milliseconds timeout,
                     ReduceQueue::Done done) {
  if (parts_->forked()) {
    done(fail(ErrorCode::kState, "this process was forked from a rank; only the rank itself can exchange"));
    return;
  }
  if (closed()) {
    done(fail(ErrorCode::kState, "the session is closed; register a new model to go on"));
    return;
  }
  Parts* parts = parts_.get();
  ++parts->in_flight;
  parts->queue->submit(tensors, step, timeout, [parts, done = std::move(done)](const Result<Report>& report) {
    completing = parts;
    --parts->in_flight;  // first: whoever is woken by `done` may save
    done(report);
    completing = nullptr;
  });
}

void Session::abort(const std::string& reason) {
  if (parts_->forked()) return;
  const std::lock_guard lock(parts_->mutex);
  if (parts_->transport) parts_->transport->abort(Error{ErrorCode::kAborted, reason, parts_->rank});
}

void Session::close() {
  parts_->close();
}

bool Session::Parts::forked() const {
  return process != static_cast<int>(getpid());
}

void Session::Parts::close() {
  if (!queue || forked()) return;
  if (const int left = in_flight; left > 0) {
    transport->abort(Error{ErrorCode::kAborted,
                           "rank " + std::to_string(rank) + " closed its session with " +
                               std::to_string(left) + " buckets in flight",
                           rank});
  }
  queue.reset();
  std::unique_ptr<Transport> ended;
  {
    const std::lock_guard lock(mutex);
    last_traffic = transport->traffic();
    ended = std::move(transport);
  }
}

Traffic Session::traffic() const {
  const std::lock_guard lock(parts_->mutex);
  return parts_->transport ? parts_->transport->traffic() : parts_->last_traffic;
}

// Nobody else may use the reducer while its queue lives, idle or not: so the queue ends and starts again.
Status Session::pause() {
  if (parts_->forked()) return fail(ErrorCode::kState, "this process was forked from a rank; ask the rank");
  if (parts_->in_flight > 0) {
    return fail(ErrorCode::kState, "buckets are in flight; save, load and mask between steps");
  }
  parts_->queue.reset();
  return {};
}

void Session::resume() {
  if (parts_->transport) parts_->queue = std::make_unique<ReduceQueue>(*parts_->reducer, *parts_->transport);
}

Status Session::mask_sent(std::span<const Named> momenta) {
  if (Status paused = pause(); !paused) return paused;
  Status masked;
  for (const Named& momentum : momenta) {
    auto* values = static_cast<float*>(momentum.tensor.values);
    masked = parts_->reducer->mask_sent(momentum.name, {values, momentum.tensor.count});
    if (!masked) break;
  }
  resume();
  return masked;
}

Result<std::vector<std::byte>> Session::save() {
  if (Status paused = pause(); !paused) return forward_error(paused);
  auto state = parts_->reducer->save();
  resume();
  return state;
}

Status Session::load(Bytes state) {
  if (Status paused = pause(); !paused) return paused;
  Status loaded = parts_->reducer->load(state);
  resume();
  return loaded;
}

}  // namespace deltawire::python
