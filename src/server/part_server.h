// One part on its server: pushes come in, the optimizer steps, and the change goes out to every worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deltawire/optimizer.h"
#include "deltawire/server.h"
#include "server/pull_queue.h"
#include "server/push_collector.h"
#include "server/served_model.h"
#include "server/served_rules.h"

namespace deltawire {

// What the parts of one server rank share.
struct ServerRun {
  ServedModel model;
  Optimizer optimizer;
  ServerOptions options;
  Transport& transport;
  WorkerGroup workers;
  ServedRules rules;
  std::unique_ptr<Channel> push = {};  // decodes
  std::unique_ptr<Channel> pull = {};
  std::unique_ptr<Channel> whole = {};  // of views, as they are
  std::vector<float> gradient = {};     // of the part that is at work, then its change
  ServerCounts counts = {};
  std::uint64_t step = 0;
  bool is_closing = false;

  // An operation with a worker, or this server on reading its push, failed with `error`. Success if the
  // worker was lost and the run continues without it; otherwise the error, or kPeerLost where too few are
  // left.
  Status dropped_or(std::size_t worker, const Error& error);
};

// No call waits. `run` must outlive it, and stay where it is.
class PartServer {
 public:
  // `number` is the part's place in the model; `values` are its first parameters.
  PartServer(ServerRun& run, std::size_t number, std::vector<float> values);

  std::size_t number() const noexcept { return number_; }
  const ServedPart& part() const noexcept { return run_.model.parts()[number_]; }
  Named named(float* values) const noexcept { return run_.model.part_of(part(), values); }
  std::span<const float> view() const noexcept { return view_; }
  std::span<const float> master() const noexcept { return master_; }
  // The whole part, before open().
  void load(std::vector<float> view, std::vector<float> master);

  // Sends the model, and is ready for the first pushes.
  Status open();

  // A step: collect() until it says true, average() until it does, change(). When all parts have made it,
  // commit().
  // Reads what has come. True: the part has pushes enough.
  Result<bool> collect();
  // Whether enough workers are left that may push.
  bool may_have_enough() const noexcept { return pushes_.may_have_enough(); }
  // The mean of the pushes that are here, in rank order, in ServerRun::gradient. False: one was refused, and
  // more must come.
  Result<bool> average();
  // Steps the optimizer with the mean, encodes the change once, and sends it.
  Status change();
  bool has_changed() const noexcept { return pulls_.version() > run_.step; }
  void commit();

  // Sends each worker that has taken its last message the next one.
  Status send();
  // The server closes: pushes that came for a step which none will make are late.
  void discard_pushes();

  // Operations that are under way: receives that a push may still fill, sends that another one waits for,
  // sends to workers that have not taken all but the last lag - 1 changes, and all of them.
  void add_receives(std::vector<Handle>& awaited) const;
  void add_blocking_sends(std::vector<Handle>& awaited) const;
  void add_laggards(std::uint64_t lag, std::vector<Handle>& awaited) const;
  void add_posted(std::vector<Handle>& posted) const;

 private:
  void post(std::size_t worker);
  Status take(std::size_t worker);
  Status refuse(std::size_t worker, const Error& error);
  Status decode(std::size_t worker, Bytes push, Into into, float scale);
  Status step_optimizer();
  Status scale_rows(std::uint64_t step);
  SharedBytes with_scales(std::span<const Bytes> pieces) const;
  Result<SharedBytes> encode_view(std::uint64_t version);
  Status send_next(std::size_t worker);
  void send(std::size_t worker, const Pull& pull);
  void forget(std::size_t worker);

  ServerRun& run_;
  std::size_t number_;
  std::string key_;  // the optimizer's
  PartLines lines_;
  std::vector<float> view_;
  std::vector<float> master_;
  std::vector<std::byte> scales_;  // of the next pushes' rows, as a message; empty: they have none
  PushCollector pushes_;
  PullQueue pulls_;
};

}  // namespace deltawire
