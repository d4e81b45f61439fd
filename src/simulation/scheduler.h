// The machine of a simulation: every thread of every rank is a fiber of one thread, time passes when all of
// them wait, and a seed decides who runs next.
//
// Thread rule: one thread, from beginning to end.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>
#include <ucontext.h>

#include "deltawire/transport.h"
#include "simulation/dice.h"
#include "transport/process/machine.h"

namespace deltawire::simulation {

// A thread of control that runs until it gives control back.
class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs it until it calls pause(), or ends. Returns whether it has ended.
  bool resume();
  // Called by the fiber itself.
  void pause();

 private:
  static void enter(unsigned high, unsigned low);
  void begin();

  std::function<void()> body_;
  std::byte* stack_;
  ucontext_t own_{};
  ucontext_t caller_{};
  bool ended_ = false;
  // For AddressSanitizer, which must know whose stack it looks at.
  void* own_fake_stack_ = nullptr;
  void* caller_fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  std::size_t caller_stack_bytes_ = 0;
};

// "0.5 s", for a trace or a plan.
inline std::string seconds_text(Clock::duration time) {
  return std::to_string(std::chrono::duration<double>(time).count()) + " s";
}

// The next one of hashes of a sequence.
inline std::uint64_t mix(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  return hash ^ hash >> 29;
}

// What happened, as a hash and, if wanted, as text.
class Trace {
 public:
  explicit Trace(bool prints) noexcept : prints_(prints) {}

  // Equal for equal runs.
  std::uint64_t hash() const noexcept { return hash_; }

  void add(std::uint64_t value) noexcept { hash_ = mix(hash_, value); }
  // An event that a reader wants to see.
  void note(Deadline now, const std::string& text) {
    add(static_cast<std::uint64_t>(now.time_since_epoch().count()));
    for (const char letter : text) add(static_cast<unsigned char>(letter));
    if (!prints_) return;
    std::printf("%14.6f  %s\n", std::chrono::duration<double>(now.time_since_epoch()).count(), text.c_str());
  }

 private:
  bool prints_;
  std::uint64_t hash_ = 0;
};

struct Event {
  Deadline when;
  std::size_t fiber = 0;
  std::uint64_t token = 0;       // of the fiber's wait that it ends
  std::function<void()> action;  // instead of a fiber
  std::uint64_t number = 0;      // of equal times the earlier; the queue's
};

class EventQueue {
 public:
  bool empty() const noexcept { return events_.empty(); }
  void push(Event event) {
    event.number = pushed_++;
    events_.push_back(std::move(event));
    std::ranges::push_heap(events_, is_later);
  }
  // The next one.
  Event pop() {
    assert(!empty());
    std::ranges::pop_heap(events_, is_later);
    Event next = std::move(events_.back());
    events_.pop_back();
    return next;
  }

 private:
  static bool is_later(const Event& one, const Event& other) noexcept {
    return one.when != other.when ? one.when > other.when : one.number > other.number;
  }

  std::vector<Event> events_;  // a heap
  std::uint64_t pushed_ = 0;
};

// When a run begins, so that a default Deadline is long past.
inline constexpr std::chrono::hours kRunBegins{1};

// The scheduler's own actions, which no rank's freeze holds up.
inline constexpr int kNobody = -1;

// How long a thread may have to wait for a processor.
struct Latencies {
  Clock::duration usual{};
  Clock::duration longest{};   // of a busy machine
  std::uint64_t busy_in = 50;  // one wake in so many takes up to the longest
};

class Scheduler final : public SimulatedMachine {
 public:
  Scheduler(std::uint64_t seed, const Latencies& latencies, Trace& trace);
  ~Scheduler() override;

  // As its threads read it: a call, and so a place for an interruption.
  Deadline now() noexcept override;
  // As the simulation itself reads it.
  Deadline read() noexcept;
  void wait(const void* event, Deadline until) noexcept override;
  void notify(const void* event) noexcept override;
  void poll(const void* event, std::span<pollfd> entries, Deadline until) noexcept override;
  // On the process of the calling fiber.
  std::uint64_t start(std::function<void()> body) override;
  void join(std::uint64_t fiber) noexcept override;

  std::uint64_t start_on(int process, std::function<void()> body);
  // Of the running thread.
  int process() const noexcept { return threads_[running_].process; }
  // The calling fiber sleeps.
  void sleep(Clock::duration time) noexcept { wait(nullptr, time_ + time); }
  void at(Deadline when, std::function<void()> action);
  void after(Clock::duration time, std::function<void()> action) { at(time_ + time, std::move(action)); }

  // The process' fibers don't run until thaw().
  void freeze(int process);
  void thaw(int process);
  bool is_frozen(int process) const noexcept {
    return processes_.all[static_cast<std::size_t>(process)].is_frozen;
  }

  // `action` happens within the process' `calls`-th call of its machine from now on, in the middle of what
  // the thread does. If it freezes the process, that thread goes on first, since it may hold locks.
  void interrupt(int process, std::uint64_t calls, std::function<void()> action);
  // The running thread has called its machine.
  void called() noexcept;

  // What poll() asks about a descriptor: which of POLLIN, POLLOUT and POLLRDHUP hold.
  void set_readiness(std::function<short(int)> readiness) { readiness_ = std::move(readiness); }
  // The process' descriptor may have become ready, and with it one that watches it, as epoll's do; none: -1.
  void on_ready(int process, int descriptor, int watcher = -1) noexcept;

  // Runs until all fibers have ended. Returns what is wrong, or nothing: fibers that wait for ever, or more
  // than `limit` events.
  std::string run(std::uint64_t limit);
  std::uint64_t events() const noexcept { return counts_.events; }

 private:
  struct Waiting {
    const void* event = nullptr;
    std::span<pollfd> entries;
    std::uint64_t token = 0;  // events with an older one have been overtaken
    bool is_due = false;      // woken, and not running yet
  };
  struct Interruption {
    int process = kNobody;
    std::uint64_t calls = 0;  // until then
    std::function<void()> action;
  };
  struct Thread {
    std::unique_ptr<Fiber> fiber;
    int process = kNobody;
    Waiting waiting;
    bool ended = false;
  };

  static constexpr std::size_t kNoThread = SIZE_MAX;
  struct Process {
    bool is_frozen = false;
    std::size_t interrupted = kNoThread;  // the thread that goes on first
    std::set<std::size_t> polling{};      // threads that wait for descriptors
  };

  struct Processes {
    std::vector<Process> all{};

    Process& of(int process);
  };
  void block(Deadline until) noexcept;
  void wake(std::size_t thread) noexcept;
  void resume(std::size_t thread);
  Clock::duration draw_latency() noexcept;

  Dice dice_;
  Latencies latencies_;
  Trace& trace_;
  Deadline time_;
  EventQueue queue_;
  std::deque<Thread> threads_;
  std::size_t running_ = kNoThread;  // the thread that runs; none: the scheduler does
  struct Counts {
    std::uint64_t events = 0;
    std::size_t alive = 0;  // threads that have not ended
  } counts_;
  std::set<std::pair<const void*, std::size_t>> waiting_;  // for events, by thread
  std::vector<Interruption> interruptions_;
  Processes processes_;
  std::vector<Event> held_;  // of frozen processes
  std::function<short(int)> readiness_;
};

}  // namespace deltawire::simulation
