// The exchange patterns, replayed by one rank: what it encodes, sends, receives and decodes, in an order that
// is fixed beforehand. docs/guides/planner.md has the pipeline in words.
#pragma once

#include <cstddef>
#include <vector>

#include "deltawire/planner.h"

namespace deltawire::planner {

// A bucket, as the rank that owns most of it sees it. Values.
struct Share {
  double total = 0;
  double own = 0;                       // that the rank owns
  double largest_part = 0;              // which one thread codes
  double ready = 0;                     // seconds
  double value_bytes = 4;               // in plain
  const CodecFigures* codec = nullptr;  // its messages are made by
};

// The codec of each of a workload's buckets; they live as long as what is made of this.
using CodecOfBucket = std::vector<const CodecFigures*>;

// `most_part`: no part has more values. `codecs`: empty in plain.
std::vector<Share> shares_of(const Workload& workload, int ranks, std::uint64_t most_part,
                             const CodecOfBucket& codecs);

// In which order a rank works. Rounds are what is exchanged at once: a piece of every owner's share.
struct Order {
  std::size_t together_from = 0;  // the buckets before this one are exchanged one by one, the others together
  std::size_t reduce_after = 0;   // rounds that are pushed ahead before a mean is formed
  std::size_t apply_after = 0;    // means that are formed ahead before others' are applied
};

struct Replayed {
  double end = 0;             // of the exchange
  double coding_seconds = 0;  // processor time, all threads together
  double moving_seconds = 0;  // of messages
  double bytes_sent = 0;
  double bytes_received = 0;
};

// The orders that are worth a trial: a choice that does not look at the link.
std::vector<Order> orders_of(const std::vector<Share>& shares, const Site& site, Pattern pattern);

Replayed replay(const std::vector<Share>& shares, const Site& site, Pattern pattern, const Order& order);

// As `ring`, and nothing is coded.
Replayed replay_plain(const std::vector<Share>& shares, const Site& site, const Order& order);

// Values of the longest part that the pattern makes.
std::uint64_t most_part_of(Pattern pattern) noexcept;

}  // namespace deltawire::planner
