// Replays the exchange patterns on one rank: what it encodes, sends, receives and decodes, in an order that
// is fixed beforehand. docs/guides/planner.md describes the pipeline.
#pragma once

#include <cstddef>
#include <vector>

#include "deltawire/planner.h"

namespace deltawire::planner {

// The resources that an exchange competes for are a rank's processor and its link. All times are in seconds
// from the step's start. Work comes in trains: equal pieces one after another; the times of the first and the
// last are known, and the others are evenly spaced between them.
//
// Every time is a maximum of sums of earlier times and of durations that only grow when a rate falls. So any
// fixed sequence of calls to Processor and Line is monotone: a faster link never gives a later end.
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
  explicit Line(const LinkRates& link) noexcept : link_(link) {}

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
  LinkRates link_;
  double up_free_at_ = 0;
  double down_free_at_ = 0;
  double delivered_at_ = 0;
  double sent_ = 0;
  double received_ = 0;
};

// A bucket's numbers of values, on the rank that owns most of it.
struct BucketLoad {
  double total = 0;
  double own = 0;                       // owned by the rank
  double largest_part = 0;              // encoded by one thread
  double ready = 0;                     // seconds
  double value_bytes = 4;               // per value, in the plain exchange
  const CodecFigures* codec = nullptr;  // of its messages
};

// The codec of each of a workload's buckets; they must outlive everything computed from this.
using CodecOfBucket = std::vector<const CodecFigures*>;

// `most_part`: no part has more values. `codecs`: empty for the plain exchange.
std::vector<BucketLoad> bucket_loads(const Workload& workload, int ranks, std::uint64_t most_part,
                                     const CodecOfBucket& codecs);

// The order in which a rank works. A round exchanges a piece of every owner's share at once.
struct Order {
  std::size_t together_from = 0;  // the buckets before this one are exchanged one by one, the others together
  std::size_t reduce_after = 0;   // how many rounds are pushed before the first mean is computed
  std::size_t apply_after = 0;    // how many means are computed before the first of others is applied
};

struct Replayed {
  double end = 0;             // of the exchange
  double coding_seconds = 0;  // processor time, all threads together
  double moving_seconds = 0;  // of messages
  double bytes_sent = 0;
  double bytes_received = 0;
};

// The orders that are worth trying; the choice doesn't depend on the link.
std::vector<Order> orders_of(const std::vector<BucketLoad>& loads, const Site& site, Pattern pattern);

Replayed replay(const std::vector<BucketLoad>& loads, const Site& site, Pattern pattern, const Order& order);

// As `ring`, without a codec.
Replayed replay_plain(const std::vector<BucketLoad>& loads, const Site& site, const Order& order);

// The number of values in the pattern's longest possible part.
std::uint64_t most_part_of(Pattern pattern) noexcept;

}  // namespace deltawire::planner
