#include "simulation/timed_machine.h"

#include <algorithm>
#include <utility>

namespace deltawire::simulation {
namespace {

// A run begins here, so that a default Deadline is long past.
constexpr std::chrono::hours kBegin{1};
// What a poll that has to wait does for a descriptor, next to looking at it once: it looks twice, and enters
// its wait queue and leaves it.
constexpr double kWaiting = 3;

}  // namespace

TimedMachine::TimedMachine(int world, const Hosts& hosts, const Costs& costs)
    : hosts_(hosts), costs_(costs), time_(kBegin), ranks_(static_cast<std::size_t>(world)) {
  const int count = (world + hosts.ranks - 1) / hosts.ranks;
  every_host_.resize(static_cast<std::size_t>(count), Host{hosts.processors, {}});
  simulated_machine = this;
}

TimedMachine::~TimedMachine() {
  simulated_machine = nullptr;
}

Deadline TimedMachine::time() const noexcept {
  if (running_ == kNoThread) return time_;
  return ranks_[static_cast<std::size_t>(threads_[running_].rank)].time;
}

void TimedMachine::spend(double nanoseconds) noexcept {
  const auto spent = std::chrono::nanoseconds(static_cast<std::int64_t>(nanoseconds));
  Rank& rank = rank_of(running_);
  rank.time += spent;
  rank.used += spent;
}

Deadline TimedMachine::now() noexcept {
  spend(costs_.clock);
  return time();
}

void TimedMachine::at(Deadline when, std::function<void()> action) {
  queue_.push({.when = when, .action = std::move(action)});
}

// Gives control back until a wake, or until `until`.
void TimedMachine::block(Deadline until) noexcept {
  Thread& thread = threads_[running_];
  ++thread.token;
  thread.is_due = false;
  if (until != Deadline::max()) queue_.push({std::max(until, time()), running_, thread.token, {}});
  thread.fiber->pause();
  thread.event = nullptr;
  thread.entries = {};
}

void TimedMachine::wait(const void* event, Deadline until) noexcept {
  spend(costs_.call);
  threads_[running_].event = event;
  block(until);
}

// What threads of one rank wait for, no other rank notifies.
void TimedMachine::notify(const void* event) noexcept {
  for (const std::size_t thread : rank_of(running_).threads) {
    if (threads_[thread].event != event || threads_[thread].is_due) continue;
    spend(costs_.call);
    wake(thread);
  }
}

// The first entry is that of `event` itself.
void TimedMachine::poll(const void* event, std::span<pollfd> entries, Deadline until) noexcept {
  const auto fill = [&] {
    std::ptrdiff_t ready = 0;
    for (pollfd& entry : entries) {
      entry.revents = entry.fd < 0 ? short{0} : static_cast<short>(readiness_(entry.fd) & entry.events);
      ready += entry.revents != 0 ? 1 : 0;
    }
    return ready;
  };
  const auto watched = std::ranges::count_if(entries, [](const pollfd& entry) { return entry.fd >= 0; });
  spend(costs_.call + costs_.entry * static_cast<double>(watched));
  if (fill() > 0 || until <= time()) return;
  spend(kWaiting * costs_.entry * static_cast<double>(watched));
  threads_[running_].event = event;
  threads_[running_].entries = entries;
  block(until);
  (void)fill();
}

void TimedMachine::on_ready(int rank, int descriptor) {
  for (const std::size_t number : ranks_[static_cast<std::size_t>(rank)].threads) {
    const Thread& thread = threads_[number];
    if (thread.is_due) continue;
    const bool is_polled = std::ranges::any_of(thread.entries, [&](const pollfd& entry) {
      return entry.fd == descriptor && (readiness_(descriptor) & entry.events) != 0;
    });
    if (is_polled) wake(number);
  }
}

std::uint64_t TimedMachine::start(std::function<void()> body) {
  spend(costs_.call);
  const std::size_t number = threads_.size();
  start_on(threads_[running_].rank, std::move(body));
  return number;
}

void TimedMachine::start_on(int rank, std::function<void()> body) {
  const std::size_t number = threads_.size();
  Thread& thread = threads_.emplace_back();
  thread.fiber = std::make_unique<Fiber>(std::move(body));
  thread.rank = rank;
  ranks_[static_cast<std::size_t>(rank)].threads.push_back(number);
  ++alive_;
  wake(number);
}

void TimedMachine::join(std::uint64_t thread) noexcept {
  while (!threads_[thread].has_ended) wait(&threads_[thread], Deadline::max());
}

void TimedMachine::wake(std::size_t thread) {
  if (std::exchange(threads_[thread].is_due, true)) return;
  rank_of(thread).ready.push_back(thread);
  fill_line(threads_[thread].rank);
}

void TimedMachine::fill_line(int rank) {
  if (std::exchange(ranks_[static_cast<std::size_t>(rank)].is_at_work, true)) return;
  const int host = host_of(rank);
  every_host_[static_cast<std::size_t>(host)].line.push_back(rank);
  at(time(), [this, host] { serve(every_host_[static_cast<std::size_t>(host)]); });
}

void TimedMachine::serve(Host& host) {
  while (host.idle > 0 && !host.line.empty()) {
    const int rank = host.line.front();
    host.line.pop_front();
    --host.idle;
    work(rank, true);
  }
}

// The rank has a processor until none of its threads can go on.
void TimedMachine::work(int number, bool has_waited) {
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  rank.time = time_;
  while (!rank.ready.empty()) {
    const std::size_t thread = rank.ready.front();
    rank.ready.pop_front();
    running_ = thread;
    if (has_waited) spend(costs_.turn);
    rank.turns += has_waited ? 1 : 0;
    resume(thread);
    has_waited = true;
  }
  at(rank.time, [this, number] {
    Rank& done = ranks_[static_cast<std::size_t>(number)];
    // What came while it worked, its poll finds at once.
    if (!done.ready.empty()) return work(number, false);
    done.is_at_work = false;
    Host& host = every_host_[static_cast<std::size_t>(host_of(number))];
    ++host.idle;
    serve(host);
  });
}

void TimedMachine::resume(std::size_t thread) {
  trace_.add(thread);
  trace_.add(static_cast<std::uint64_t>(time().time_since_epoch().count()));
  if (threads_[thread].fiber->resume()) {
    threads_[thread].has_ended = true;
    threads_[thread].fiber.reset();
    --alive_;
    notify(&threads_[thread]);
  }
  running_ = kNoThread;
}

std::string TimedMachine::run() {
  while (alive_ > 0) {
    if (queue_.empty()) return std::to_string(alive_) + " threads wait for ever";
    const Event event = queue_.pop();
    time_ = std::max(time_, event.when);
    if (event.action) {
      event.action();
    } else if (threads_[event.fiber].token == event.token) {
      wake(event.fiber);
    }
  }
  return {};
}

}  // namespace deltawire::simulation
