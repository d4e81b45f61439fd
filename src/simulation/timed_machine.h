// The machine of a job of many ranks in which nothing goes wrong, for the time that it takes: what ranks do
// costs processor time, and they share the processors of their hosts. (Scheduler is the machine for faults:
// there only waiting takes time, and a seed decides how long.) Nothing is random.
//
// Between two waits a thread runs as a whole, at the time at which it began. What it sends leaves, and what
// it asks is answered, at the time that its work has taken it to; what arrives meanwhile it finds at its next
// poll.
//
// Thread rule: one thread, from beginning to end.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <poll.h>

#include "simulation/event_queue.h"
#include "simulation/fiber.h"
#include "simulation/trace.h"
#include "transport/process/machine.h"

namespace deltawire::simulation {

// Processor time, in nanoseconds. These are of processes of one host, over TCP, on an AMD EPYC (Zen 5), as
// docs/results/speed/many-ranks.md says: the first four are fitted to 8 and 16 ranks, the others were
// measured alone.
struct Costs {
  double step = 24'000;       // what a rank's program does for each step
  double call = 5'200;        // of the system, except for what it moves or looks at
  double byte = 0.227;        // sent or received, once at each end
  double saved_byte = 0.322;  // by compression, of what a rank sends: to encode that, and to decode as much
  double turn = 2'000;        // to begin to run, for a thread that has waited
  double entry = 60;          // a descriptor that a poll looks at
  double clock = 25;          // to read the clock
};

struct Hosts {
  int ranks = 1;       // of each
  int processors = 1;  // of each
};

class TimedMachine final : public SimulatedMachine {
 public:
  TimedMachine(int world, const Hosts& hosts, const Costs& costs);
  ~TimedMachine() override;
  TimedMachine(const TimedMachine&) = delete;
  TimedMachine& operator=(const TimedMachine&) = delete;

  Deadline now() noexcept override;
  void wait(const void* event, Deadline until) noexcept override;
  void notify(const void* event) noexcept override;
  void poll(const void* event, std::span<pollfd> entries, Deadline until) noexcept override;
  std::uint64_t start(std::function<void()> body) override;
  void join(std::uint64_t thread) noexcept override;

  void start_on(int rank, std::function<void()> body);
  // The running rank works for so many nanoseconds.
  void spend(double nanoseconds) noexcept;
  // Of the running rank; of the event that is under way, if none runs.
  Deadline time() const noexcept;
  void at(Deadline when, std::function<void()> action);

  // What poll() asks about a descriptor: which of POLLIN, POLLOUT and POLLRDHUP hold.
  void set_readiness(std::function<short(int)> readiness) { readiness_ = std::move(readiness); }
  // A descriptor of this rank may have become ready.
  void on_ready(int rank, int descriptor);

  // Runs until all threads have ended. Returns what is wrong, or nothing.
  std::string run();

  const Costs& costs() const noexcept { return costs_; }
  int host_of(int rank) const noexcept { return rank / hosts_.ranks; }
  // The processor time that a rank has had, and how often its threads began to run.
  Clock::duration used(int rank) const noexcept { return ranks_[static_cast<std::size_t>(rank)].used; }
  std::uint64_t turns(int rank) const noexcept { return ranks_[static_cast<std::size_t>(rank)].turns; }
  std::uint64_t hash() const noexcept { return trace_.hash(); }

 private:
  struct Thread {
    std::unique_ptr<Fiber> fiber;
    int rank = 0;
    const void* event = nullptr;  // that it waits for
    std::span<pollfd> entries;    // likewise
    std::uint64_t token = 0;      // events with an older one have been overtaken
    bool is_due = false;          // woken, or running
    bool has_ended = false;
  };
  // One of its threads runs at a time.
  struct Rank {
    std::vector<std::size_t> threads;
    std::deque<std::size_t> ready;
    Deadline time;  // when what it has done so far is done
    Clock::duration used{};
    std::uint64_t turns = 0;
    bool is_at_work = false;  // has a processor, or waits in line for one
  };
  struct Host {
    int idle = 0;          // processors
    std::deque<int> line;  // ranks
  };

  static constexpr std::size_t kNoThread = SIZE_MAX;
  Rank& rank_of(std::size_t thread) noexcept {
    return ranks_[static_cast<std::size_t>(threads_[thread].rank)];
  }
  void block(Deadline until) noexcept;
  void wake(std::size_t thread);
  void fill_line(int rank);
  void serve(Host& host);
  void work(int rank, bool has_waited);
  void resume(std::size_t thread);

  Hosts hosts_;
  Costs costs_;
  Trace trace_{false};
  Deadline time_;
  EventQueue queue_;
  std::deque<Thread> threads_;
  std::size_t running_ = kNoThread;
  std::size_t alive_ = 0;
  std::vector<Rank> ranks_;
  std::vector<Host> every_host_;
  std::function<short(int)> readiness_;
};

}  // namespace deltawire::simulation
