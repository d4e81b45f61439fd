// A rank's place in a job: a transport, a reducer and the thread that joins them, with one lifetime.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "deltawire/connect.h"
#include "deltawire/reducer.h"
#include "deltawire/transport.h"

namespace deltawire::python {

// Thread rule: submit, save, load and close from one thread at a time; abort, traffic and memory from any
// thread.
// In a forked child every call is refused or does nothing, and destruction leaks: the threads that it
// would join live in the parent, and so do the sockets.
class Session {
 public:
  // Connects the mesh; blocks for at most mesh.connect_timeout. Errors: those of make_reducer and
  // connect_tcp.
  static Result<std::unique_ptr<Session>> open(std::unique_ptr<Listener> listener, const MeshOptions& mesh,
                                               std::string_view spec, const ReducerOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // As ReduceQueue::submit; kState through `done` when closed.
  void submit(std::span<const Named> tensors, const Step& step, std::chrono::milliseconds timeout,
              ReduceQueue::Done done);

  // Fails every wait on every rank, naming this rank and the reason.
  void abort(const std::string& reason);

  // Ends the communication thread and says goodbye; idempotent. Buckets still in flight are aborted, not
  // waited for: their gradients have no reader any more.
  void close();
  bool closed() const { return !parts_ || !parts_->queue; }

  Traffic traffic() const;
  Memory memory() const { return parts_->reducer->memory(); }
  std::string spec() const { return parts_->reducer->spec(); }

  // Reducer::mask_sent for each of these tensors, float32. kState while buckets are in flight.
  Status mask_sent(std::span<const Named> momenta);

  // The reducer's residuals, also after close(). kState while buckets are in flight.
  Result<std::vector<std::byte>> save();
  Status load(Bytes state);

 private:
  struct Parts {
    std::unique_ptr<Reducer> reducer;
    std::unique_ptr<Transport> transport;
    std::unique_ptr<ReduceQueue> queue;  // uses both of the above
    std::mutex mutex;                    // guards transport (the pointer) and last_traffic
    Traffic last_traffic;
    std::atomic<int> in_flight{0};
    int rank = 0;
    int process = 0;

    bool forked() const;
    void close();
  };

  explicit Session(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
  Status pause();
  void resume();

  std::unique_ptr<Parts> parts_;
};

}  // namespace deltawire::python
