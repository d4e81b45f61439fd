#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "simulation/job.h"

namespace deltawire::simulation {
namespace {

constexpr double kMostImbalance = 1e-6;

class Promises {
 public:
  explicit Promises(Job& job) : job_(job), logs_(job.logs()), world_(job.plan().world) {}

  std::string check() {
    for (std::size_t mesh = 0; mesh < job_.blames().size() && broken_.empty(); ++mesh) {
      check_mesh(mesh);
      check_last_steps(mesh);
    }
    check_mass();
    return broken_;
  }

 private:
  const RankLog& log(int rank) const { return logs_[static_cast<std::size_t>(rank)]; }
  bool lives(int rank) const { return !log(rank).is_dead; }
  const Ending* ending(int rank, std::size_t mesh) const {
    const RankLog& own = log(rank);
    return own.is_dead || own.endings.size() <= mesh ? nullptr : &own.endings[mesh];
  }
  void breaks(std::string promise) {
    if (broken_.empty()) broken_ = std::move(promise);
  }

  bool ended_apart(std::size_t mesh) const;
  bool may_be_apart(std::size_t mesh) const;
  bool may_ask(std::size_t mesh) const;
  void check_mesh(std::size_t mesh);
  void check_error(int rank, const Ending& ending, std::size_t mesh);
  void check_last_steps(std::size_t mesh);
  void check_mass();

  Job& job_;
  const std::vector<RankLog>& logs_;
  int world_;
  std::string broken_;
};

// Whether ranks that wait in a circle may ask if all run the same steps, although a path is cut: some don't,
// the time is too short for a path, a path has been up again for less than a second, or a rank that stands
// still was heard less than a second before. (They fail once they have settled without it.)
bool Promises::may_ask(std::size_t mesh) const {
  const Blame& blame = job_.blames()[mesh];
  Deadline first = kNever;
  for (int rank = 0; rank < world_; ++rank) {
    const Ending* own = ending(rank, mesh);
    if (own != nullptr && own->error) first = std::min(first, own->failed_at);
  }
  const bool is_fresh =
      blame.stands_still && first < blame.heard_until + std::chrono::seconds(1) + settling(job_);
  const bool is_up_again = std::ranges::any_of(blame.delays_end, [&](Deadline end) {
    return std::chrono::abs(first - end) < std::chrono::seconds(1) + in_flight(job_);
  });
  return blame.leaves || blame.slows || is_fresh || is_up_again;
}

// An error only where something has gone wrong, and it names a rank that had to do with it.
void Promises::check_error(int rank, const Ending& ending, std::size_t mesh) {
  if (!ending.error) return;
  const Blame& blame = job_.blames()[mesh];
  const Clock::duration timeout = job_.plan().timeout;
  const std::string told = RankNames::plain().of(rank) + " fails (" + ending.error->text() + ")";
  if (!blame.is_fatal && blame.delay < timeout / 2) breaks(told + " although nothing was wrong for so long");
  const int suspect = ending.error->suspect;
  // In a circle it is a guess, and the text says so.
  // So it is where what held them up has left too little time for what was then on its way.
  const Clock::duration left = timeout - blame.delay;
  const bool is_short = left >= Clock::duration{} && left < 2 * in_flight(job_);
  const bool is_guess = is_short || (told.find("in a circle") != std::string::npos && !blame.cuts);
  if (suspect != kNoSuspect && !is_guess && !blame.is_guilty(suspect)) {
    breaks(told + " and blames " + RankNames::plain().of(suspect) + ", which is innocent");
  }
  // They do, and whose messages are not acknowledged names the path that is cut.
  const bool is_asked = told.find("do they all run the same steps") != std::string::npos;
  if (is_asked && blame.cuts && !is_short && !may_ask(mesh))
    breaks(told + " although all run the same steps");
  const bool all_heard = std::ranges::all_of(ending.last.unheard, [this](int each) { return !lives(each); });
  // A farewell may come after another rank's word that its sender has left.
  const bool may_be_silent = blame.silences || blame.freezes > 0;
  if (!may_be_silent && !blame.leaves && !all_heard) breaks(told + " and has not heard a rank that lives");
}

// Whether the ranks were at different steps at its end.
bool Promises::ended_apart(std::size_t mesh) const {
  const Ending* first = ending(0, mesh);
  for (int rank = 1; rank < world_; ++rank) {
    const Ending* own = ending(rank, mesh);
    if (first != nullptr && own != nullptr && own->next_step != first->next_step) return true;
  }
  return false;
}

// Ranks that started at different steps, after a network that was split, can't go on: that is a mismatch.
void Promises::check_mesh(std::size_t mesh) {
  const Blame& blame = job_.blames()[mesh];
  const bool is_apart = mesh > 0 && ended_apart(mesh - 1);
  for (int rank = 0; rank < world_; ++rank) {
    const Ending* own = ending(rank, mesh);
    if (own == nullptr) continue;
    if (!is_apart) check_error(rank, *own, mesh);
    // A rank that has finished does not say so: it leaves.
    const bool all_go_on = std::ranges::all_of(logs_, [&](const RankLog& each) {
      return each.endings.size() < mesh || each.endings[mesh - 1].next_step < job_.plan().steps;
    });
    if (is_apart && all_go_on && (!own->error || own->error->code != ErrorCode::kMismatch) &&
        !blame.is_fatal && blame.delay == Clock::duration{}) {
      breaks(RankNames::plain().of(rank) + " does not find that the ranks are at different steps");
    }
  }
}

// Whether ranks that live may end a step apart. A rank that was frozen, while nothing happened to any other,
// may do so only if the others give up on it just as it wakes up (docs/design/commit.md).
bool Promises::may_be_apart(std::size_t mesh) const {
  const Blame& blame = job_.blames()[mesh];
  if (blame.silences || blame.freezes > 1) return true;
  if (blame.freezes == 0) return false;
  if (std::popcount(blame.guilty) > 1) return true;
  for (int rank = 0; rank < world_; ++rank) {
    const Ending* own = ending(rank, mesh);
    if (own == nullptr || !own->error || blame.is_guilty(rank)) continue;
    if (std::chrono::abs(own->failed_at - blame.woken_at) < in_flight(job_)) return true;
    // It came late to its vote, just as they gave up on it, and froze then: they settle without it.
    const auto is_late = [&](Deadline end) {
      return end <= own->failed_at && own->failed_at < end + settling(job_) + in_flight(job_);
    };
    if (std::ranges::any_of(blame.delays_end, is_late)) return true;
  }
  return false;
}

// Who is at another step is among the unheard; and where all could hear each other, nobody is.
void Promises::check_last_steps(std::size_t mesh) {
  for (int rank = 0; rank < world_; ++rank) {
    const Ending* own = ending(rank, mesh);
    for (int other = 0; other < world_; ++other) {
      const Ending* its = ending(other, mesh);
      if (own == nullptr || its == nullptr || own->committed == its->committed) continue;
      const std::string apart = RankNames::plain().of(rank) + " has committed " +
                                std::to_string(own->next_step) + " steps, " + RankNames::plain().of(other) +
                                " " + std::to_string(its->next_step);
      const bool is_named = std::ranges::count(own->last.unheard, other) > 0;
      if (own->error && !is_named) breaks(apart + ", and it does not say that it was not heard");
      if (!may_be_apart(mesh)) breaks(apart + ", although they could hear each other");
    }
  }
}

void Promises::check_mass() {
  if (job_.plan().spec.empty()) return;
  std::vector<const Ledger*> ledgers;
  for (const RankLog& each : logs_) {
    if (each.is_dead || each.next_step != logs_.front().next_step || each.next_step == 0) return;
    if (each.ledger.waiting.empty()) return;
    ledgers.push_back(&each.ledger);
  }
  const double lost = imbalance(ledgers);
  if (lost > kMostImbalance) breaks("gradients of " + std::to_string(lost) + " are lost or doubled");
}

}  // namespace

std::string broken_promise(Job& job) {
  return Promises(job).check();
}

}  // namespace deltawire::simulation
