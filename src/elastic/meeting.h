// How the members of an elastic session agree on the next view: each calls at the door of the member with the
// lowest id that answers; whoever finds none hosts the meeting (`Hosting`).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "elastic/decision.h"
#include "elastic/meeting_context.h"

namespace deltawire::elastic {

// What a member at a meeting finds out about others that it has not heard of: threads call at their doors, so
// that nobody waits for the silent one after the other.
// Thread rule: one thread.
class Probes {
 public:
  // `job`: whose members count; who answers for another one is gone. The context must outlive it.
  Probes(MeetingContext& context, std::uint64_t job)
      : context_(context), job_(job), shared_(std::make_shared<Shared>()) {}

  // Asks the member, or asks it again after a while.
  void ask(const Member& member);
  // What was found out of all that were asked.
  std::map<int, Finding> findings() const;
  // Who has answered on a line that nobody has taken yet.
  Ids answered() const;
  // The line on which it has answered, for the caller alone. Waits that long for it; null: it has not
  // answered yet, or is gone.
  std::shared_ptr<PeerLine> line_to(const Member& member, Clock::duration within);
  // A line to it was lost, for this reason. Only who was silent is gone: whoever hung up may call again, and
  // answers at once or not.
  void note(int id, const Error& error);

 private:
  struct Asked {
    Deadline again{};  // when it may be asked
    std::optional<Finding> found;
    std::shared_ptr<PeerLine> line;  // on which it has answered
  };
  // With the threads, which may outlive a meeting.
  struct Shared {
    Mutex mutex;
    Condition came;
    std::map<int, Asked> asked DELTAWIRE_GUARDED_BY(mutex);
  };

  static void keep(Shared& shared, int id, Finding found, std::shared_ptr<PeerLine> line);

  MeetingContext& context_;
  const std::uint64_t job_;
  const std::shared_ptr<Shared> shared_;
};

// The next view, and what its members need to begin in it.
struct Agreement {
  NextView next;
  ResidualShares shares;               // if next.shares; without this member's own on others than the host
  std::unique_ptr<Listener> listener;  // the host's, at the meeting place; null on others
  // Between the host and the others; kept until all are connected, because who hangs up is taken for dead.
  std::vector<std::shared_ptr<PeerLine>> lines;
};

// Of an error that ends a session, with the epoch that it is about.
struct Ended {
  Error error;
  std::optional<std::uint32_t> epoch;
};
template <class T>
using OrEnded = tl::expected<T, Ended>;

tl::unexpected<Ended> ended(Error error);
template <class T>
tl::unexpected<Ended> ended(const Result<T>& result) {
  return ended(result.error());
}
// kExcluded, of a member that another one answers so.
tl::unexpected<Ended> excluded(std::optional<std::uint32_t> epoch, const std::string& why);

// One meeting of one member. Thread rule: one thread.
class Meeting {
 public:
  // Both must outlive it.
  Meeting(MemberState& state, MeetingContext& context)
      : state_(state), context_(context), begun_at_(MachineClock::now()), probes_(context, state.job) {}

  // The next view. kExcluded, kNoQuorum, kAborted (the session was closed meanwhile).
  OrEnded<Agreement> agree();
  // Asks all members, before this one gives up: its time may be over because it was frozen. kExcluded if they
  // went on without it.
  OrEnded<void> check_included();

  MemberState& state() { return state_; }
  MeetingContext& context() { return context_; }
  Probes& probes() { return probes_; }
  const Ids& given_up() const { return given_up_; }
  Clock::duration passed() const { return MachineClock::now() - begun_at_; }
  bool is_over() const { return passed() > context_.limit; }
  // The meeting's clock stood still for that time.
  void stand_still(Clock::duration time) { begun_at_ += time; }

 private:
  // Nothing: look for the host anew.
  using OrNothing = OrEnded<std::optional<Agreement>>;

  // All members that this one knows of, but for itself and those that left.
  std::vector<Member> others() const;
  // Whether one with a lower id, which should host, has answered meanwhile; asks them again, who may wake up.
  bool answers_below(int id);
  OrNothing attend(const Member& member, const std::shared_ptr<PeerLine>& line);
  bool is_out_of_patience(Clock::duration waited, bool is_hosted) const;
  struct Visit;
  OrEnded<std::optional<Agreement>> take(Visit& visit, const Message& message);
  // Who waits here would wait for the wrong one.
  void redirect(const Member& host) {
    for (const auto& peer : context_.reception->take_callers()) (void)peer->line->say(Again{});
    for (const auto& peer : context_.reception->take_joiners()) (void)peer->line->say(Elsewhere{host.door});
  }

  MemberState& state_;
  MeetingContext& context_;
  Deadline begun_at_;
  Ids given_up_;  // members that answer but don't come
  Probes probes_;
};

}  // namespace deltawire::elastic
