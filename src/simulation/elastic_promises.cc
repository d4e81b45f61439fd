#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "simulation/elastic_run.h"

namespace deltawire::simulation {
namespace {

using namespace std::chrono_literals;
using Kind = ElasticFault::Kind;

// The last two: what kept the last attempt from connecting when the time to meet is over.
constexpr std::array kEnds{ErrorCode::kExcluded, ErrorCode::kNoQuorum, ErrorCode::kAborted,
                           ErrorCode::kTimeout, ErrorCode::kPeerLost};
// A step may fail, and its members may meet, once for each fault, and once more.
constexpr Clock::duration kSpare = 15s;

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
    return broken_.empty() ? differs_from_undisturbed(run_) : broken_;
  }

 private:
  void breaks(const std::string& text) {
    if (broken_.empty()) broken_ = text;
  }
  static std::string name(int process) { return "process " + std::to_string(process); }
  static std::string text(const ElasticCommit& commit) {
    std::string told =
        "step " + std::to_string(commit.step) + " in epoch " + std::to_string(commit.epoch) + " of members";
    for (const int id : commit.members) told += " " + std::to_string(id);
    return told;
  }

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
             " after " + text(each));
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
      breaks("two views share an epoch: " + text(other) + ", and " + text(each));
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
      going_on += (going_on.empty() ? "" : ", and ") + text(*commit);
    }
    if (count > 1) breaks("two groups go on, after " + going_on);
  }
}

bool ElasticPromises::is_victim(const ElasticLife& life) const {
  return life.is_victim || std::ranges::any_of(plan_.faults, [this, &life](const ElasticFault& fault) {
           return fault.process == life.process &&
                  (fault.kind == Kind::kKill || fault.kind == Kind::kPowerOff ||
                   fault.kind == Kind::kFreeze || fault.kind == Kind::kLeave || fault.kind == Kind::kAbort ||
                   (fault.kind == Kind::kBusy && !plan_.is_pure));
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
    const bool is_of_one = each.kind == Kind::kKill || each.kind == Kind::kPowerOff ||
                           each.kind == Kind::kFreeze || each.kind == Kind::kLeave ||
                           each.kind == Kind::kAbort || each.kind == Kind::kBusy;
    if (!is_of_one) return false;
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
  breaks(name(life.process) + " waited " +
         std::to_string(std::chrono::duration<double>(life.waited).count()) + " s for a step");
}

// Where a process dies and one of the meeting freezes, the others wait for it once, until it counts as gone.
void ElasticPromises::check_recovery(const ElasticLife& life) {
  const bool is_about_it = plan_.scene == "a host freezes" || plan_.scene == "a giver freezes";
  if (!plan_.is_pure || !is_about_it || life.is_dead || is_victim(life)) return;
  constexpr Clock::duration kGone = 3s;
  const Clock::duration lasts = plan_.faults.back().lasts;
  if (lasts > kGone - 500ms && lasts < kGone + 1s) return;  // some may have given it up, and others not
  if (life.recovery <= std::chrono::duration<double>(std::min(lasts, kGone) + 2500ms).count()) return;
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
    if (each.epoch != 0) breaks("without a fault there is " + text(each));
  }
}

}  // namespace

std::string broken_promise(const ElasticRun& run) {
  return ElasticPromises(run).check();
}

}  // namespace deltawire::simulation
