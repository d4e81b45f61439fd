// A parameter server's job in a simulation, from its first start to the last that goes on from snapshots:
// what its ranks have shown, and their snapshots.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "deltawire/server.h"
#include "deltawire/snapshot.h"
#include "simulation/disks.h"
#include "simulation/job.h"
#include "simulation/plan.h"

namespace deltawire::simulation {

// What a seed decides about a parameter server's job: its ranks, options and network, and what goes wrong.

// A disk has no room for some snapshots, or has not flushed them when its machine loses its power.
struct DiskFault {
  int rank = 0;
  NoRoom no_room = NoRoom::kNowhere;  // kNowhere: it lies
  std::uint64_t from = 0;             // snapshots of this start, without the first of a server
  std::uint64_t count = 0;            // 0: nothing is wrong

  std::string text() const;
};

struct ServedPlan {
  Plan job;  // without faults
  ServerOptions options;
  std::string optimizer;
  std::vector<std::uint64_t> steps;  // by worker: when it closes
  bool is_eager = false;             // workers pull tensor by tensor
  std::size_t longest = 1500;  // elements of the model's first tensor, which may be cut over the servers
  std::uint64_t every = 0;     // steps between two snapshots; 0: none
  Clock::duration writing{};   // about how long it takes at most until one is on the disk
  // Of the first start and, where there are snapshots, of each that goes on from them; at the last one
  // nothing goes wrong.
  std::vector<std::vector<Fault>> faults;
  std::vector<DiskFault> disk_faults;  // likewise

  std::string text() const;
  int workers() const noexcept { return job.world - options.servers; }
  bool drops() const noexcept { return options.on_worker_loss == WorkerLoss::kDrop; }
};

// `world` is 0 where the seed decides.
ServedPlan draw_served(std::uint64_t seed, int world);
// Whether what this codec leaves out of a gradient is lost: it keeps no residual.
bool loses(const std::string& codec);
// The same job without anything that goes wrong, over a fast network, in which all workers make `steps`.
ServedPlan undisturbed(const ServedPlan& plan, std::uint64_t steps);

// The snapshots of a parameter server's job in a simulation: the library's code writes and reads them on
// simulated disks, and what it promises of them is checked at each call and between two starts.
class ServedSnapshots {
 public:
  explicit ServedSnapshots(const ServedPlan& plan);

  // A start of the job; while it runs, its ranks' calls take time.
  void begin(std::size_t start);
  Disks::Use use(Job& job);
  // It is over: machines that have lost their power begin anew. Returns what promise was broken, or nothing.
  std::string end(const Job& job);

  // For a rank. Each returns what promise it broke, or nothing. `is_first`: without it no server begins.
  std::string write(Job& job, int rank, std::uint64_t step, std::vector<std::byte> state, bool is_first);
  std::string read(Job& job, int rank, std::uint64_t step, std::vector<std::byte>& state);
  std::string drop_after(Job& job, int rank, std::uint64_t step);

  // After end(). Whether the rank has a snapshot of the step.
  bool has(int rank, std::uint64_t step) const;
  // The step from which all go on (docs/guides/parameter-server.md, "Snapshots"); none: they refuse.
  std::optional<std::uint64_t> newest_common_step() const;
  // How many of the last steps at which all servers were to have a snapshot, of those up to `made`, some
  // server had no room for; and whether a disk has lost what it said it had flushed.
  std::uint64_t missed_until(std::uint64_t made) const;
  bool has_lied() const noexcept { return has_lied_; }

 private:
  // By step; where one is written again, any of them may be there.
  using States = std::multimap<std::uint64_t, std::vector<std::byte>>;
  struct Own {
    States tried;                          // what has been written, or begun
    std::set<std::uint64_t> acknowledged;  // what must be there
    std::set<std::uint64_t> found;         // what is there, as far as it knows
    std::optional<std::uint64_t> common;   // from which this start has gone on
    std::uint64_t taken = 0;               // in this start, but the first
  };

  Own& of(int rank) noexcept { return own_[static_cast<std::size_t>(rank)]; }
  const Own& of(int rank) const noexcept { return own_[static_cast<std::size_t>(rank)]; }
  SnapshotPlace place(int rank) const;
  // What is there of these once another one was written.
  static std::set<std::uint64_t> kept_of(std::set<std::uint64_t> steps, const Own& own);
  const DiskFault* fault_of(int rank) const;
  std::string look_at(int rank);
  std::string check_full(int rank, std::uint64_t step, const Error& error,
                         const std::vector<std::string>& names) const;

  const ServedPlan& plan_;
  Dice dice_;
  Disks disks_;
  std::vector<Own> own_;
  std::size_t start_ = 0;
  std::set<std::uint64_t> missed_;  // steps of this start
  bool has_lied_ = false;
};

// What has been seen of a step, numbered from 0. Empty, or NaN: nothing, or what only a rank knows that is
// lost.
struct ServedStep {
  Gradient view;               // before it, by tensor
  Gradient change;             // what it has made of the servers' master
  std::vector<Gradient> sent;  // by worker: what the servers got of its gradient and residual; 0 if too late
};

// How a rank has ended.
struct ServedEnding {
  bool is_closed = false;  // in good order
  std::uint64_t version = 0;
  std::vector<DroppedWorker> dropped;  // server: the workers that it has lost
};

class ServedRun {
 public:
  // `reference`: what an undisturbed run shows; null: this is one. It must outlive this run.
  ServedRun(const ServedPlan& plan, Trace& trace, const std::vector<ServedStep>* reference);
  // Of a run with this plan's options. Formed once, while no other simulation is under way.
  static const std::vector<ServedStep>& reference_of(const ServedPlan& plan);

  // Runs it to its end. Returns what promise it broke, or nothing.
  std::string run();

  const ServedPlan& plan() const noexcept { return plan_; }
  std::span<const ServedPart> parts() const noexcept { return parts_; }
  std::uint64_t resumed_at() const noexcept { return resumed_at_; }
  const std::vector<ServedStep>& steps() const noexcept { return steps_; }
  const std::vector<ServedEnding>& endings() const noexcept { return endings_; }
  std::uint64_t events() const noexcept { return events_; }
  // Faults that have happened, errors with which ranks have ended, and steps of servers.
  std::size_t happened() const noexcept { return happened_; }
  std::size_t errors() const noexcept { return errors_; }
  std::uint64_t served() const noexcept { return served_; }

  // For the ranks. What a dead one says does not count.
  ServedEnding& ending(int rank) { return endings_[static_cast<std::size_t>(rank)]; }
  // A rank has a part of the model as it is after so many steps: like all others, to the last bit.
  void see(Job& job, int rank, std::uint64_t version, const ServedPart& part, std::span<const float> view);
  void change(Job& job, int rank, std::uint64_t step, const ServedPart& part, std::span<const float> change);
  void sent(Job& job, int rank, std::uint64_t step, Gradient sent);
  ServedSnapshots& snapshots() noexcept { return snapshots_; }

  // What the worker's push of this step carried; null: nobody knows.
  const Gradient* sent_by(int worker, std::uint64_t step) const;

 private:
  std::string start(std::size_t at);
  // Prepares the next start; what promise that breaks.
  std::string go_on();
  void forget_after(std::uint64_t step);
  // What is known of a tensor.
  std::vector<float>& of(Gradient& known, const ServedPart& part) const;

  const ServedPlan plan_;
  const std::vector<ServedPart> parts_;
  Trace& trace_;
  const std::vector<ServedStep>* reference_;
  bool is_exact_ = true;              // views are those of the reference
  std::vector<bool> keeps_residual_;  // by worker: it has lost none
  std::vector<ServedStep> steps_;
  std::vector<ServedEnding> endings_;  // of this start, by rank
  ServedSnapshots snapshots_;
  std::uint64_t resumed_at_ = 0;
  std::uint64_t events_ = 0;
  std::size_t happened_ = 0;
  std::size_t errors_ = 0;
  std::uint64_t served_ = 0;
  bool has_ended_ = false;  // all that live have closed, or none may go on
};

// What a server or a worker does, and what it checks on the way.
void run_served_rank(ServedRun& run, Job& job, int rank);

// A promise that this start broke; empty: it broke none.
std::string broken_promise(const ServedRun& run, Job& job);

}  // namespace deltawire::simulation
