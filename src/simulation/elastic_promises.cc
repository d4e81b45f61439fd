#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "simulation/elastic_run.h"
#include "transport/mesh/engine.h"

namespace deltawire::simulation {

namespace {

using namespace std::chrono_literals;
using Kind = ElasticFault::Kind;

// The last two: what kept the last attempt from connecting when the time to meet is over.
constexpr std::array kEnds{ErrorCode::kExcluded, ErrorCode::kNoQuorum, ErrorCode::kAborted,
                           ErrorCode::kTimeout, ErrorCode::kPeerLost};
// A step may fail, and its members may meet, once for each fault, and once more.
constexpr Clock::duration kSpare = 15s;

bool is_of_one(const ElasticFault& fault) {
  constexpr std::array kOfOne{Kind::kKill,  Kind::kPowerOff, Kind::kFreeze,
                              Kind::kLeave, Kind::kAbort,    Kind::kBusy};
  return std::ranges::find(kOfOne, fault.kind) != kOfOne.end();
}

class ElasticPromises {
 public:
  explicit ElasticPromises(const ElasticRun& run) : run_(run), plan_(run.plan()) {}

  std::string check() {
    check_replicas();
    if (!plan_.at_least) {
      check_epochs();
      check_line();
    }
    for (const auto& life : run_.lives()) {
      check_end(*life);
      check_wait(*life);
      check_recovery(*life);
    }
    if (plan_.faults.empty()) check_calm();
    return broken_.empty() && plan_.is_repeated() ? differs_from_undisturbed(run_) : broken_;
  }

 private:
  void breaks(const std::string& text) {
    if (broken_.empty()) broken_ = text;
  }
  static std::string name(int process) { return "process " + std::to_string(process); }

  void check_replicas();
  void check_epochs();
  void check_line();
  void check_end(const ElasticLife& life);
  void check_wait(const ElasticLife& life);
  void check_recovery(const ElasticLife& life);
  void check_calm();
  bool is_mild() const;
  bool is_victim(const ElasticLife& life) const;

  const ElasticRun& run_;
  const ElasticPlan& plan_;
  std::string broken_;
};

// All who commit a step in one epoch have the same steps before it, means and weights.
void ElasticPromises::check_replicas() {
  std::map<std::pair<std::vector<int>, std::pair<std::uint32_t, std::uint64_t>>, const ElasticCommit*> first;
  for (const ElasticCommit& each : run_.commits()) {
    const ElasticCommit& other =
        *first.try_emplace({each.members, {each.epoch, each.step}}, &each).first->second;
    const auto differ = [&](const char* what) {
      breaks(name(other.process) + " and " + std::to_string(each.process) + " have other " + what +
             " after " + each.text());
    };
    if (each.before != other.before) differ("steps");
    if (each.means != other.means) differ("means");
    if (plan_.gives_state && each.weights != other.weights) differ("weights");
    if (each.step > 0 && std::ranges::find(each.members, each.id) == each.members.end()) differ("members");
  }
}

// No two views have the same epoch.
void ElasticPromises::check_epochs() {
  std::map<std::uint32_t, const ElasticCommit*> first;
  for (const ElasticCommit& each : run_.commits()) {
    const ElasticCommit& other = *first.try_emplace(each.epoch, &each).first->second;
    if (each.members != other.members)
      breaks("two views share an epoch: " + other.text() + ", and " + each.text());
  }
}

// Steps form one line. Next to it may stand a last step that some have seen committed while those who go on
// did not hear of it (docs/design/commit.md, the limits): no step follows it.
void ElasticPromises::check_line() {
  std::map<std::uint64_t, std::map<std::uint64_t, const ElasticCommit*>> after;
  for (const ElasticCommit& each : run_.commits()) after[each.before].try_emplace(each.after, &each);
  for (const auto& [before, branches] : after) {
    std::string going_on;
    int count = 0;
    for (const auto& [name_after, commit] : branches) {
      if (!after.contains(name_after)) continue;
      ++count;
      going_on += (going_on.empty() ? "" : ", and ") + commit->text();
    }
    if (count > 1) breaks("two groups go on, after " + going_on);
  }
}

bool ElasticPromises::is_victim(const ElasticLife& life) const {
  return life.is_victim || std::ranges::any_of(plan_.faults, [this, &life](const ElasticFault& fault) {
           return fault.process == life.process && is_of_one(fault) &&
                  !(fault.kind == Kind::kBusy && plan_.is_pure);
         });
}

// Whether so little happens that it ends the session of its victim alone.
bool ElasticPromises::is_mild() const {
  // A session begins on all of its first processes, or on none.
  const auto is_missing = [this](const auto& life) {
    return life->process < plan_.world && !life->is_dead && !life->has_met;
  };
  if (std::ranges::any_of(run_.lives(), is_missing)) return false;
  if (plan_.is_pure) return true;
  if (plan_.at_least && *plan_.at_least >= plan_.world) return false;
  int faults = 0;
  for (const ElasticFault& each : plan_.faults) {
    if (each.kind == Kind::kJoin) continue;
    if (!is_of_one(each)) return false;
    ++faults;
  }
  return faults <= 1 && plan_.world > 2;
}

// A session ends with an error that says why; and who can't take part any more is told.
void ElasticPromises::check_end(const ElasticLife& life) {
  if (!life.error || life.is_dead || !life.has_met) return;
  const Error& error = *life.error;
  if (life.is_misfit && (error.code == ErrorCode::kMismatch || !is_mild())) return;
  if (std::ranges::find(kEnds, error.code) == kEnds.end())
    breaks(name(life.process) + " ends with " + error.text());
  if (is_mild() && !is_victim(life))
    breaks(name(life.process) + " ends because of one fault: " + error.text());
  if (life.has_missed_others && !life.is_misfit) {
    breaks(name(life.process) + " is not told that the others went on: " + error.text());
  }
}

void ElasticPromises::check_wait(const ElasticLife& life) {
  const auto rounds = static_cast<int>(2 + plan_.faults.size());
  if (life.is_dead || life.waited <= rounds * (plan_.timeout + plan_.meeting * 13 / 10 + kSpare)) return;
  breaks(name(life.process) + " waited " + seconds_text(life.waited) + " for a step");
}

// Where a process dies and one of the meeting freezes, the others wait for it once, until it counts as gone.
// They come from computing, and some 25 messages follow each other.
void ElasticPromises::check_recovery(const ElasticLife& life) {
  const bool is_about_it = plan_.scene == "a host freezes" || plan_.scene == "a giver freezes";
  if (!plan_.is_pure || !is_about_it || life.is_dead || is_victim(life)) return;
  constexpr Clock::duration kGone = 3s;
  const Clock::duration lasts = plan_.faults.back().lasts;
  if (lasts > kGone - 500ms && lasts < kGone + 1s) return;  // some may have given it up, and others not
  const Clock::duration most =
      std::min(lasts, kGone) + plan_.pause + 25 * (plan_.path.least + plan_.path.jitter) + 1s;
  if (life.recovery <= std::chrono::duration<double>(most).count()) return;
  breaks(name(life.process) + " took " + std::to_string(life.recovery) + " s to go on");
}

// Where nothing goes wrong, all make all steps together.
void ElasticPromises::check_calm() {
  for (const auto& life : run_.lives()) {
    if (life->error) breaks(name(life->process) + " ends without a fault: " + life->error->text());
  }
  const auto all = static_cast<std::size_t>(plan_.world) * plan_.steps;
  if (run_.commits().size() != all) breaks("without a fault not all steps were committed");
  for (const ElasticCommit& each : run_.commits()) {
    if (each.epoch != 0) breaks("without a fault there is " + each.text());
  }
}

}  // namespace

std::string broken_promise(const ElasticRun& run) {
  return ElasticPromises(run).check();
}

namespace {

using namespace std::chrono_literals;

// The steps of an epoch, as its members have seen them.
class Epoch {
 public:
  Epoch(const ElasticRun& run, const ElasticCommit& first)
      : run_(run), members_(first.members), first_(first.step), last_(first.step), before_(first.before) {}

  void add(const ElasticCommit& commit) {
    seen_[{commit.step, commit.id}] = &commit;
    last_ = std::max(last_, commit.step);
    if (commit.step < first_) before_ = commit.before;
    first_ = std::min(first_, commit.step);
  }

  std::string compare() {
    if (!find_base()) return what() + " begins from what no process has seen";
    static Trace silent(false);
    Scheduler scheduler(0, {1us, 1us, 1}, silent);
    Network network(0, scheduler, silent);
    auto links = network.connect(world(), {20us, 2us, 1e9, true}, 1'000'000);
    for (int rank = 0; rank < world(); ++rank) {
      scheduler.start_on(rank, [this, rank, &links, &scheduler] {
        Engine transport({rank, 0}, std::move(links[static_cast<std::size_t>(rank)]), nullptr, GuardedFd());
        live(rank, transport, scheduler);
      });
    }
    const std::string stuck = scheduler.run(100'000'000);
    return broken_.empty() ? stuck : broken_;
  }

 private:
  int world() const { return static_cast<int>(members_.size()); }
  std::string what() const {
    std::string told = "the epoch of members";
    for (const int id : members_) told += " " + std::to_string(id);
    return told + ", from step " + std::to_string(first_) + " on,";
  }

  // Those who have seen the step before, whose residuals it begins with.
  bool find_base() {
    if (first_ == 0) return true;
    for (const ElasticCommit& each : run_.commits()) {
      if (each.step + 1 != first_ || each.after != before_) continue;
      base_ = each.members;
      held_[each.id] = &each.state;
    }
    const auto has_state = [this](int id) {
      return held_.contains(id) || std::ranges::find(base_, id) == base_.end();
    };
    return !base_.empty() && std::ranges::all_of(members_, has_state);
  }

  Status load(int rank, Reducer& reducer) {
    if (base_.empty()) return {};
    if (base_ == members_) return reducer.load(*held_[members_[static_cast<std::size_t>(rank)]]);
    std::vector<Bytes> states;
    for (const int id : base_) {
      const bool goes_on = std::ranges::find(members_, id) != members_.end();
      states.push_back(goes_on ? Bytes(*held_[id]) : Bytes{});
    }
    std::vector<int> continued;
    for (const int id : members_) {
      const auto found = std::ranges::find(base_, id);
      continued.push_back(found == base_.end() ? -1 : static_cast<int>(found - base_.begin()));
    }
    Gradient tensors = gradient(0, 0, run_.plan().longest);
    const std::vector<Named> all = named(tensors);
    return reducer.load_resized(
        {.states = states, .tensors = all, .world = world(), .rank = rank, .continued = continued});
  }

  void live(int rank, Transport& transport, Scheduler& scheduler) {
    const auto reducer = *make_reducer(run_.plan().spec, {.policy = {}, .threads = 1});
    Status done = load(rank, *reducer);
    for (std::uint64_t number = first_; done && number <= last_; ++number) {
      done = step(rank, number, *reducer, transport, scheduler.now() + 30s);
    }
    if (!done) breaks("can't be repeated: " + done.error().text());
  }

  Status step(int rank, std::uint64_t number, Reducer& reducer, Transport& transport, Deadline deadline) {
    const int id = members_[static_cast<std::size_t>(rank)];
    Gradient tensors = gradient(id, number, run_.plan().longest);
    const std::vector<Named> all = named(tensors);
    const std::size_t buckets = run_.plan().buckets;
    for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
      const Step step{number, static_cast<std::uint32_t>(bucket), bucket + 1 == buckets};
      RETURN_IF_ERROR(reducer.all_reduce(of_bucket(all, bucket, buckets), step, transport, deadline));
    }
    const auto seen = seen_.find({number, id});
    if (seen == seen_.end()) return {};
    const std::string of_step = " of step " + std::to_string(number) + " of member " + std::to_string(id);
    if (seen->second->means != hash_of(tensors)) breaks("had other means" + of_step);
    ASSIGN_OR_RETURN(const auto state, reducer.save());
    if (state != seen->second->state) breaks("had other residuals" + of_step);
    return {};
  }

  void breaks(const std::string& text) {
    if (broken_.empty()) broken_ = what() + " " + text;
  }

  const ElasticRun& run_;
  const std::vector<int> members_;
  std::uint64_t first_;
  std::uint64_t last_;
  std::uint64_t before_;                                                // names the steps before it
  std::map<std::pair<std::uint64_t, int>, const ElasticCommit*> seen_;  // by step and id
  std::vector<int> base_;                                               // ids
  std::map<int, const std::vector<std::byte>*> held_;                   // by id
  std::string broken_;
};

}  // namespace

std::string differs_from_undisturbed(const ElasticRun& run) {
  std::map<std::pair<std::uint32_t, std::vector<int>>, Epoch> epochs;
  for (const ElasticCommit& each : run.commits()) {
    epochs.try_emplace({each.epoch, each.members}, run, each).first->second.add(each);
  }
  for (auto& [name, epoch] : epochs) {
    if (std::string broken = epoch.compare(); !broken.empty())
      return "epoch " + std::to_string(name.first) + ": " + broken;
  }
  return {};
}

}  // namespace deltawire::simulation
