// What a member at a meeting finds out about others that it has not heard of: threads call at their doors, so
// that nobody waits for the silent one after the other.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "elastic/decision.h"
#include "elastic/meeting_context.h"

namespace deltawire::elastic {

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

}  // namespace deltawire::elastic
