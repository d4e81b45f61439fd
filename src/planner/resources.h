// What an exchange takes turns for: a rank's processor and its line. Everything is in seconds from the step's
// start, and comes in trains: so many equal pieces one after another, of which the first's and the last's
// times are known and the others lie evenly between.
//
// Every time is a maximum of sums of earlier times and of durations that only grow when a rate falls. So
// whatever is made of these two classes in a fixed order is monotone: a faster line is never a later end.
#pragma once

#include "deltawire/planner.h"

namespace deltawire::planner {

struct Train {
  double first = 0;
  double last = 0;

  static Train at(double moment) noexcept { return {moment, moment}; }
};

// One thread's worth of work at a time, in the order of the calls. Counts what it did.
class Processor {
 public:
  // `share` of a core: work takes 1 / share as long.
  explicit Processor(double share) noexcept : share_(share) {}

  // Does `count` pieces of work that come as `inputs` do, `seconds` of processor time each; when they are
  // done.
  Train work(const Train& inputs, double count, double seconds) noexcept;

  double free_at() const noexcept { return free_at_; }
  double done_seconds() const noexcept { return done_; }  // processor time

 private:
  double share_;
  double free_at_ = 0;
  double done_ = 0;
};

// Both directions of a rank's connection. All ranks do alike: while this one sends a train, as many messages
// leave for it, at the same moments.
class Line {
 public:
  explicit Line(const Link& link) noexcept : link_(link) {}

  struct Lengths {
    double out = 0;  // bytes of a message of this rank
    double in = 0;   // of one for it
  };

  // Sends `count` messages that are made as `made` says, and receives as many; when those are here.
  Train carry(const Train& made, double count, const Lengths& bytes) noexcept;

  // When all that this rank has sent is with the others, who may have more to wait for than it has itself.
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
