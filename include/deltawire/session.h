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
#include "deltawire/spec.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire {

// Buckets are begun in the order of submission, up to four of one step in flight; while one waits for the
// network another is encoded. After the first error every later bucket fails with it (Reducer's failure
// rule), and the session can only be saved, loaded and closed.
//
// The ranks in its errors are numbers of Transport::names().
//
// Thread rule: any thread may call any member. If several threads submit buckets, they must agree on the
// order. No other thread may use a session while or after it is destroyed; its `done` may destroy it.
//
// In a forked child every call is refused (kState) or does nothing, and the destructor leaks: the thread that
// it would join, and the connections, belong to the parent.
class DELTAWIRE_API Session {
 public:
  // Called once for each bucket, on the communication thread, in the order of submission; on the caller's
  // thread if the bucket could not be queued. It must not throw. It may call any member but all_reduce.
  using Done = std::function<void(const Result<Report>&)>;

  // Connects to the other ranks over TCP, as connect_tcp, and opens a session. agreed_settings followed by
  // mesh.settings must be equal on all ranks; of more than 1024 bytes the front and a digest are compared.
  // Errors: those of make_reducer, which come before any connection, and of connect_tcp.
  static Result<std::unique_ptr<Session>> connect(std::string_view spec, const ReducerOptions& options,
                                                  std::unique_ptr<Listener> listener, MeshOptions mesh);

  // Opens a session over any transport. Whether the ranks' settings agree is not checked here. Errors: those
  // of make_reducer, kInvalidArgument for none; the transport is then destroyed, too.
  static Result<std::unique_ptr<Session>> open(std::string_view spec, const ReducerOptions& options,
                                               std::unique_ptr<Transport> transport);
  ~Session();  // close()
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Queues one bucket for Reducer::begin. Names and dims are copied; the tensors' memory, and pair_means,
  // must stay valid, and nobody may read or write them, until `done`. `timeout` counts from the moment the
  // bucket is begun. Errors go to `done`: kInvalidArgument, at once, where two tensors have one name or share
  // memory, and nothing has happened then; those of Reducer::begin and finish; kState after close(). Names of
  // a step's other buckets are not compared: a tensor that is in two of them is coded twice.
  void submit(const Bucket& bucket, const Step& step, std::chrono::milliseconds timeout, Done done);

  // Submits, and waits until the bucket is done. kState if called from `done`, which it would wait for.
  Result<Report> all_reduce(const Bucket& bucket, const Step& step, std::chrono::milliseconds timeout);

  // Between steps; kState while a bucket is in flight (submitted, and neither finished nor failed) or a step
  // is open. After a failure, abort() or close() an open step is reverted first, as if a bucket had failed.
  // Other errors: those of Reducer's members of the same names. They still work after close().
  // explain takes the number of a step, e.g. the next one, and names the codecs of that step.
  // mask_sent sets to 0 those elements of each tensor (float32) that this rank sent in the last step.
  Status mask_sent(std::span<const Named> momenta);
  Result<std::vector<TensorUse>> explain(std::span<const Named> tensors, std::uint64_t step);
  Result<std::vector<std::byte>> save();
  Status load(Bytes state);
  Status load_resized(const SavedRanks& saved);

  // From the next step on tensors are coded as `spec`, of the same pattern, says: for a program that learns
  // between two steps which optimizer it has (fitted_to). On all ranks between the same two (else kMismatch
  // in the next step). spec() and saved states stay those of the spec that was given, so call it again after
  // a restart. kInvalidArgument for another pattern.
  Status recode(const Spec& spec);

  // Fails every wait of every rank, naming this rank and the reason. `suspect` is the rank to blame if this
  // rank fails only because of another; kNoSuspect: this one. A program that ends because of an exception
  // must call this before close(); otherwise the others see a normal departure of this rank.
  void abort(std::string_view reason, int suspect = kNoSuspect);
  // The same because of an error, perhaps one of another session: every rank gets it.
  void abort(Error error);

  // Transport::failure; after close(), the result as it was then, at once. last_committed_step is set.
  std::optional<Error> failure(std::chrono::milliseconds wait = {}) const;

  // Accepts no more buckets, waits up to `wait` for buckets in flight, aborts the remaining ones and a step
  // that is still open, on every rank, joins the thread and says goodbye to the other ranks. Idempotent.
  // Called from `done` it does not wait, and leaves the goodbye to a later close, or to the destructor.
  void close(std::chrono::milliseconds wait = {});
  bool closed() const noexcept;

  std::string spec() const;        // canonical, e.g. "direct(3lc:s=1.75,mode=auto,runs=on)"
  Memory memory() const noexcept;  // the reducer's
  Traffic traffic() const;         // the transport's; after close() its last
  LastCommit last_commit() const;  // likewise; Transport::last_commit
  // Whether all ranks are processes of one machine and read each other's values where they lie
  // (docs/design/patterns.md, "How bytes move"); false after close().
  bool shares_memory() const;
  // Transport::line_state of each rank, the own one empty; none after close().
  std::vector<LineState> lines() const;

 private:
  struct DELTAWIRE_HIDDEN Parts;
  explicit Session(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace deltawire
