#include "planner/exchange_models.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "base/lanes.h"
#include "reduce/patterns/owners.h"
#include "reduce/patterns/piece_window.h"
#include "reduce/patterns/ring_plan.h"

namespace deltawire::planner {

// Evenly spaced jobs on one server: the last ends at the latest of three times (the server was busy, the
// first job was late, the last job was late), because the jobs in between depend linearly on their number.
Train Processor::work(const Train& inputs, double count, double seconds) noexcept {
  assert(inputs.first <= inputs.last && seconds >= 0 && share_ > 0);
  if (count <= 0) return {std::max(free_at_, inputs.first), std::max(free_at_, inputs.last)};
  const double each = seconds / share_;
  const double first = std::max(free_at_, inputs.first) + each;
  const double last = std::max(first + (count - 1) * each, inputs.last + each);
  assert(first <= last && last >= free_at_);
  free_at_ = last;
  return {first, last};
}

Train Line::carry(const Train& made, double count, const Lengths& bytes) noexcept {
  assert(made.first <= made.last && bytes.out >= 0 && bytes.in >= 0);
  if (count <= 0) return made;
  const double out = bytes.out / link_.up_bytes_per_second;
  const double in = bytes.in / link_.down_bytes_per_second;
  // The other ranks' messages to this one are sent at the same times as its own, but have another length.
  const double peer_out = bytes.in / link_.up_bytes_per_second;
  const double first_start = std::max(up_free_at_, made.first);
  const double last_start = std::max(first_start + (count - 1) * out, made.last);
  up_free_at_ = last_start + out;
  delivered_at_ =
      up_free_at_ + link_.latency_seconds + std::max(0.0, bytes.out / link_.down_bytes_per_second - out);
  const double slower = std::max(in, peer_out);
  const double first = std::max(down_free_at_ + in, first_start + link_.latency_seconds + slower);
  const double last = std::max(first + (count - 1) * in, last_start + link_.latency_seconds + slower);
  assert(first <= last && last >= down_free_at_);
  down_free_at_ = last;
  sent_ += count * bytes.out;
  received_ += count * bytes.in;
  return {first, last};
}

namespace {

constexpr std::size_t kMostSplits = 8;  // tried, into buckets exchanged one by one and the rest together
constexpr double kMostTurns = 2048;     // of a step, in which its pieces are replayed

// A rank's pieces of a bucket: of its share or, in `gather`, of all values.
double pieces_of(const BucketLoad& load, Pattern pattern) noexcept {
  const double values = pattern == Pattern::kGather ? load.total : load.own;
  return std::max(1.0, std::ceil(values / static_cast<double>(most_part_of(pattern))));
}

// A rank's operations in the pipeline.
class Rank {
 public:
  explicit Rank(const Site& site)
      : site_(site),
        processor_(std::min(1.0, site.machine.cores / site.machine.coding_threads)),
        line_(site.link) {}

  double peers() const noexcept { return site_.ranks - 1; }

  Train encode(const Train& inputs, double count, const BucketLoad& of, double values) noexcept {
    return code(of.codec->encode, inputs, count, values, of.largest_part);
  }
  Train decode(const Train& inputs, double count, const BucketLoad& of, double values) noexcept {
    return code(of.codec->decode, inputs, count, values, of.codec->shares_parts ? 0 : of.largest_part);
  }
  // The processor's work for sending or receiving messages.
  Train handle(const Train& inputs, double count, const BucketLoad& of, double values) noexcept {
    const Machine& machine = site_.machine;
    const double each = machine.message_seconds + bytes(of, values) * machine.byte_seconds;
    moving_seconds_ += count * each;
    return processor_.work(inputs, count, each);
  }
  // Sends messages of `out` values and receives as many of `in`, all decoded or not.
  Train exchange(const Train& made, double count, const BucketLoad& of, double out, double in) noexcept {
    return line_.carry(handle(made, count, of, out), count, {bytes(of, out), bytes(of, in)});
  }

  Replayed result() const noexcept {
    return {std::max(processor_.free_at(), line_.delivered_at()), coding_seconds_, moving_seconds_,
            line_.bytes_sent(), line_.bytes_received()};
  }

 private:
  static double bytes(const BucketLoad& of, double values) noexcept {
    return values * of.codec->bits_per_value / 8;
  }
  // `alone`: values that one thread codes, whatever the others do.
  Train code(const CodingTime& time, const Train& inputs, double count, double values,
             double alone) noexcept {
    const int threads = values < kWorthSharing ? 1 : site_.machine.coding_threads;
    coding_seconds_ += count * time.of(values);
    return processor_.work(inputs, count, time.of(std::max(values / threads, std::min(values, alone))));
  }

  const Site& site_;
  Processor processor_;
  Line line_;
  double coding_seconds_ = 0;
  double moving_seconds_ = 0;
};

// Pieces of every owner's share of a bucket: one, or several at a time in a step of very many.
struct Round {
  const BucketLoad& load;  // of the bucket
  double own = 0;
  double other = 0;
  double pieces = 1;
  Train arrivals = {};
};

std::vector<Round> rounds_of(const std::vector<BucketLoad>& loads, std::size_t begin, std::size_t end,
                             Pattern pattern, double peers, double at_a_time) {
  std::vector<Round> rounds;
  for (std::size_t i = begin; i < end; ++i) {
    const BucketLoad& load = loads[i];
    const double pieces = pieces_of(load, pattern);
    const double turns = std::ceil(pieces / at_a_time);
    const double own = (pattern == Pattern::kGather ? load.total : load.own) / pieces;
    const double other = pattern == Pattern::kDirect ? (load.total - load.own) / peers / pieces : own;
    for (double turn = 0; turn < turns; ++turn) rounds.push_back({load, own, other, pieces / turns});
  }
  return rounds;
}

// `direct` (src/reduce/patterns/direct.cc): pushes to the owners, means back.
class DirectModel {
 public:
  static void push(Rank& rank, Round& round) noexcept {
    const Train ready = Train::at(round.load.ready);
    // Each piece is sent as soon as it is encoded, while the next one is being encoded.
    const double others = rank.peers() * round.pieces;
    Train made = rank.encode(ready, others, round.load, round.other);
    round.arrivals = rank.exchange(made, others, round.load, round.other, round.own);
    rank.encode(ready, round.pieces, round.load, round.own);
  }
  static void reduce(Rank& rank, Round& round) noexcept {
    const double others = rank.peers() * round.pieces;
    const Train taken = rank.handle(round.arrivals, others, round.load, round.own);
    const Train added = rank.decode(taken, others, round.load, round.own);
    const Train own = rank.decode(Train::at(added.last), round.pieces, round.load, round.own);
    const Train mean = rank.encode(own, round.pieces, round.load, round.own);
    round.arrivals = rank.exchange(Train::at(mean.last), others, round.load, round.own, round.other);
    rank.decode(mean, round.pieces, round.load, round.own);  // the owner applies the same bytes as the others
  }
  static void apply(Rank& rank, Round& round) noexcept {
    const Train taken = rank.handle(round.arrivals, rank.peers() * round.pieces, round.load, round.other);
    rank.decode(taken, rank.peers() * round.pieces, round.load, round.other);
  }
};

// `gather`: every rank's update goes to every other rank.
class GatherModel {
 public:
  static void push(Rank& rank, Round& round) noexcept {
    const Train made = rank.encode(Train::at(round.load.ready), round.pieces, round.load, round.own);
    round.arrivals = rank.exchange(made, rank.peers() * round.pieces, round.load, round.own, round.own);
  }
  static void reduce(Rank& rank, Round& round) noexcept {
    const double others = rank.peers() * round.pieces;
    const Train taken = rank.handle(round.arrivals, others, round.load, round.own);
    const Train added = rank.decode(taken, others, round.load, round.own);
    rank.decode(added, round.pieces, round.load, round.own);
  }
  static void apply(Rank&, Round&) noexcept {}
};

// Rounds: pushes, then means, then applying them, each stage lagging the one before as the order says.
template <class Model>
void replay_group(Rank& rank, std::vector<Round> rounds, const Order& order) {
  const std::size_t applied = order.reduce_after + order.apply_after;
  for (std::size_t i = 0; i < rounds.size() + applied; ++i) {
    if (i < rounds.size()) Model::push(rank, rounds[i]);
    if (i >= order.reduce_after && i - order.reduce_after < rounds.size()) {
      Model::reduce(rank, rounds[i - order.reduce_after]);
    }
    if (i >= applied) Model::apply(rank, rounds[i - applied]);
  }
}

// `ring`: reduce-scatter, where each hop decodes, adds and encodes, and all-gather, which only forwards. The
// native all-reduce does the same without a codec.
void replay_ring(Rank& rank, std::vector<Round> messages) {
  const auto hops = static_cast<std::size_t>(rank.peers());
  for (Round& each : messages) {
    const Train made = rank.encode(Train::at(each.load.ready), each.pieces, each.load, each.own);
    each.arrivals = rank.exchange(made, each.pieces, each.load, each.own, each.own);
  }
  for (std::size_t hop = 0; hop < hops; ++hop) {
    for (Round& each : messages) {
      const Train taken = rank.handle(each.arrivals, each.pieces, each.load, each.own);
      const Train added = rank.decode(taken, each.pieces, each.load, each.own);
      const Train made = rank.encode(added, each.pieces, each.load, each.own);
      each.arrivals = rank.exchange(made, each.pieces, each.load, each.own, each.own);
      if (hop + 1 == hops) rank.decode(made, each.pieces, each.load, each.own);  // its partition's mean
    }
  }
  for (std::size_t hop = 0; hop < hops; ++hop) {
    for (Round& each : messages) {
      const Train taken = rank.handle(each.arrivals, each.pieces, each.load, each.own);
      if (hop + 1 < hops) each.arrivals = rank.exchange(taken, each.pieces, each.load, each.own, each.own);
      rank.decode(taken, each.pieces, each.load, each.own);
    }
  }
}

// How many rounds of `direct` may be in flight at one time.
std::size_t open_rounds(const std::vector<BucketLoad>& loads) {
  double longest = 1;
  for (const BucketLoad& load : loads) {
    const double piece = load.own / pieces_of(load, Pattern::kDirect);
    longest = std::max(longest, piece * load.codec->bits_per_value / 8);
  }
  const PieceWindow window(kPieceElements);
  return static_cast<std::size_t>(
      std::max(2.0, std::floor(static_cast<double>(window.most_bytes()) / longest)));
}

}  // namespace

std::uint64_t most_part_of(Pattern pattern) noexcept {
  constexpr std::uint64_t kMost[] = {kPieceElements, kRingMessageElements, kMostElements};
  return kMost[static_cast<std::size_t>(pattern)];
}

std::vector<BucketLoad> bucket_loads(const Workload& workload, int ranks, std::uint64_t most_part,
                                     const CodecOfBucket& codecs) {
  std::vector<BucketLoad> loads;
  std::vector<double> owned;
  for (std::size_t i = 0; i < workload.buckets.size(); ++i) {
    const PlanBucket& bucket = workload.buckets[i];
    BucketLoad load;
    if (!codecs.empty()) load.codec = codecs[i];
    load.ready = bucket.ready_seconds;
    load.value_bytes = bucket.value_bytes;
    owned.assign(static_cast<std::size_t>(ranks), 0);
    for (const PlanTensor& tensor : bucket.tensors) {
      for (const OwnedRange& range : owned_ranges(tensor.name, tensor.elements, ranks, tensor.elements + 1)) {
        const auto count = static_cast<double>(range.count);
        owned[static_cast<std::size_t>(range.owner)] += count;
        load.total += count;
        load.largest_part = std::max(load.largest_part, std::min(count, static_cast<double>(most_part)));
      }
    }
    load.own = *std::ranges::max_element(owned);
    if (load.total > 0) loads.push_back(load);
  }
  return loads;
}

std::vector<Order> orders_of(const std::vector<BucketLoad>& loads, const Site& site, Pattern pattern) {
  std::size_t reduce_after = 0;
  std::size_t apply_after = 0;
  if (pattern == Pattern::kDirect && site.ranks > 1) reduce_after = apply_after = 2;
  if (pattern == Pattern::kGather) reduce_after = 2;
  const std::size_t most_ahead = pattern == Pattern::kDirect ? open_rounds(loads) - 1 : reduce_after;
  const std::size_t splits = std::min(loads.size(), kMostSplits);
  std::vector<Order> orders;
  for (std::size_t split = 0; split <= splits; ++split) {
    const std::size_t from = splits == 0 ? 0 : split * loads.size() / splits;
    for (std::size_t reduce = 0; reduce <= reduce_after; ++reduce) {
      for (std::size_t apply = 0; apply <= apply_after; ++apply) {
        if (reduce + apply <= most_ahead) orders.push_back({from, reduce, apply});
      }
    }
  }
  return orders;
}

Replayed replay(const std::vector<BucketLoad>& loads, const Site& site, Pattern pattern, const Order& order) {
  Rank rank(site);
  double all = 0;
  for (const BucketLoad& load : loads) all += pieces_of(load, pattern);
  const double at_a_time = std::max(1.0, std::ceil(all / kMostTurns));
  const auto group = [&](std::size_t begin, std::size_t end) {
    auto rounds = rounds_of(loads, begin, end, pattern, rank.peers(), at_a_time);
    switch (pattern) {
      case Pattern::kDirect: return replay_group<DirectModel>(rank, std::move(rounds), order);
      case Pattern::kGather: return replay_group<GatherModel>(rank, std::move(rounds), order);
      case Pattern::kRing: return replay_ring(rank, std::move(rounds));
    }
  };
  for (std::size_t i = 0; i < order.together_from; ++i) group(i, i + 1);
  if (order.together_from < loads.size()) group(order.together_from, loads.size());
  return rank.result();
}

Replayed replay_plain(const std::vector<BucketLoad>& loads, const Site& site, const Order& order) {
  // The native ring cuts buckets evenly, regardless of their tensors.
  std::vector<BucketLoad> even = loads;
  const CodecFigures uncoded;
  for (BucketLoad& load : even) {
    load.total *= 8 * load.value_bytes / uncoded.bits_per_value;
    load.own = load.total / site.ranks;
    load.codec = &uncoded;
  }
  return replay(even, site, Pattern::kRing, order);
}

}  // namespace deltawire::planner
