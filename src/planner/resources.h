// The resources that an exchange competes for: a rank's processor and its link. All times are in seconds from
// the step's start. Work comes in trains: equal pieces one after another; the times of the first and the last
// are known, and the others are evenly spaced between them.
//
// Every time is a maximum of sums of earlier times and of durations that only grow when a rate falls. So any
// fixed sequence of calls to these two classes is monotone: a faster link never gives a later end.
#pragma once

#include "deltawire/planner.h"

namespace deltawire::planner {

struct Train {
  double first = 0;
  double last = 0;

  static Train at(double moment) noexcept { return {moment, moment}; }
};

// Does one thread's work at a time, in the order of the calls.
class Processor {
 public:
  // `share` of a core: work takes 1 / share as long.
  explicit Processor(double share) noexcept : share_(share) {}

  // Does `count` pieces of work that arrive as `inputs`, each with `seconds` of processor time; returns when
  // they are done.
  Train work(const Train& inputs, double count, double seconds) noexcept;

  double free_at() const noexcept { return free_at_; }

 private:
  double share_;
  double free_at_ = 0;
};

// Both directions of a rank's connection. All ranks behave alike: while this one sends a train, the others
// send it as many messages, at the same times.
class Line {
 public:
  explicit Line(const Link& link) noexcept : link_(link) {}

  struct Lengths {
    double out = 0;  // bytes of a message of this rank
    double in = 0;   // of one for it
  };

  // Sends `count` messages that are ready as `made` says, and receives as many; returns when those have
  // arrived.
  Train carry(const Train& made, double count, const Lengths& bytes) noexcept;

  // When all that this rank has sent has arrived at the others, which may be later than what it receives.
  double delivered_at() const noexcept { return delivered_at_; }
  double bytes_sent() const noexcept { return sent_; }
  double bytes_received() const noexcept { return received_; }

 private:
  Link link_;
  double up_free_at_ = 0;
  double down_free_at_ = 0;
  double delivered_at_ = 0;
  double sent_ = 0;
  double received_ = 0;
};

}  // namespace deltawire::planner
