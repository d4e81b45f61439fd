// Replays the exchange patterns on one rank: what it encodes, sends, receives and decodes, in an order that
// is fixed beforehand. docs/guides/planner.md describes the pipeline.
#pragma once

#include <cstddef>
#include <vector>

#include "deltawire/planner.h"

namespace deltawire::planner {

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
