// Reads the other ranks' control messages, and passes each to the part that handles it.
#pragma once

#include "transport/mesh/failure_judge.h"

namespace deltawire {

class ControlReader {
 public:
  // All of them must outlive it.
  ControlReader(Peers& peers, Driver& driver, StepSequence& steps, Consensus& consensus,
                WaitAnnouncer& announcer, Membership& membership, FailureJudge& judge) noexcept
      : peers_(peers),
        driver_(driver),
        steps_(steps),
        consensus_(consensus),
        announcer_(announcer),
        membership_(membership),
        judge_(judge) {}

  // Handles the peer's messages. If an allocation fails, no message is lost: it is handled again, as a whole,
  // a little later.
  void read(Peer& peer);
  // Handles all peers' messages, and counts the ballots.
  void read_all();
  // Counts the ballots if all ranks have voted. But this rank may have been frozen just before it sent its
  // vote, or read the last one, and the others may have continued without it. So it sends its vote, reads all
  // messages, and only then counts. A rank that gives up on it after this has its vote.
  void count_ballots();
  // Called by the I/O thread, the only one that is sure to run: once time is up, continues without the ranks
  // that have not sent their rounds or verdicts.
  void give_up_waiting();

 private:
  void on_message(Peer& peer, const ControlMessage& message);
  void on_end(Peer& peer);
  void on_waiting(Peer& peer, const Waiting& waiting);
  void on_start(Peer& peer, const Start& start);
  void on_goodbye(Peer& peer, const Goodbye& goodbye);
  void on_abort(Peer& peer, const Abort& abort);

  Peers& peers_;
  Driver& driver_;
  StepSequence& steps_;
  Consensus& consensus_;
  WaitAnnouncer& announcer_;
  Membership& membership_;
  FailureJudge& judge_;
};

}  // namespace deltawire
