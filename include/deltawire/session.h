// Sessions: a rank's place in a job, and what most programs embed. A session owns a transport, a reducer and
// the one communication thread that joins them:
//
//   auto session = Session::connect("3lc", {}, std::move(listener), mesh);
//   (*session)->submit(tensors, {.number = 0, .bucket = 0, .last = false}, timeout, done);
//   auto report = (*session)->all_reduce(others, {.number = 0, .bucket = 1, .last = true}, timeout);
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/connect.h"
#include "deltawire/export.h"
#include "deltawire/reducer.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire {

// Buckets are begun in the order of submission, up to four of one step in flight; while one waits for the
// network another is coded. After the first error every later bucket fails with it (Reducer's failure rule),
// and the session is good for save, load and close alone.
//
// Thread rule: any thread may call any member. The order of two threads' buckets is theirs to settle; whoever
// destroys a session is the last to use it, and may be its `done`.
//
// In a forked child every call is refused (kState) or does nothing, and destruction leaks: the thread that it
// would join lives in the parent, and so do the connections.
class DELTAWIRE_API Session {
 public:
  // Called once for each bucket, on the communication thread, in the order of submission; on the caller's
  // where the bucket could not be queued. It must not throw. It may call all but all_reduce.
  using Done = std::function<void(const Result<Report>&)>;

  // Meets the other ranks over TCP, as connect_tcp, and opens. What all must have alike is agreed_settings
  // and, behind it, mesh.settings; of more than 1024 bytes the front and a digest of all. Errors: those of
  // make_reducer, before anybody is met, and of connect_tcp.
  static Result<std::unique_ptr<Session>> connect(std::string_view spec, const ReducerOptions& options,
                                                  std::unique_ptr<Listener> listener, MeshOptions mesh);

  // Over a transport of any kind, whose ranks have compared what they must have alike, or not. Errors: those
  // of make_reducer; the transport is gone then, too.
  static Result<std::unique_ptr<Session>> open(std::string_view spec, const ReducerOptions& options,
                                               std::unique_ptr<Transport> transport);
  ~Session();  // close()
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Queues one bucket, as Reducer::begin gets it. Names and dims are copied; the tensors' memory, and
  // pair_means, must stay, unread and unwritten by others, until `done`. `timeout` counts from the moment the
  // bucket is begun. Errors go to `done`: those of Reducer::begin and finish, kState after close().
  void submit(const Bucket& bucket, const Step& step, std::chrono::milliseconds timeout, Done done);

  // submit, and waits until it is done. kState from `done`, which it would wait for.
  Result<Report> all_reduce(const Bucket& bucket, const Step& step, std::chrono::milliseconds timeout);

  // Between steps; kState while a bucket is in flight (submitted, and neither finished nor failed) or a step
  // is open. Errors otherwise: those of Reducer's members of these names. After close() they still work.
  // explain takes the number of the step whose codecs are to be named, the next one for instance.
  // mask_sent: of each tensor, float32, the element is set to 0 that this rank sent in the last step.
  Status mask_sent(std::span<const Named> momenta);
  Result<std::vector<TensorUse>> explain(std::span<const Named> tensors, std::uint64_t step);
  Result<std::vector<std::byte>> save();
  Status load(Bytes state);
  Status load_resized(const SavedRanks& saved);

  // Fails every wait of every rank, naming this rank and the reason. `suspect` is the rank to blame, where
  // this rank fails only because of another; kNoSuspect: this one. A program that ends because of an
  // exception calls this before close(): else the others read that this rank left in good order.
  void abort(std::string_view reason, int suspect = kNoSuspect);

  // Transport::failure; of a closed session at once, what it was then. last_committed_step is set.
  std::optional<Error> failure(std::chrono::milliseconds wait = {}) const;

  // Takes no more buckets, waits up to `wait` for buckets in flight, aborts what is left of them, on every
  // rank, joins the thread and says goodbye to the other ranks. Idempotent. From `done` it waits for nothing,
  // and the goodbye is left to a later close, or to the destructor.
  void close(std::chrono::milliseconds wait = {});
  bool closed() const noexcept;

  std::string spec() const;        // canonical, e.g. "direct(3lc:s=1.75,mode=auto,runs=on)"
  Memory memory() const noexcept;  // the reducer's
  Traffic traffic() const;         // the transport's, of a closed session its last
  LastCommit last_commit() const;  // likewise; Transport::last_commit

 private:
  struct DELTAWIRE_HIDDEN Parts;
  explicit Session(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace deltawire
