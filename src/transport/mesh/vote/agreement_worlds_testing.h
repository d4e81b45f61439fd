// Every state ("world") that a small mesh can reach: each order of messages, deaths, departures, freezes and
// splits of its network. It explores the Agreement itself, not a model of it: its states are numbered as they
// are found, so that a world is a short row of numbers.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "transport/mesh/numbered_testing.h"
#include "transport/mesh/vote/agreement.h"

namespace deltawire::agreement_worlds {

// A message from one rank to another; the last one of a rank that leaves normally has no content.
struct Letter {
  bool farewell = false;
  std::uint64_t decided = 0;
  AgreementMessage message;

  bool operator==(const Letter&) const = default;
};

struct Limits {
  int world = 3;
  int crashes = 1;           // ranks that die, the highest first: all ranks are alike
  int ballots = 1;           // cast by each rank
  bool may_leave = false;    // a rank without an open ballot may leave in good order
  bool may_abort = false;    // the lowest rank may fail the mesh by itself
  int false_suspicions = 0;  // how often a settling rank gives up on ranks that would still have answered
  bool splits = false;       // the lowest rank votes unlike the others
  int near_side = 0;         // how many of the lowest ranks may be cut off from the rest, for good
  bool freezes = false;      // the lowest rank may freeze once, anywhere, and wakes up later or never
};

constexpr int kWorldMost = 4;

struct World {
  enum class Sleep : std::uint8_t { kNotYet, kFrozen, kWoken };  // of the lowest rank

  std::array<Id, kWorldMost> rank{};
  std::array<std::vector<Id>, kWorldMost * kWorldMost> letters;  // from * kWorldMost + to
  std::array<bool, kWorldMost> crashed{};
  std::array<bool, kWorldMost> left{};
  std::array<bool, kWorldMost * kWorldMost> noticed{};  // [by * kWorldMost + whom]
  int suspicions = 0;
  bool is_cut = false;
  Sleep sleep = Sleep::kNotYet;
  std::array<std::uint8_t, kWorldMost>
      due{};  // by rank: what the lowest rank finds when it wakes up, and reads before it counts

  bool lives(int r) const { return !crashed[at(r)] && !left[at(r)]; }
  bool acts(int r) const { return lives(r) && !(r == 0 && sleep == Sleep::kFrozen); }
  static std::size_t at(int r) { return static_cast<std::size_t>(r); }
  static std::size_t between(int from, int to) { return at(from * kWorldMost + to); }
};

class Explorer {
 public:
  explicit Explorer(const Limits& limits) : limits_(limits) {}

  // Visits every reachable world; returns how many there are.
  std::size_t run() {
    World first;
    for (int r = 0; r < limits_.world; ++r) first.rank[World::at(r)] = number(Agreement(r, limits_.world), r);
    push(first);
    while (!open_.empty() && !::testing::Test::HasFailure()) {
      const World world = std::move(open_.back());
      open_.pop_back();
      if (!visit(world) && !time_passes(world)) check_end(world);
    }
    return seen_.size();
  }
  std::size_t ends() const { return ends_; }
  std::size_t local_states() const { return states_.size(); }

 private:
  Id number(const Agreement& state, int r) {
    std::uint64_t hash = (state.decided() * 8 + static_cast<std::uint64_t>(state.outcome())) * 4 +
                         (state.failed() ? 2 : 0) + (state.failed() && state.settled() ? 1 : 0);
    for (int i = 0; i < limits_.world; ++i) hash = hash * 2 + (state.ballot().has_vote_of(i) ? 1 : 0);
    const auto unheard = static_cast<std::uint64_t>(state.unheard().bytes()[0]);
    return states_.id_of(state, (hash * 256 + unheard) * kWorldMost + static_cast<std::uint64_t>(r));
  }
  Id number(const Letter& letter) { return letters_.id_of(letter, letter.farewell ? 1 : 0); }
  const Agreement& state(const World& world, int r) const { return states_[world.rank[World::at(r)]]; }
  bool has_settled(const World& world, int r) const {
    return state(world, r).failed() && state(world, r).settled();
  }
  bool are_apart(const World& world, int a, int b) const {
    return world.is_cut && (a < limits_.near_side) != (b < limits_.near_side);
  }
  template <class Visit>
  void each_but(int r, Visit visit) const {
    for (int other = 0; other < limits_.world; ++other) {
      if (other != r) visit(other);
    }
  }

  // The rank does something; its messages go to all others.
  template <class Act>
  World after(World world, int r, Act act) {
    Agreement state = states_[world.rank[World::at(r)]];
    act(state);
    for (const AgreementMessage& message : state.outbox()) {
      const Id letter = number(Letter{false, 0, message});
      each_but(r, [&](int to) {
        if (world.lives(to) && !are_apart(world, r, to)) {
          world.letters[World::between(r, to)].push_back(letter);
        }
      });
    }
    state.outbox().clear();
    world.rank[World::at(r)] = number(state, r);
    return world;
  }

  void deliver(Agreement& state, int from, const Letter& letter) {
    if (letter.farewell) {
      state.on_left(from, letter.decided);
    } else {
      EXPECT_TRUE(state.receive(from, letter.message));
    }
  }

  // A settled rank sends nothing any more; it only notes the others' verdicts, whose order does not matter.
  void read_the_rest(World& world, int r) {
    Agreement state = states_[world.rank[World::at(r)]];
    each_but(r, [&](int from) {
      auto& letters = world.letters[World::between(from, r)];
      for (const Id letter : letters) deliver(state, from, letters_[letter]);
      letters.clear();
      if (!world.crashed[World::at(from)] || are_apart(world, from, r)) return;
      world.noticed[World::between(r, from)] = true;
      state.on_gone(from);
    });
    EXPECT_TRUE(state.outbox().empty());
    world.rank[World::at(r)] = number(state, r);
  }

  void push(World world) {
    std::vector<std::uint16_t> row;
    for (int r = 0; r < limits_.world; ++r) {
      if (world.lives(r) && has_settled(world, r)) read_the_rest(world, r);
      const bool gone = !world.lives(r);
      row.push_back(gone ? Id{0xFFFF} : world.rank[World::at(r)]);
      row.push_back(static_cast<Id>(world.crashed[World::at(r)] ? 1 : 0));
      if (world.left[World::at(r)]) row.push_back(static_cast<Id>(state(world, r).decided()));
    }
    for (int from = 0; from < limits_.world; ++from) {
      for (int to = 0; to < limits_.world; ++to) {
        auto& letters = world.letters[World::between(from, to)];
        if (!world.lives(to)) letters.clear();
        row.insert(row.end(), letters.begin(), letters.end());
        row.push_back(world.noticed[World::between(to, from)] ? 0xFFFE : 0xFFFF);
      }
      row.push_back(world.due[World::at(from)]);
    }
    row.push_back(static_cast<Id>(world.suspicions));
    row.push_back(static_cast<Id>((world.is_cut ? 4 : 0) + static_cast<int>(world.sleep)));
    std::uint64_t hash = 0;
    for (const Id each : row) {
      hash = (hash ^ each) * 0x9E3779B97F4A7C15;
      hash ^= hash >> 29;
    }
    if (seen_.insert(hash).second) open_.push_back(std::move(world));
  }

  // Pushes all worlds that can come next; false if none must.
  bool visit(const World& world) {
    // What different ranks do next commutes. So if one rank already has every message that it can ever get,
    // and nothing more can happen to any rank, only this rank's next steps need to be explored.
    for (int r = 0; r < limits_.world; ++r) {
      if (moves_alone(world, r) && deliveries(world, r)) return true;
    }
    bool goes_on = false;
    for (int r = 0; r < limits_.world; ++r) {
      if (!world.acts(r)) continue;
      goes_on = deliveries(world, r) || goes_on;
      goes_on = choices(world, r) || goes_on;
    }
    crash(world);
    cut(world);
    sleep(world);
    return goes_on;
  }

  bool nothing_can_befall(const World& world) const {
    int crashed = 0;
    for (const bool each : world.crashed) crashed += each ? 1 : 0;
    return crashed == limits_.crashes && world.suspicions == limits_.false_suspicions &&
           (world.is_cut || limits_.near_side == 0) &&
           (world.sleep == World::Sleep::kWoken || !limits_.freezes);
  }

  bool moves_alone(const World& world, int r) const {
    if (!world.acts(r) || !state(world, r).failed() || !nothing_can_befall(world)) return false;
    for (int from = 0; from < limits_.world; ++from) {
      if (from == r || !world.letters[World::between(from, r)].empty()) continue;
      if (world.lives(from) && !has_settled(world, from) && !are_apart(world, from, r)) return false;
    }
    return true;
  }

  bool deliveries(const World& world, int to) {
    bool any = false;
    each_but(to, [&](int from) {
      const std::size_t channel = World::between(from, to);
      if (world.noticed[World::between(to, from)]) return;
      if (!world.letters[channel].empty()) {
        any = true;
        World next = world;
        const Letter letter = letters_[next.letters[channel].front()];
        next.letters[channel].erase(next.letters[channel].begin());
        if (to == 0 && next.due[World::at(from)] > 0) --next.due[World::at(from)];
        push(after(std::move(next), to, [&](Agreement& state) { deliver(state, from, letter); }));
      }
      if (world.crashed[World::at(from)] && !are_apart(world, from, to)) {
        // It sees the end of the connection, perhaps with the last letters lost.
        any = true;
        World next = world;
        next.letters[channel].clear();
        next.noticed[World::between(to, from)] = true;
        if (to == 0) next.due[World::at(from)] = 0;
        push(after(std::move(next), to, [&](Agreement& state) {
          state.on_gone(from);
          state.fail(RankSet(limits_.world));
        }));
      }
    });
    return any;
  }

  // What a rank may do without a message. True if it must.
  bool choices(const World& world, int r) {
    const Agreement& own = state(world, r);
    const bool open = own.outcome() == Agreement::Outcome::kOpen;
    if (!own.failed() && !open && own.outcome() != Agreement::Outcome::kSplit) {
      if (own.decided() < static_cast<std::uint64_t>(limits_.ballots)) {
        const std::uint64_t digest = limits_.splits && r == 0 ? 1 : 2;
        push(after(world, r, [&](Agreement& s) { s.cast({own.decided(), digest}); }));
      }
      if (limits_.may_leave) leave(world, r);
    }
    const bool has_looked = r != 0 || world.due == decltype(world.due){};
    const bool counts = own.may_count() && has_looked;
    if (counts) push(after(world, r, [](Agreement& s) { s.count(); }));
    const bool disagrees = own.outcome() == Agreement::Outcome::kSplit;
    const bool waits_in_vain =
        open && own.ballot().first_missing() >= 0 && world.left[World::at(own.ballot().first_missing())];
    if (!own.failed() && (disagrees || waits_in_vain || (limits_.may_abort && r == 0))) {
      push(after(world, r, [&](Agreement& s) { s.fail(RankSet(limits_.world)); }));
    }
    const bool waits = open && !own.failed() && !own.may_count() && (world.is_cut || is_frozen(world));
    if (!own.failed() && (world.is_cut || is_frozen(world))) meet_deadline(world, r);
    if (world.suspicions < limits_.false_suspicions && own.failed() && !own.settled()) {
      World next = world;
      ++next.suspicions;
      push(after(std::move(next), r, [](Agreement& s) { (void)s.give_up_waiting(); }));
    }
    return counts || waits;
  }

  static bool is_frozen(const World& world) { return world.sleep == World::Sleep::kFrozen; }

  // A wait is too long: for a rank that answers nothing, or for one that answers and waits for that one. A
  // deadline is longer than any message that a frozen rank sent before is in flight.
  void meet_deadline(const World& world, int r) {
    if (!world.is_cut && !world.letters[World::between(0, r)].empty()) return;
    push(after(world, r, [&](Agreement& s) { s.fail(RankSet(limits_.world)); }));
    each_but(r, [&](int silent) {
      if (!are_apart(world, r, silent) && (silent != 0 || !is_frozen(world))) return;
      RankSet ranks(limits_.world);
      ranks.add(silent);
      push(after(world, r, [&](Agreement& s) { s.fail(ranks); }));
    });
  }

  // All letters have arrived, and ranks that wait for another give up. Ranks that have given up on each other
  // may all be waiting for a verdict of another one.
  bool time_passes(const World& world) {
    bool any = false;
    const bool may = limits_.false_suspicions > 0 || limits_.near_side > 0 || limits_.freezes;
    for (int r = 0; may && r < limits_.world; ++r) {
      if (!world.acts(r) || !state(world, r).failed() || state(world, r).settled()) continue;
      any = true;
      push(after(world, r, [](Agreement& s) { (void)s.give_up_waiting(); }));
    }
    return any;
  }

  void leave(const World& world, int r) {
    World next = world;
    const Id farewell = number(Letter{true, state(world, r).decided(), Verdict{}});
    each_but(r, [&](int to) {
      if (next.lives(to) && !are_apart(world, r, to)) next.letters[World::between(r, to)].push_back(farewell);
    });
    next.left[World::at(r)] = true;
    push(std::move(next));
  }

  void crash(const World& world) {
    int victim = limits_.world - 1;
    while (victim >= 0 && world.crashed[World::at(victim)]) --victim;
    if (limits_.world - 1 - victim >= limits_.crashes || victim < 0 || world.left[World::at(victim)]) return;
    World next = world;
    next.crashed[World::at(victim)] = true;
    push(std::move(next));
  }

  // From here on nothing arrives from the other side, not even letters in flight.
  void cut(const World& world) {
    if (limits_.near_side == 0 || world.is_cut) return;
    World next = world;
    next.is_cut = true;
    for (int from = 0; from < limits_.world; ++from) {
      each_but(from, [&](int to) {
        if (are_apart(next, from, to)) next.letters[World::between(from, to)].clear();
      });
    }
    push(std::move(next));
  }

  void sleep(const World& world) {
    if (!limits_.freezes || !world.lives(0) || world.sleep == World::Sleep::kWoken) return;
    World next = world;
    if (!is_frozen(world)) {
      next.sleep = World::Sleep::kFrozen;
      return push(std::move(next));
    }
    next.sleep = World::Sleep::kWoken;
    each_but(0, [&](int from) {
      const bool end = next.crashed[World::at(from)] && !next.noticed[World::between(0, from)];
      const std::size_t due = next.letters[World::between(from, 0)].size() + (end ? 1 : 0);
      next.due[World::at(from)] = static_cast<std::uint8_t>(due);
    });
    push(std::move(next));
  }

  // Nothing is in flight any more: every rank that has failed has settled, unless there is nothing to settle.
  void check_end(const World& world) {
    ++ends_;
    bool failed = false;
    for (int r = 0; r < limits_.world; ++r) failed = failed || (world.lives(r) && state(world, r).failed());
    if (!failed) return;
    for (int r = 0; r < limits_.world; ++r) {
      if (!world.acts(r)) continue;
      const Agreement& own = state(world, r);
      if (limits_.splits) {
        EXPECT_EQ(own.decided(), 0u) << "a ballot counts that was not unanimous";
      }
      if (world.is_cut && !own.failed()) continue;  // nothing has failed on its side
      EXPECT_TRUE(own.failed() && own.settled()) << "rank " << r << " waits forever";
      EXPECT_NE(own.outcome(), Agreement::Outcome::kOpen);
      EXPECT_FALSE(own.unheard().has(r));
      const bool takes_time = limits_.false_suspicions > 0 || world.is_cut || limits_.freezes;
      EXPECT_TRUE(takes_time || own.concluded()) << "rank " << r << " waits for words of another";
      each_but(r, [&](int other) {
        if (!world.crashed[World::at(other)]) check_claim(world, r, other);
      });
    }
  }

  // A living rank with another verdict is among those that a rank has not heard. And verdicts may only differ
  // if ranks can't hear each other, or give up on one that lives.
  void check_claim(const World& world, int r, int other) {
    const bool agrees = state(world, r).decided() == state(world, other).decided();
    const bool heard = !state(world, r).unheard().has(other);
    EXPECT_TRUE(agrees || !heard) << "rank " << r << " claims rank " << other << ", which stands elsewhere";
    const bool awake = world.acts(r) && (world.acts(other) || world.left[World::at(other)]);
    if (limits_.false_suspicions > 0 || are_apart(world, r, other) || !awake) return;
    if (limits_.freezes && limits_.crashes > 0) return;  // two failures at a time
    EXPECT_TRUE(agrees) << "torn: ranks " << r << " and " << other;
    EXPECT_TRUE(heard) << "rank " << r << " has not heard rank " << other;
  }

  const Limits limits_;
  Numbered<Agreement> states_;
  Numbered<Letter> letters_;
  std::vector<World> open_;
  std::unordered_set<std::uint64_t> seen_;
  std::size_t ends_ = 0;
};

}  // namespace deltawire::agreement_worlds
