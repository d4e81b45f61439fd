#include "simulation/elastic_run.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "elastic/messages.h"
#include "transport/mesh/control_message.h"

namespace deltawire::simulation {
namespace {

using namespace std::chrono_literals;
using Kind = ElasticFault::Kind;

constexpr std::uint64_t kMostEvents = 20'000'000;  // and so many for each pair of members
constexpr std::uint64_t kMostEventsOfPair = 2'000;
constexpr std::uint16_t kPort = 29600;
constexpr Clock::duration kLongest = 900s;  // of a run, in virtual time
// After so long a view's members can tell those that they left out.
constexpr Clock::duration kKnown = 10s;
constexpr std::size_t kMisfitLongest = 1000;  // elements of the first tensor; the others have more

using Lives = std::vector<std::unique_ptr<ElasticLife>>;

// Of members that run.
std::vector<Endpoint> doors_of(const Lives& lives) {
  std::vector<Endpoint> doors;
  for (const auto& each : lives) {
    if (each->is_dead || each->is_over || !each->has_met) continue;
    for (const ElasticMember& member : each->members) doors.push_back(member.door);
  }
  return doors;
}

// Such a machine hears nothing any more.
bool has_lost_power(const Lives& lives, int process) {
  return process < static_cast<int>(lives.size()) && lives[static_cast<std::size_t>(process)]->has_lost_power;
}

// Of the mesh (control_message.h).
bool is_vote(Bytes bytes) {
  std::vector<std::byte> vote;
  append_control_message(Vote{}, 1, vote);
  constexpr std::size_t kKind = 8;
  return bytes.size() > kKind && std::ranges::equal(bytes.first(4), std::span(vote).first(4)) &&
         bytes[kKind] == vote[kKind];
}

template <class Value>
Bytes bytes_of(const std::vector<Value>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace

std::uint64_t hash_of(const Gradient& tensors) {
  std::uint64_t hash = 1;
  for (const auto& tensor : tensors) {
    for (const float value : tensor) hash = mix(hash, std::bit_cast<std::uint32_t>(value));
  }
  return hash;
}

std::string ElasticCommit::text() const {
  std::string told = "step " + std::to_string(step) + " in epoch " + std::to_string(epoch) + " of members";
  for (const int member : members) told += " " + std::to_string(member);
  return told;
}

std::vector<int> ElasticLife::ids() const {
  std::vector<int> ids;
  for (const ElasticMember& member : members) ids.push_back(member.id);
  return ids;
}

void ElasticLife::look() {
  members = session->members();
  epoch = session->epoch();
  id = members[static_cast<std::size_t>(session->rank())].id;
  for (const ElasticEvent& event : session->events()) recovery = std::max(recovery, event.seconds);
}

ElasticRun::ElasticRun(const ElasticPlan& plan, Trace& trace)
    : plan_(plan),
      trace_(trace),
      dice_(plan.seed, 31),
      scheduler_(plan.seed, plan.latencies, trace),
      network_(plan.seed, scheduler_, trace, std::max(16, plan.world + 1), plan.path),
      sockets_(scheduler_, network_, plan.buffer) {}

std::string ElasticRun::run() {
  ::setenv("DELTAWIRE_STREAMS", std::to_string(plan_.streams).c_str(), 1);
  for (const Clock::duration comes : plan_.comes) start(false, comes);
  for (const ElasticFault& fault : plan_.faults) {
    scheduler_.after(fault.at, [this, &fault] { happen(fault); });
  }
  scheduler_.after(kLongest, [this] { end_late(); });
  const std::string stuck =
      scheduler_.run(kMostEvents + kMostEventsOfPair * static_cast<std::uint64_t>(plan_.world) *
                                       static_cast<std::uint64_t>(plan_.world));
  if (!broken_.empty()) return broken_;
  if (!stuck.empty()) return stuck;
  if (const std::size_t open = sockets_.open_ends(); open > 0) {
    return std::to_string(open) + " sockets are still open";
  }
  return broken_promise(*this);
}

void ElasticRun::start(bool is_misfit, Clock::duration after) {
  const int process = static_cast<int>(lives_.size());
  if (process == network_.machines()) return;
  ElasticLife& own = *lives_.emplace_back(std::make_unique<ElasticLife>());
  own.process = process;
  own.is_misfit = is_misfit;
  own.weights = gradient(0, 0, plan_.longest);
  for (auto& tensor : own.weights) std::ranges::fill(tensor, 0.0F);
  own.ballast.resize(plan_.state_bytes);
  for (std::size_t i = 0; i < own.ballast.size(); ++i) own.ballast[i] = static_cast<std::byte>(i * i >> 7U);
  scheduler_.start_on(process, [this, &own] { live(own); });
  scheduler_.freeze(process);
  scheduler_.after(after, [this, process] {
    if (!at(process).is_dead) scheduler_.thaw(process);
  });
}

// A process' program: it trains until all steps are done, or its session ends.
void ElasticRun::live(ElasticLife& own) {
  const Status done = train(own);
  if (own.session != nullptr) {
    own.session->close();
    own.session.reset();
  }
  if (!own.is_dead) own.left = scheduler_.read();
  if (!own.is_dead) {
    const std::string name = "process " + std::to_string(own.process);
    note(done ? name + " has ended" : name + " fails: " + done.error().text());
  }
  own.is_over = true;
  if (!done) own.error = done.error();
  bury_the_dead();
}

ElasticOptions ElasticRun::options_of(ElasticLife& own) {
  ElasticOptions options;
  if (own.process < plan_.world) options.place = ElasticPlace{own.process, plan_.world};
  // Rank 0's; for a process that joins, that of any member.
  const std::vector<Endpoint> known = own.process < plan_.world ? std::vector<Endpoint>() : doors_of(lives_);
  options.doors = {known.empty() ? Endpoint{address_of(0), kPort} : dice_.pick(known)};
  options.token.fill(std::byte{7});
  options.encryption = plan_.encryption;
  options.interface = address_of(own.process);
  options.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(plan_.timeout);
  options.connect_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(plan_.meeting);
  options.arrival_timeout = options.timeout;
  options.at_least = plan_.at_least;
  if (plan_.gives_state) {
    options.state = [this, &own] { return state_of(own); };
  }
  options.interrupted = [this, &own] { return own.is_dead && is_buried_; };
  options.log = [this, &own](std::string_view line) {
    if (!own.is_dead) note("process " + std::to_string(own.process) + ": " + std::string(line));
  };
  return options;
}

Status ElasticRun::train(ElasticLife& own) {
  ASSIGN_OR_RETURN(own.session,
                   ElasticSession::open(plan_.spec, {.policy = {}, .threads = 1}, options_of(own)));
  own.has_met = true;
  own.look();
  RETURN_IF_ERROR(take_state(own));
  while (own.session->steps() < plan_.steps && !own.is_dead) {
    // The others wait for a process that has just joined.
    const bool has_just_joined = own.process >= plan_.world && !own.has_stepped;
    if (plan_.beat == Clock::duration{}) {
      scheduler_.sleep(dice_.up_to(plan_.pause));
    } else if (!has_just_joined) {
      scheduler_.sleep(plan_.beat - scheduler_.read().time_since_epoch() % plan_.beat);
    }
    if (own.busy > Clock::duration{}) scheduler_.sleep(std::exchange(own.busy, {}));
    if (own.shall_leave || own.is_dead) break;
    if (Status done = step(own); !done) {
      const ErrorCode code = done.error().code;  // kAborted: by its own program
      own.has_missed_others =
          has_missed_others(own) && code != ErrorCode::kExcluded && code != ErrorCode::kAborted;
      return done;
    }
  }
  return {};
}

Status ElasticRun::take_state(ElasticLife& own) {
  const auto state = own.session->joined_state();
  if (own.process < plan_.world) {
    if (state) breaks("process " + std::to_string(own.process) + " was given a state, and has not joined");
    return {};
  }
  note("process " + std::to_string(own.process) + " has joined at step " +
       std::to_string(own.session->steps()));
  if (!state || state->empty() != !plan_.gives_state) {
    breaks("process " + std::to_string(own.process) + " has joined without the state");
    return {};
  }
  if (state->empty()) {  // it must not seem to be another group, all the same
    const std::vector<int> ids = own.ids();
    const auto last = std::ranges::find_if(commits_, [&](const ElasticCommit& each) {
      return each.step + 1 == own.session->steps() && std::ranges::find(ids, each.id) != ids.end();
    });
    if (last != commits_.end()) own.history = last->after;
    return {};
  }
  std::size_t at = 0;
  for (auto& tensor : own.weights) {
    const Bytes bytes = (*state)[at++].bytes;
    if (bytes.size() != 4 * tensor.size()) return wrong_state("an array of the state is cut");
    std::memcpy(tensor.data(), bytes.data(), bytes.size());
  }
  std::memcpy(&own.history, (*state)[at].bytes.data(), sizeof own.history);
  const Bytes ballast = (*state)[at + 1].bytes;
  if (!std::ranges::equal(ballast, own.ballast)) {
    breaks("process " + std::to_string(own.process) + " was given other bytes than the members have");
  }
  return {};
}

Result<std::vector<StateArray>> ElasticRun::state_of(ElasticLife& own) {
  std::vector<StateArray> arrays;
  for (std::size_t i = 0; i < own.weights.size(); ++i) {
    arrays.push_back(
        {"weights " + std::to_string(i), "<f4", 4, {own.weights[i].size()}, bytes_of(own.weights[i])});
  }
  arrays.push_back({"history", "<u8", 8, {}, std::as_bytes(std::span(&own.history, 1))});
  arrays.push_back({"ballast", "|u1", 1, {own.ballast.size()}, own.ballast});
  return arrays;
}

Status ElasticRun::step(ElasticLife& own) {
  const std::uint64_t number = own.session->steps();
  Gradient tensors = own.is_misfit ? gradient(own.process, number, kMisfitLongest)
                                   : gradient(own.id < 0 ? own.process : own.id, number, plan_.longest);
  const Gradient given = tensors;
  const std::vector<Named> all = named(tensors);
  std::vector<ElasticBucket> buckets(plan_.buckets);
  for (std::size_t bucket = 0; bucket < plan_.buckets; ++bucket) {
    const std::size_t first = all.size() * bucket / plan_.buckets;
    const std::size_t end = all.size() * (bucket + 1) / plan_.buckets;
    buckets[bucket].bucket.tensors = std::span(all).subspan(first, end - first);
    // An attempt that failed has the means of the buckets that it had finished.
    buckets[bucket].prepare = [&tensors, &given, first, end] {
      for (std::size_t i = first; i < end; ++i) std::ranges::copy(given[i], tensors[i].begin());
    };
  }
  const Deadline begun = scheduler_.now();
  const Clock::duration frozen = own.frozen;
  const auto report = own.session->all_reduce(buckets);
  own.waited = std::max(own.waited, scheduler_.now() - begun - (own.frozen - frozen));
  if (!report) return forward_error(report);
  if (own.is_dead) return {};
  own.look();
  keep(own, tensors);
  return {};
}

// After a step: what it has made of the process' weights.
void ElasticRun::keep(ElasticLife& own, const Gradient& means) {
  ElasticCommit commit{.process = own.process,
                       .id = own.id,
                       .epoch = own.epoch,
                       .step = own.session->steps() - 1,
                       .members = own.ids(),
                       .before = own.history,
                       .means = hash_of(means)};
  for (std::size_t i = 0; i < means.size(); ++i) {
    for (std::size_t k = 0; k < means[i].size() && k < own.weights[i].size(); ++k) {
      own.weights[i][k] += means[i][k];
    }
  }
  std::uint64_t after = mix(mix(mix(own.history, commit.step), commit.epoch), commit.means);
  for (const int id : commit.members) after = mix(after, static_cast<std::uint64_t>(id));
  commit.after = own.history = after;
  commit.weights = hash_of(own.weights);
  own.has_stepped = true;
  if (auto state = own.session->save()) {
    if (plan_.is_repeated()) commit.state = *std::move(state);
  } else {
    breaks("process " + std::to_string(own.process) + " can't save: " + state.error().text());
  }
  commit.at = scheduler_.now();
  if (own.is_dead) return;
  note("process " + std::to_string(own.process) + " has committed " + commit.text());
  commits_.push_back(std::move(commit));
}

// Whether others that it knows have gone on without it for a while, and can tell.
bool ElasticRun::has_missed_others(const ElasticLife& own) {
  const std::vector<int> known = own.ids();
  const auto contains = [](const std::vector<int>& ids, int id) {
    return std::ranges::find(ids, id) != ids.end();
  };
  return std::ranges::any_of(lives_, [&](const auto& other) {
    if (other->is_dead || other->is_over || !other->has_met || scheduler_.is_frozen(other->process))
      return false;
    if (other->epoch <= own.epoch) return false;  // it stands where this one joined
    const auto first = std::ranges::find(commits_, other->epoch, &ElasticCommit::epoch);
    const Deadline since = scheduler_.read() - kKnown;
    const auto is_open = [since](const Path& path) { return path.is_up && path.healed < since; };
    const bool hears = is_open(network_.path(own.process, other->process)) &&
                       is_open(network_.path(other->process, own.process));
    return first != commits_.end() && first->at < since && hears && contains(known, other->id) &&
           !contains(other->ids(), own.id);
  });
}

void ElasticRun::happen(const ElasticFault& fault) {
  switch (fault.kind) {
    case Kind::kJoin:
    case Kind::kMisfit:
      if (is_buried_) return;
      note(fault.text());
      ++happened_;
      return start(fault.kind == Kind::kMisfit, {});
    case Kind::kFreezeHost: return arm_listening(fault.lasts);
    case Kind::kFreezeGiver:
    case Kind::kMuteVoter: return arm_sending(fault);
    default: break;
  }
  if (fault.process >= static_cast<int>(lives_.size())) return;
  ElasticLife& own = at(fault.process);
  if (own.is_dead || own.is_over) return;
  note(fault.text());
  ++happened_;
  switch (fault.kind) {
    case Kind::kKill:
      if (fault.calls == 0) return kill(own, false);
      return scheduler_.interrupt(own.process, fault.calls, [this, &own] {
        if (!own.is_dead && !own.is_over) kill(own, false);
      });
    case Kind::kPowerOff: return kill(own, true);
    case Kind::kFreeze:
      if (fault.calls == 0) return freeze(own, fault.lasts);
      return scheduler_.interrupt(own.process, fault.calls,
                                  [this, &own, &fault] { freeze(own, fault.lasts); });
    case Kind::kBusy: own.busy = fault.lasts; return;
    case Kind::kLeave: own.shall_leave = true; return;
    case Kind::kAbort:
      scheduler_.start_on(own.process, [session = own.session] {
        if (session != nullptr) session->abort("the program has had enough");
      });
      own.shall_leave = true;
      return;
    default: return disturb_paths(fault);
  }
}

void ElasticRun::disturb_paths(const ElasticFault& fault) {
  if (fault.kind == Kind::kSlow) {
    Path& path = network_.path(fault.process, fault.peer);
    path.least += 150ms;
    return scheduler_.after(fault.lasts, [&path] { path.least -= 150ms; });
  }
  std::vector<std::pair<int, int>> pairs{{fault.process, fault.peer}};
  if (fault.kind == Kind::kSplit) {
    pairs.clear();
    const auto is_in = [&fault](int process) {
      return (fault.group >> static_cast<unsigned>(process) & 1U) != 0;
    };
    for (int from = 0; from < network_.machines(); ++from) {
      for (int to = 0; to < network_.machines(); ++to) {
        if (is_in(from) != is_in(to)) pairs.emplace_back(from, to);
      }
    }
  }
  cut(std::move(pairs), fault.lasts);
}

void ElasticRun::cut(std::vector<std::pair<int, int>> pairs, Clock::duration time) {
  for (const auto& [from, to] : pairs) network_.cut(from, to);
  scheduler_.after(time, [this, pairs = std::move(pairs)] {
    for (const auto& [from, to] : pairs) {
      if (!has_lost_power(lives_, from) && !has_lost_power(lives_, to)) network_.heal(from, to);
    }
  });
}

void ElasticRun::kill(ElasticLife& own, bool loses_power) {
  own.is_dead = true;
  own.has_lost_power = loses_power;
  scheduler_.freeze(own.process);
  if (loses_power) {
    cut_off(network_, own.process);
  } else {
    sockets_.close_all(own.process);
  }
  bury_the_dead();
}

void ElasticRun::freeze(ElasticLife& own, Clock::duration time) {
  if (own.is_dead || own.is_over || scheduler_.is_frozen(own.process)) return;
  own.is_victim = true;
  own.frozen += time;
  scheduler_.freeze(own.process);
  scheduler_.after(time, [this, &own] {
    if (own.is_dead) return;
    note("process " + std::to_string(own.process) + " wakes up");
    scheduler_.thaw(own.process);
  });
}

// The next one that listens, and was in an epoch before, has just decided on a view.
void ElasticRun::arm_listening(Clock::duration time) {
  sockets_.set_on_listen([this, time](int process) {
    if (!at(process).has_met) return;
    sockets_.set_on_listen({});
    note("process " + std::to_string(process) + " freezes in a meeting, for " + seconds_text(time));
    ++happened_;
    scheduler_.interrupt(process, 1, [this, process, time] { freeze(at(process), time); });
  });
}

// Until the message that the fault waits for is sent; not where messages are encrypted.
void ElasticRun::arm_sending(const ElasticFault& fault) {
  sockets_.set_on_send([this, &fault](int process, int to, Bytes bytes) {
    const bool is_it = fault.kind == Kind::kFreezeGiver
                           ? std::ranges::equal(bytes, elastic::encode(elastic::AskShare{}))
                           : is_vote(bytes);
    if (!is_it) return;
    const int victim = fault.kind == Kind::kFreezeGiver ? to : process;
    note("process " + std::to_string(victim) + ": " + fault.text());
    ++happened_;
    if (fault.kind == Kind::kMuteVoter) {
      at(victim).is_victim = true;
      std::vector<std::pair<int, int>> pairs;
      for (int other = 0; other < network_.machines(); ++other) {
        if (other != victim) pairs.emplace_back(victim, other);
      }
      cut(std::move(pairs), fault.lasts);
    } else {  // not from within another process' thread
      scheduler_.after({}, [this, victim, &fault] { freeze(at(victim), fault.lasts); });
    }
    sockets_.set_on_send({});
  });
}

// When all others have ended, the threads of the dead run to their ends, alone.
void ElasticRun::bury_the_dead() {
  const auto goes_on = [](const auto& each) { return !each->is_dead && !each->is_over; };
  if (is_buried_ || std::ranges::any_of(lives_, goes_on)) return;
  is_buried_ = true;
  for (const auto& each : lives_) {
    if (!each->is_dead) continue;
    cut_off(network_, each->process);
    scheduler_.thaw(each->process);
    scheduler_.start_on(each->process, [session = each->session] {
      if (session != nullptr) session->abort("it is dead");
    });
  }
}

void ElasticRun::end_late() {
  std::string late;
  for (const auto& each : lives_) {
    if (each->is_dead || each->is_over) continue;
    late += " " + std::to_string(each->process);
    each->is_dead = true;
  }
  if (late.empty()) return;
  breaks("processes" + late + " have not ended");
  bury_the_dead();
}

void ElasticRun::breaks(const std::string& text) {
  note("VIOLATION: " + text);
  if (broken_.empty()) broken_ = text;
}

std::size_t ElasticRun::errors() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(
      lives_, [](const auto& life) { return !life->is_dead && life->error.has_value(); }));
}

}  // namespace deltawire::simulation
