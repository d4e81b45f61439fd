// An elastic session in a simulation: its processes, what happens to them, and what each of them has seen.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/connect.h"
#include "deltawire/elastic.h"
#include "simulation/dice.h"
#include "simulation/ledger.h"
#include "simulation/network.h"
#include "simulation/sockets.h"

namespace deltawire::simulation {

// What a seed decides about an elastic session: its members, their network, and what happens to them.

// What happens to a process. Those that the session begins with are 0 ... world - 1, others follow in the
// order in which they come.
struct ElasticFault {
  enum class Kind : std::uint8_t {
    kKill,         // the process dies; its machine closes its sockets
    kPowerOff,     // the machine is gone: silence
    kFreeze,       // the process stops for a while
    kFreezeHost,   // whoever next listens for a mesh, which is the host of a meeting that has decided
    kFreezeGiver,  // whoever is asked next for its residuals
    kMuteVoter,    // of whoever votes next nothing arrives at any other for a while, its ballot first
    kBusy,         // the program comes late to its next step
    kSplit,        // no process of `group` hears any other, nor is heard, for a while
    kCut,          // nothing arrives from `process` at `peer` for a while
    kSlow,         // the path from `process` to `peer` takes far longer for a while
    kLeave,        // the program leaves in good order
    kAbort,        // another thread of the program gives up
    kJoin,         // a process wants to join
    kMisfit,       // one whose tensors have other shapes
  };
  Kind kind{};
  int process = 0;
  int peer = 0;
  unsigned group = 0;       // bit p: process p
  Clock::duration at{};     // since the session's first process was started
  std::uint64_t calls = 0;  // kKill, kFreeze: and so many calls of its machine later
  Clock::duration lasts{};

  std::string text() const;
};

struct ElasticPlan {
  std::uint64_t seed = 0;
  int world = 3;
  std::string spec;
  std::size_t buckets = 1;
  std::uint64_t steps = 10;
  Clock::duration pause{};     // a program computes for up to this long before a step
  Clock::duration beat{};      // or until the next multiple of this time
  std::size_t longest = 1500;  // elements of the first tensor
  Clock::duration timeout{};
  Clock::duration meeting{};  // connect_timeout
  std::optional<int> at_least;
  bool gives_state = true;
  std::size_t state_bytes = 0;  // besides the weights
  int streams = 1;              // of each pair of members
  Encryption encryption = Encryption::kOff;
  Path path;
  std::size_t buffer = 0;
  Latencies latencies;
  std::vector<Clock::duration> comes;  // by rank: when it is started
  std::string scene;                   // whose faults are among these; empty: none
  bool is_pure = false;                // there are no others, so more is promised
  std::vector<ElasticFault> faults;

  // Whether its epochs are repeated alone afterwards: a large one would take as long and as much memory
  // again.
  bool is_repeated() const noexcept { return world <= 16; }
  std::string text() const;
};

// `world` is 0 where the seed decides.
ElasticPlan draw_elastic(std::uint64_t seed, int world);

// A step that a process has seen committed.
struct ElasticCommit {
  int process = 0;
  int id = 0;  // its number in the session
  std::uint32_t epoch = 0;
  std::uint64_t step = 0;
  std::vector<int> members;  // ids
  std::uint64_t before = 0;  // names all steps before it, with their members and means
  std::uint64_t after = 0;
  std::uint64_t weights = 0;       // a hash of the sum of all means
  std::uint64_t means = 0;         // a hash of this step's
  std::vector<std::byte> state{};  // the residuals after it
  Deadline at{};

  std::string text() const;
};

// A process, which runs on the machine of the same number.
struct ElasticLife {
  int process = 0;
  bool is_misfit = false;  // its tensors have other shapes
  bool is_dead = false;
  bool has_lost_power = false;
  bool is_over = false;
  bool has_met = false;    // it was in an epoch
  bool is_victim = false;  // of a fault that hits whoever comes to a point
  bool shall_leave = false;
  Clock::duration busy{};    // before its next step
  Clock::duration frozen{};  // for how long it did not run
  Clock::duration waited{};  // the longest step, without freezes
  double recovery = 0;       // the longest change of members, in seconds
  Deadline left{};           // when it had closed its session
  bool has_stepped = false;
  // Whether its session ended without a word of those that went on without it.
  bool has_missed_others = false;
  std::optional<Error> error;  // with which it ended
  std::shared_ptr<ElasticSession> session;
  // As it knew them last: nobody calls the session of another process, which may have stopped anywhere.
  int id = -1;
  std::uint32_t epoch = 0;
  std::vector<ElasticMember> members;
  // What it trains, and gives to others that join.
  Gradient weights;
  std::uint64_t history = 0;
  std::vector<std::byte> ballast;

  // Reads the session.
  void look();
  std::vector<int> ids() const;
};

// Of all bits.
std::uint64_t hash_of(const Gradient& tensors);

class ElasticRun {
 public:
  ElasticRun(const ElasticPlan& plan, Trace& trace);

  // Runs it to its end. Returns what promise it broke, or nothing.
  std::string run();

  const ElasticPlan& plan() const noexcept { return plan_; }
  const std::vector<std::unique_ptr<ElasticLife>>& lives() const noexcept { return lives_; }
  // In the order of time.
  const std::vector<ElasticCommit>& commits() const noexcept { return commits_; }
  std::uint64_t events() const noexcept { return scheduler_.events(); }
  // Faults that have happened, and errors with which processes that live have ended.
  std::size_t happened() const noexcept { return happened_; }
  std::size_t errors() const noexcept;

 private:
  ElasticLife& at(int process) { return *lives_[static_cast<std::size_t>(process)]; }
  void start(bool is_misfit, Clock::duration after);
  void live(ElasticLife& own);
  Status train(ElasticLife& own);
  Status step(ElasticLife& own);
  ElasticOptions options_of(ElasticLife& own);
  Result<std::vector<StateArray>> state_of(ElasticLife& own);
  Status take_state(ElasticLife& own);
  void keep(ElasticLife& own, const Gradient& means);
  bool has_missed_others(const ElasticLife& own);

  void happen(const ElasticFault& fault);
  void kill(ElasticLife& own, bool loses_power);
  void freeze(ElasticLife& own, Clock::duration time);
  void arm_listening(Clock::duration time);
  void arm_sending(const ElasticFault& fault);
  void cut(std::vector<std::pair<int, int>> pairs, Clock::duration time);
  void disturb_paths(const ElasticFault& fault);
  void bury_the_dead();
  void end_late();
  void breaks(const std::string& text);
  void note(const std::string& text) { trace_.note(scheduler_.read(), text); }

  const ElasticPlan plan_;
  Trace& trace_;
  Dice dice_;
  Scheduler scheduler_;
  Network network_;
  Sockets sockets_;
  std::vector<std::unique_ptr<ElasticLife>> lives_;
  std::vector<ElasticCommit> commits_;
  std::size_t happened_ = 0;
  bool is_buried_ = false;
  std::string broken_;
};

// The first promise that was broken, in words, or nothing.
std::string broken_promise(const ElasticRun& run);

// Begins each epoch's ranks with the residuals that its members had after their last step before it, repeats
// its steps, and compares means and residuals with what its members have seen: to the last bit. Returns the
// first difference, or nothing. No simulation goes on after it in this one's place.
std::string differs_from_undisturbed(const ElasticRun& run);

}  // namespace deltawire::simulation
