// A parameter server (H. Lim, D. Andersen, M. Kaminsky, "3LC: Lightweight and Effective Traffic Compression
// for Distributed Machine Learning", MLSys 2019, sections 2 and 3): ranks 0 ... servers - 1 of a transport
// own the model and step the optimizer; the ranks behind them are workers, which push gradients and pull what
// has changed. Each change is compressed once for all workers, with a residual of its own (section 3).
//
// A worker's model has the bits of the servers' view of it after every step. Nothing is lost: what workers
// hand in = what the optimizer gets + what their residuals keep, up to rounding, late pushes included.
//
//   server: while (*server->step(deadline)) {}
//   worker: worker->open(deadline);
//           for (...) { for each tensor, as its gradient is ready: worker->push(tensor, gradient);
//                       worker->pull(deadline); }
//           worker->close(deadline);
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/export.h"
#include "deltawire/policy.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire {

// What becomes of a run when a worker is lost: killed, cut off, silent at a deadline, or sending what servers
// have no use for. A server that is lost ends the run in any case.
enum class WorkerLoss : std::uint8_t {
  kEnd,   // all ranks fail, naming it
  kDrop,  // the others go on; it fails as soon as it can hear of it (Transport::set_optional)
};

// The same on all ranks.
struct ServerOptions {
  int servers = 1;  // 1 ... world size - 1; ranks 0 ... servers - 1
  // Workers that no step waits for: of N + backup of them, a part proceeds with the first N pushes, and any
  // others that have arrived by then (section 2.1; J. Chen et al., "Revisiting Distributed Synchronous SGD",
  // 2016). 0 ... workers - 1.
  int backup = 0;
  // Stale-synchronous (section 2.1; Q. Ho et al., "More Effective Distributed ML via a Stale Synchronous
  // Parallel Parameter Server", NIPS 2013): how many steps a worker may be ahead of the slowest. 0: all in
  // step; up to 1,024. A worker in step c has at least the changes of steps 0 ... c - staleness - 1, and any
  // others that have arrived.
  std::uint64_t staleness = 0;
  std::string push = "3lc";  // codecs of gradients, as make_channel takes them
  std::string pull = "3lc";  // codecs of model changes
  Policy policy = {};        // small tensors travel raw in both directions
  std::uint64_t seed = 0;    // of codecs that draw by chance

  // With kDrop a part waits for as many pushes as without a loss, or those of all remaining workers; a step's
  // mean is over the pushes that count. What waits in the lost worker's residual is lost with it.
  WorkerLoss on_worker_loss = WorkerLoss::kEnd;
  int min_workers = 1;  // with kDrop: fewer that are left end the run. 1 ... workers

  // How many steps the servers may be ahead of what the slowest worker has received; then they wait for it. 1
  // or more.
  std::uint64_t max_lag = 16;
};

// A part of the model and the server that owns it.
struct ServedPart {
  std::size_t tensor = 0;  // index in the model
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  int server = 0;
};

// Which server owns what, in the model's order: a function of element counts and `servers` alone. With more
// than one server, tensors of more than a quarter of a server's fair share (and of 16,384 elements at least)
// are cut evenly; parts go, the largest first, to the server that has least. So two servers differ by one
// part's bytes at most. Tensors without elements have no part.
// Errors: kInvalidArgument (servers < 1), kLimit (more than 65,536 parts).
DELTAWIRE_API Result<std::vector<ServedPart>> serve_parts(std::span<const Named> model, int servers);

// What a rank has done since it was made.
struct ServerCounts {
  std::uint64_t steps = 0;          // that this rank has completed
  std::uint64_t encodes = 0;        // server: of changes, one a part and step
  std::uint64_t whole_models = 0;   // of parts, sent or received instead of several changes: fewer bytes
  std::uint64_t push_bytes = 0;     // messages sent (worker) or received (server)
  std::uint64_t pull_bytes = 0;     // messages received (worker) or sent (server), every copy counted
  std::uint64_t late_pushes = 0;    // of parts, that came too late to count, or were not sent for that reason
  std::uint64_t skipped_steps = 0;  // worker: whose gradients it has not computed, since it was behind
};

// A worker that was dropped.
struct DroppedWorker {
  int rank = 0;
  std::uint64_t step = 0;  // the server's, which went on without it; pushes that it had may count in it
  Error why;
  std::chrono::system_clock::time_point at;  // when this server noticed
};

// Failure rule, of both classes, but for workers that are dropped (ServerOptions::on_worker_loss): after an
// error the transport is aborted, every rank fails, by its deadline at the latest, and names the suspect. A
// worker's parameters may then be of two steps; go on from a saved state. Thread rule: one thread at a time.
// The transport must outlive them, and carry nothing else meanwhile.
class DELTAWIRE_API ParameterServer {
 public:
  virtual ~ParameterServer() = default;

  // Makes one step: for each owned part, averages the pushes that count in rank order, steps the optimizer,
  // and sends each worker the same change. The first call sends the model before. False: the workers have
  // closed, the transport has nothing of this server's left. Errors: those of Transport::wait_any, of
  // Channel::decode and encode, kMismatch (a push of a step to come), kState (after false or an error).
  virtual Result<bool> step(Deadline deadline) = 0;

  // The parts of this server.
  virtual std::span<const ServedPart> parts() const noexcept = 0;

  // Owned part i, float32: as all workers have it, and as the optimizer has it: the view and what the pull's
  // residual keeps. Valid until the next step.
  virtual std::span<const float> view(std::size_t part) const = 0;
  virtual std::span<const float> master(std::size_t part) const = 0;

  // For schedules: the rate of the steps to come. kInvalidArgument below 0 or not finite.
  virtual Status set_learning_rate(double learning_rate) = 0;

  // Steps that the model has had, those before a loaded state included.
  virtual std::uint64_t steps() const noexcept = 0;

  // All that this server must have to go on: its parts as workers and as the optimizer have them, the
  // optimizer's state and rate, what waits in the pull's residual (docs/reference/format.md, "Parameter
  // server"). Between steps. kState after an error.
  virtual Result<std::vector<std::byte>> save() const = 0;

  // Goes on from a saved state, before the first step: workers open at its step. All servers must load one of
  // the same step, or the workers fail with kMismatch. Errors: kState, kTruncated, kCorrupt,
  // kUnsupportedVersion, kMismatch (of another rank, model, number of servers, other codecs or kind of
  // optimizer). Then nothing has changed.
  virtual Status load(Bytes state) = 0;

  virtual ServerCounts counts() const noexcept = 0;

  // Workers that the run has gone on without, in the order of their losses; valid until the next step.
  virtual std::span<const DroppedWorker> dropped() const noexcept = 0;
};

class DELTAWIRE_API ParameterWorker {
 public:
  virtual ~ParameterWorker() = default;

  // Fetches the model from the servers: the parameters are overwritten. Once, before all else.
  virtual Status open(Deadline deadline) = 0;

  // Sends a tensor's gradient (float32, as many elements as the tensor; read during the call only) of the
  // current step, or, where the servers have closed the step without it, keeps it for the next. Once a step
  // and tensor; waits for nothing. Errors: kInvalidArgument, kState, those of Channel::encode.
  virtual Status push(std::size_t tensor, std::span<const float> gradient) = 0;

  // Waits until a tensor's parameters have the change of this step, or of the one `staleness` before it, so
  // that its layer may compute while others travel. After the tensor's push.
  virtual Status pull(std::size_t tensor, Deadline deadline) = 0;

  // The same for all tensors, which ends the step; and, with backup workers or staleness, up to the newest
  // step whose changes have come. All tensors must have been pushed.
  virtual Status pull(Deadline deadline) = 0;

  // Between steps, with staleness: waits until the parameters have the changes of all steps of this worker,
  // so that none of its pushes is on its way. It needs the other workers' pushes of these steps, no later
  // ones.
  virtual Status catch_up(Deadline deadline) = 0;

  // No more steps: leaves servers and transport without pending messages. Parameters stay those of the last
  // step that was pulled, or of later ones of other workers, whole. All workers must close, or the servers
  // fail at their deadline (or drop those that don't).
  virtual Status close(Deadline deadline) = 0;

  // The step that comes next: how many this worker has made, or skipped.
  virtual std::uint64_t step() const noexcept = 0;

  // How many steps' changes the parameters have, the same for all of them after pull(deadline): step(), or
  // with staleness as many as that less. They are the servers' view after that many steps, bit for bit.
  virtual std::uint64_t version() const noexcept = 0;

  // The servers have closed, since other workers have: what is left to do is close().
  virtual bool has_ended() const noexcept = 0;

  // What waits for the next pushes, as bytes, between steps; the parameters are the servers' to keep. kState
  // while a push has not been answered: with staleness, after catch_up().
  virtual Result<std::vector<std::byte>> save() const = 0;

  // Puts it back, before open(). Errors: as ParameterServer::load.
  virtual Status load(Bytes state) = 0;

  // What waits for the next push of a tensor: adds it to `sum`, which has the tensor's count.
  virtual Status add_residual(std::size_t tensor, std::span<float> sum) const = 0;

  virtual ServerCounts counts() const noexcept = 0;
};

// `model`: dense float32 tensors with distinct names, copied; the values that training begins with (the
// workers' are replaced). `optimizer`: as make_optimizer takes it; its state is kept once a part. This rank
// must be below options.servers. Errors: kInvalidArgument, kUnsupportedDType, kLimit, those of make_channel
// and make_optimizer.
DELTAWIRE_API Result<std::unique_ptr<ParameterServer>> make_server(std::span<const Named> model,
                                                                   std::string_view optimizer,
                                                                   const ServerOptions& options,
                                                                   Transport& transport);

// `model`: the same tensors, whose memory the worker writes to, and which must stay as long as it does.
DELTAWIRE_API Result<std::unique_ptr<ParameterWorker>> make_worker(std::span<const Named> model,
                                                                   const ServerOptions& options,
                                                                   Transport& transport);

}  // namespace deltawire
