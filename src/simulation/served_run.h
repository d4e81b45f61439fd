// A parameter server's job in a simulation, from its first start to the last that goes on from snapshots:
// what its ranks have shown, and their snapshots.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "simulation/job.h"
#include "simulation/served_plan.h"
#include "simulation/served_snapshots.h"

namespace deltawire::simulation {

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
