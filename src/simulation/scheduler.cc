#include "simulation/scheduler.h"

namespace deltawire::simulation {
namespace {

// What it takes to read the clock: time passes for a fiber that never waits, too.
constexpr std::chrono::nanoseconds kReading{20};

// Whether any of them is ready.
bool fill_ready(std::span<pollfd> entries, const std::function<short(int)>& readiness) {
  bool any = false;
  for (pollfd& entry : entries) {
    entry.revents = entry.fd < 0 ? short{0} : static_cast<short>(readiness(entry.fd) & entry.events);
    any = any || entry.revents != 0;
  }
  return any;
}

}  // namespace

Scheduler::Scheduler(std::uint64_t seed, const Latencies& latencies, Trace& trace)
    : dice_(seed, 1), latencies_(latencies), trace_(trace), time_(kRunBegins) {
  simulated_machine = this;
}

Scheduler::~Scheduler() {
  simulated_machine = nullptr;
}

Deadline Scheduler::read() noexcept {
  return time_ += kReading;
}

Deadline Scheduler::now() noexcept {
  const Deadline time = read();
  called();
  return time;
}

void Scheduler::interrupt(int process, std::uint64_t calls, std::function<void()> action) {
  interruptions_.push_back({process, calls, std::move(action)});
}

void Scheduler::called() noexcept {
  if (running_ == kNoThread || interruptions_.empty()) return;
  const int process = threads_[running_].process;
  const auto due = std::ranges::find_if(
      interruptions_, [process](Interruption& each) { return each.process == process && --each.calls == 0; });
  if (due == interruptions_.end()) return;
  const std::function<void()> action = std::move(due->action);
  interruptions_.erase(due);
  action();
  if (!is_frozen(process)) return;
  processes_.of(process).interrupted = running_;
  Thread& thread = threads_[running_];
  ++thread.waiting.token;  // is_due stays set, so nothing but thaw() wakes it
  thread.fiber->pause();
}

void Scheduler::at(Deadline when, std::function<void()> action) {
  queue_.push({.when = when, .action = std::move(action)});
}

Clock::duration Scheduler::draw_latency() noexcept {
  return dice_.up_to(dice_.one_in(latencies_.busy_in) ? latencies_.longest : latencies_.usual);
}

// Gives control back until a wake, or until `until`.
void Scheduler::block(Deadline until) noexcept {
  assert(running_ != kNoThread && !threads_[running_].ended);
  Thread& thread = threads_[running_];
  ++thread.waiting.token;
  thread.waiting.is_due = false;
  if (until != Deadline::max()) {
    queue_.push({std::max(until, time_) + draw_latency(), running_, thread.waiting.token, {}});
  }
  if (thread.waiting.event != nullptr) waiting_.emplace(thread.waiting.event, running_);
  const bool polls = !thread.waiting.entries.empty();
  if (polls) processes_.of(thread.process).polling.insert(running_);
  thread.fiber->pause();
  waiting_.erase({thread.waiting.event, running_});
  if (polls) processes_.of(thread.process).polling.erase(running_);
  thread.waiting.event = nullptr;
  thread.waiting.entries = {};
}

void Scheduler::wait(const void* event, Deadline until) noexcept {
  threads_[running_].waiting.event = event;
  block(until);
}

void Scheduler::wake(std::size_t thread) noexcept {
  assert(thread < threads_.size() && !threads_[thread].ended);
  Waiting& waiting = threads_[thread].waiting;
  if (std::exchange(waiting.is_due, true)) return;
  queue_.push({time_ + draw_latency(), thread, waiting.token, {}});
}

void Scheduler::notify(const void* event) noexcept {
  for (auto each = waiting_.lower_bound({event, 0}); each != waiting_.end() && each->first == event; ++each) {
    wake(each->second);
  }
}

// The first entry is that of `event` itself.
void Scheduler::poll(const void* event, std::span<pollfd> entries, Deadline until) noexcept {
  assert(!entries.empty());
  const std::span<pollfd> descriptors = entries.subspan(1);
  Waiting& waiting = threads_[running_].waiting;
  waiting.event = event;
  waiting.entries = descriptors;
  block(fill_ready(descriptors, readiness_) ? time_ : until);
  (void)fill_ready(descriptors, readiness_);
}

Scheduler::Process& Scheduler::Processes::of(int process) {
  const auto at = static_cast<std::size_t>(process);
  if (at >= all.size()) all.resize(at + 1);
  return all[at];
}

void Scheduler::on_ready(int process, int descriptor, int watcher) noexcept {
  for (const std::size_t thread : processes_.of(process).polling) {
    if (threads_[thread].waiting.is_due) continue;
    for (const pollfd& entry : threads_[thread].waiting.entries) {
      const bool is_meant = entry.fd == descriptor || (watcher >= 0 && entry.fd == watcher);
      if (is_meant && (readiness_(entry.fd) & entry.events) != 0) {
        wake(thread);
        break;
      }
    }
  }
}

std::uint64_t Scheduler::start(std::function<void()> body) {
  return start_on(threads_[running_].process, std::move(body));
}

std::uint64_t Scheduler::start_on(int process, std::function<void()> body) {
  const std::size_t number = threads_.size();
  Thread& thread = threads_.emplace_back();
  thread.fiber = std::make_unique<Fiber>(std::move(body));
  thread.process = process;
  if (process >= 0) (void)processes_.of(process);
  ++counts_.alive;
  wake(number);
  return number;
}

void Scheduler::join(std::uint64_t fiber) noexcept {
  while (!threads_[fiber].ended) wait(&threads_[fiber], Deadline::max());
}

void Scheduler::freeze(int process) {
  assert(process >= 0);
  processes_.of(process).is_frozen = true;
}

void Scheduler::thaw(int process) {
  Process& thawed = processes_.of(process);
  thawed.is_frozen = false;
  if (const std::size_t first = thawed.interrupted; first != kNoThread) {
    queue_.push({time_, first, threads_[first].waiting.token, {}});
  }
  for (Event& event : std::exchange(held_, {})) {
    if (threads_[event.fiber].process == process) event.when = time_ + draw_latency();
    if (threads_[event.fiber].process == process) {
      queue_.push(std::move(event));
    } else {
      held_.push_back(std::move(event));
    }
  }
}

void Scheduler::resume(std::size_t thread) {
  assert(running_ == kNoThread && counts_.alive > 0 && !threads_[thread].ended);
  trace_.add(thread);
  trace_.add(static_cast<std::uint64_t>(time_.time_since_epoch().count()));
  running_ = thread;
  threads_[thread].waiting.is_due = true;  // it runs: nothing to wake
  const bool has_ended = threads_[thread].fiber->resume();
  running_ = kNoThread;
  if (!has_ended) return;
  threads_[thread].ended = true;
  threads_[thread].fiber.reset();
  --counts_.alive;
  notify(&threads_[thread]);
}

std::string Scheduler::run(std::uint64_t limit) {
  while (counts_.alive > 0) {
    if (queue_.empty()) return std::to_string(counts_.alive) + " threads wait for ever";
    if (++counts_.events > limit) return "more than " + std::to_string(limit) + " events: some thread spins";
    Event event = queue_.pop();
    time_ = std::max(time_, event.when);
    if (event.action) {
      event.action();
      continue;
    }
    const Thread& thread = threads_[event.fiber];
    if (thread.ended || thread.waiting.token != event.token) continue;
    if (is_frozen(thread.process)) {
      held_.push_back(std::move(event));
      continue;
    }
    if (thread.process >= 0) {
      std::size_t& first = processes_.of(thread.process).interrupted;
      if (first != kNoThread && first != event.fiber) {
        event.when = time_ + std::chrono::nanoseconds(1);
        queue_.push(std::move(event));
        continue;
      }
      first = kNoThread;
    }
    resume(event.fiber);
  }
  return {};
}

}  // namespace deltawire::simulation
