// A parameter server (H. Lim, D. Andersen, M. Kaminsky, "3LC: Lightweight and Effective Traffic Compression
// for Distributed Machine Learning", MLSys 2019, sections 2 and 3): ranks 0 ... servers - 1 of a transport
// own the model and step the optimizer; the ranks after them are workers, which push gradients and pull model
// changes. Each change is compressed once for all workers, with its own residual (section 3).
//
// After every step a worker's model is bit-equal to the servers' view of it. Nothing is lost: what workers
// push = what the optimizer gets + what their residuals keep, up to rounding, late pushes included.
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

// What happens to a run that loses a worker: it is killed, disconnected, silent at a deadline, or sends
// malformed messages. A lost server always ends the run.
enum class WorkerLoss : std::uint8_t {
  kEnd,   // all ranks fail, naming it
  kDrop,  // the others continue; it fails as soon as the news reaches it (Transport::set_optional)
};

// Must be equal on all ranks.
struct ServerOptions {
  int servers = 1;  // 1 ... world size - 1; ranks 0 ... servers - 1
  // Backup workers: with N + backup workers, a part proceeds after the first N pushes, with these and any
  // others that have arrived by then (section 2.1; J. Chen et al., "Revisiting Distributed Synchronous SGD",
  // 2016). 0 ... workers - 1.
  int backup = 0;
  // Stale-synchronous (section 2.1; Q. Ho et al., "More Effective Distributed ML via a Stale Synchronous
  // Parallel Parameter Server", NIPS 2013): how many steps a worker may be ahead of the slowest. 0:
  // synchronous; up to 1,024. A worker in step c has at least the changes of steps 0 ... c - staleness - 1,
  // and any others that have arrived.
  std::uint64_t staleness = 0;
  std::string push = "3lc";  // codecs of gradients, as make_channel takes them
  std::string pull = "3lc";  // codecs of model changes
  Policy policy = {};        // small tensors are sent raw in both directions
  std::uint64_t seed = 0;    // for codecs that draw random numbers

  // With kDrop a part waits for as many pushes as before a loss, or for all remaining workers if they are
  // fewer; a step's mean is over the pushes that count. The lost worker's residual is lost with it.
  WorkerLoss on_worker_loss = WorkerLoss::kEnd;
  int min_workers = 1;  // with kDrop: the run ends if fewer are left. 1 ... workers

  // How many steps the servers may be ahead of what the slowest worker has received before they wait for it.
  // 1 or more.
  std::uint64_t max_lag = 16;

  // The servers' optimizer, as make_server takes it: parts whose codec of gradients does not go with it are
  // stepped by the rules of deltawire/optimizer_rules.h, and both directions' codecs are as these need them
  // (fitted_to). Empty: all parts are stepped as the optimizer does.
  std::string rules_of = {};
};

// A part of the model and the server that owns it.
struct ServedPart {
  std::size_t tensor = 0;  // index in the model
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  int server = 0;
};

// Which server owns what, in the model's order: depends only on element counts and `servers`. With more than
// one server, tensors of more than a quarter of a server's fair share (and at least 16,384 elements) are cut
// evenly; parts are assigned, the largest first, to the server that has least. So two servers differ by at
// most one part's bytes. Tensors without elements have no part.
// Errors: kInvalidArgument (servers < 1), kLimit (more than 65,536 parts).
DELTAWIRE_API Result<std::vector<ServedPart>> serve_parts(std::span<const Named> model, int servers);

// What a rank has done since it was created.
struct ServerCounts {
  std::uint64_t steps = 0;          // completed by this rank
  std::uint64_t encodes = 0;        // server: encoded changes, one for each part and step
  std::uint64_t whole_models = 0;   // whole parts sent or received instead of several changes, to save bytes
  std::uint64_t push_bytes = 0;     // messages sent (worker) or received (server)
  std::uint64_t pull_bytes = 0;     // messages received (worker) or sent (server), every copy counted
  std::uint64_t late_pushes = 0;    // pushes of parts that came too late to count, or were therefore not sent
  std::uint64_t skipped_steps = 0;  // worker: steps that it skipped because it was behind
};

// A worker that was dropped.
struct DroppedWorker {
  int rank = 0;
  std::uint64_t step = 0;  // of the server when it dropped the worker, whose earlier pushes may count in it
  Error why;
  std::chrono::system_clock::time_point at;  // when this server noticed
};

// Failure rule for both classes, except for dropped workers (ServerOptions::on_worker_loss): after an error
// the transport is aborted, every rank fails, by its deadline at the latest, and names the suspect. A
// worker's parameters may then be a mixture of two steps; continue from a saved state. Thread rule: one
// thread at a time. The transport must outlive them, and nothing else may use it meanwhile.
class DELTAWIRE_API ParameterServer {
 public:
  virtual ~ParameterServer() = default;

  // Makes one step: for each owned part, averages the pushes that count in rank order, steps the optimizer,
  // and sends each worker the same change. The first call sends the model first. False: the workers have
  // closed, and this server has no messages in flight. Errors: those of Transport::wait_any, Channel::decode
  // and encode, kMismatch (a push for a later step), kState (after false or an error).
  virtual Result<bool> step(Deadline deadline) = 0;

  // The parts of this server.
  virtual std::span<const ServedPart> parts() const noexcept = 0;

  // Owned part i, float32: `view` as all workers have it, `master` as the optimizer has it, which is the view
  // plus the pull's residual. Valid until the next step.
  virtual std::span<const float> view(std::size_t part) const = 0;
  virtual std::span<const float> master(std::size_t part) const = 0;

  // For schedules: the rate of later steps. kInvalidArgument if it is below 0 or not finite.
  virtual Status set_learning_rate(double learning_rate) = 0;

  // How many steps the model has had, including those before a loaded state.
  virtual std::uint64_t steps() const noexcept = 0;

  // Everything that this server needs to continue: its parts as workers and as the optimizer have them, the
  // optimizer's state and rate, the pull's residual (docs/reference/format.md, "Parameter server"). Between
  // steps. kState after an error.
  virtual Result<std::vector<std::byte>> save() const = 0;

  // Continues from a saved state, before the first step: workers open at its step. All servers must load the
  // state of the same step, or the workers fail with kMismatch. Errors, which change nothing: kState,
  // kTruncated, kCorrupt, kUnsupportedVersion, kMismatch (another rank, model, number of servers, codec or
  // kind of optimizer).
  virtual Status load(Bytes state) = 0;

  virtual ServerCounts counts() const noexcept = 0;

  // Workers that were dropped, in the order of their losses; valid until the next step.
  virtual std::span<const DroppedWorker> dropped() const noexcept = 0;
};

class DELTAWIRE_API ParameterWorker {
 public:
  virtual ~ParameterWorker() = default;

  // Fetches the model from the servers: the parameters are overwritten. Once, before all else.
  virtual Status open(Deadline deadline) = 0;

  // Sends a tensor's gradient (float32, as many elements as the tensor; read during the call only) of the
  // current step or, if the servers have closed the step without it, keeps it for the next. Once per step and
  // tensor; does not wait. Errors: kInvalidArgument, kState, those of Channel::encode.
  virtual Status push(std::size_t tensor, std::span<const float> gradient) = 0;

  // Waits until a tensor's parameters have the change of this step, or of the one `staleness` before it, so
  // that its layer may compute while other changes are on their way. After the tensor's push.
  virtual Status pull(std::size_t tensor, Deadline deadline) = 0;

  // The same for all tensors, which ends the step; and, with backup workers or staleness, up to the newest
  // step whose changes have come. All tensors must have been pushed.
  virtual Status pull(Deadline deadline) = 0;

  // Between steps, with staleness: waits until the parameters have the changes of all steps of this worker,
  // so that none of its pushes is in flight. The other workers must have pushed these steps, but no later
  // ones.
  virtual Status catch_up(Deadline deadline) = 0;

  // Ends training, and leaves servers and transport without pending messages. The parameters are those after
  // a whole step: the last one that was pulled, or a later one of other workers. All workers must close, or
  // the servers fail at their deadline (or drop those that don't).
  virtual Status close(Deadline deadline) = 0;

  // The next step: how many this worker has made or skipped.
  virtual std::uint64_t step() const noexcept = 0;

  // How many steps' changes the parameters have, the same for all of them after pull(deadline): step(), or up
  // to `staleness` fewer. They are the servers' view after that many steps, bit for bit.
  virtual std::uint64_t version() const noexcept = 0;

  // The servers have closed because other workers have: call close().
  virtual bool has_ended() const noexcept = 0;

  // The residuals of pushes, as bytes, between steps; the servers save the parameters. kState while a push
  // has not been answered; with staleness, call catch_up() first.
  virtual Result<std::vector<std::byte>> save() const = 0;

  // Loads saved residuals, before open(). Errors: as ParameterServer::load.
  virtual Status load(Bytes state) = 0;

  // Adds a tensor's residual to `sum`, which has the tensor's count.
  virtual Status add_residual(std::size_t tensor, std::span<float> sum) const = 0;

  virtual ServerCounts counts() const noexcept = 0;
};

// `model`: dense float32 tensors with distinct names, copied; training begins with their values (the workers'
// values are replaced). `optimizer`: as make_optimizer takes it; each part has its own state. This rank must
// be below options.servers, and options.rules_of be of this optimizer or empty. Errors: kInvalidArgument,
// kUnsupportedDType, kLimit, those of make_channel and make_optimizer.
DELTAWIRE_API Result<std::unique_ptr<ParameterServer>> make_server(std::span<const Named> model,
                                                                   std::string_view optimizer,
                                                                   const ServerOptions& options,
                                                                   Transport& transport);

// The options with both directions' codecs as the rules of `rules_of` need them: what ranks send. Errors:
// those of make_channel and parse_optimizer.
DELTAWIRE_API Result<ServerOptions> fitted_to(ServerOptions options, int world_size);

// What to tell whoever starts such a run: where the optimizer doesn't go with the codecs of pushes and no
// rule is applied (ServerOptions::rules_of), and what training loses in spite of one. Errors: those of
// make_channel and parse_optimizer.
DELTAWIRE_API Result<std::vector<std::string>> server_warnings(std::string_view optimizer,
                                                               const ServerOptions& options);

// `model`: the same tensors; the worker writes to their memory, which must outlive it.
DELTAWIRE_API Result<std::unique_ptr<ParameterWorker>> make_worker(std::span<const Named> model,
                                                                   const ServerOptions& options,
                                                                   Transport& transport);

}  // namespace deltawire
