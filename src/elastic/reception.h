// The door that each member of an elastic session keeps open, and the thread that answers there: whether this
// process is alive, and in which epoch. It holds the lines of members that want to meet until this one comes
// to the meeting, and those of processes that want to join.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "deltawire/door.h"
#include "elastic/messages.h"
#include "elastic/peer_line.h"
#include "elastic/state_transfer.h"
#include "elastic/tasks.h"

namespace deltawire::elastic {

// Somebody who waits at this member's door for the session to begin, for a meeting, or to join.
struct PendingPeer {
  std::shared_ptr<PeerLine> line;
  Message said;            // Found, Meet or Join
  bool has_state = false;  // of a process that joins
};
using PendingPeers = std::vector<std::shared_ptr<PendingPeer>>;

// "<one> has <...>, and <other> <...>": the settings that they don't share.
std::string differing_settings(const std::string& one, const std::string& its, const std::string& other,
                               std::string others);

// Meanwhile they are told that this member moves states, so that their meeting's clock stands still. Their
// lines must outlive it.
std::deque<Busy> keep_waiting(const PendingPeers& peers);

// Thread rule: any thread may call any member.
class Reception {
 public:
  // `settings`: must be equal on all members. `within`: for a chunk of the state that this member gives.
  // Errors: kSystem.
  static Result<std::unique_ptr<Reception>> open(std::unique_ptr<Door> door, std::string settings,
                                                 Clock::duration within);
  ~Reception() { close(); }

  const Endpoint& address() const { return address_; }
  // This process runs in that view from now on. Who waits here and doesn't belong is told. When it returns,
  // nobody reads what was offered.
  void enter(std::uint64_t job, int id, const View& view);
  // This process will be that member; the others may meet again while it connects, and must find it alive.
  // Until it enters a view, it says that it meets.
  void introduce(std::uint64_t job, int id, const View& known) {
    const MutexLock lock(mutex_);
    place_ = Place{job, id, true, known};
  }
  // It will not be that member after all; who waits for it shall look again.
  void withdraw();
  // It looks for the next view from now on.
  void meet() {
    const MutexLock lock(mutex_);
    meets_ = true;
  }
  // Processes that join can take this state here until the next view begins.
  void offer(std::shared_ptr<const StateSender> state) {
    const MutexLock lock(mutex_);
    offer_ = std::move(state);
  }
  // Those who have come to found the session or to meet, and are still there; the lines are the taker's.
  PendingPeers take_callers() { return take(&Reception::callers_); }
  // Those who want to join, likewise.
  PendingPeers take_joiners() { return take(&Reception::joiners_); }
  // Whether a member of the view has called to meet, and waits.
  bool is_called_by(const View& view);
  // Whether somebody waits to join.
  bool has_joiners() {
    const MutexLock lock(mutex_);
    return !joiners_.empty();
  }
  Left left() {
    const MutexLock lock(mutex_);
    return left_;
  }
  // Of those that left, only members of the view matter from now on.
  void forget_left(const View& view);
  // Hangs up on everybody; when it returns, no thread of this runs, whoever called it first.
  void close();

 private:
  struct Fresh {
    std::shared_ptr<PeerLine> line;
    Deadline until;
  };

  Reception(std::unique_ptr<Door> door, std::string settings, Clock::duration within);

  PendingPeers take(PendingPeers Reception::* from);
  void run();
  // Whether the line is still to be heard.
  bool hear(Fresh& fresh, Deadline now);
  // Keeps the peer, and says so, or answers it.
  bool receive(const std::shared_ptr<PendingPeer>& peer);
  // The answer; nothing for a peer that was kept.
  std::optional<Message> place_peer(const std::shared_ptr<PendingPeer>& peer) DELTAWIRE_REQUIRES(mutex_);
  std::optional<Message> answer_to(const Join& join) DELTAWIRE_REQUIRES(mutex_);
  void give(const std::shared_ptr<PeerLine>& line, const Take& first);

  const std::string settings_;
  const Clock::duration within_;
  std::unique_ptr<Door> door_;  // of the thread
  const Endpoint address_;
  std::deque<Fresh> fresh_;                    // likewise
  std::vector<std::weak_ptr<PeerLine>> kept_;  // likewise
  Mutex mutex_;
  PendingPeers callers_ DELTAWIRE_GUARDED_BY(mutex_);
  PendingPeers joiners_ DELTAWIRE_GUARDED_BY(mutex_);
  Left left_ DELTAWIRE_GUARDED_BY(mutex_);
  std::optional<Place> place_ DELTAWIRE_GUARDED_BY(mutex_);
  bool meets_ DELTAWIRE_GUARDED_BY(mutex_) = true;
  std::shared_ptr<const StateSender> offer_ DELTAWIRE_GUARDED_BY(mutex_);
  Ending ends_;
  Tasks giving_;
  std::optional<MachineThread> thread_ DELTAWIRE_GUARDED_BY(mutex_);  // taken by who closes first
  Ending is_closed_;
};

}  // namespace deltawire::elastic
