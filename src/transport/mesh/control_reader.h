// Reads what the other ranks say on their control streams, and takes it to whom it concerns.
#pragma once

#include "transport/mesh/failure_judge.h"

namespace deltawire {

class ControlReader {
 public:
  // All of them outlive it.
  ControlReader(Peers& peers, Driver& driver, StepSequence& steps, Consensus& consensus,
                WaitAnnouncer& announcer, Membership& membership, FailureJudge& judge) noexcept
      : peers_(peers),
        driver_(driver),
        steps_(steps),
        consensus_(consensus),
        announcer_(announcer),
        membership_(membership),
        judge_(judge) {}

  // Heeds what has come from the peer. Where memory fails, nothing that it has said is lost: it is heeded
  // again, wholly, a little later.
  void read(Peer& peer);
  // From all, and counts the ballots.
  void read_all();
  // Counts them if all have voted. But a rank that was frozen may be about to send its vote, or to read the
  // last one, long after the others have gone on without it. So its vote goes out, it reads what all have
  // said by now, and only then it counts. A rank that gives it up from here on has its vote.
  void count_ballots();
  // Of the I/O thread, which alone is sure to run: where time is up for those that have not said what they
  // know, or where they stand, goes on without them.
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
