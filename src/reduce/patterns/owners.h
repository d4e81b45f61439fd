// Parts of tensors, and which rank owns which: a function of (name, element count, world size) alone, never
// of buckets, so that another bucket size or a bucket rebuild changes no byte and orphans no residual.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "deltawire/tensor.h"

namespace deltawire {

// Elements [first, first + count) of `whole` as a part. `values` is the memory of the whole tensor: the
// caller's, or another copy. A part that is the whole tensor has its dims, others have none.
Named part_of(const Named& whole, std::uint64_t first, std::uint64_t count, void* values);

// The same part in staging memory, where means are float32 whatever the tensor is.
Named staged_part(Named part) noexcept;

// Points the part at another copy of its tensor.
void move_part(Named& part, const Named& whole, void* values) noexcept;

// Tensors below this many elements have one owner; docs/reference/format.md, "Parts", states it: it is on the
// wire.
inline constexpr std::uint64_t kWholeTensorElements = 16384;

// Cuts fall on multiples of this (a row of 3LC), so that a cut costs no padding.
inline constexpr std::uint64_t kCutElements = 320;

// No part has more elements, nor has a message of `gather`; docs/reference/format.md states it. So every
// codec's part fits into a frame, and its message into the transport's limit: 60 MiB of fp32, which the early
// store takes, too. A multiple of all codecs' chunks, of rows and of kRingMessageElements.
inline constexpr std::uint64_t kMostElements = std::uint64_t{64} * 245760;

// A dense part of `direct` has no more, nor has a message of them, a piece of an owner's share;
// docs/reference/format.md states it: statistics belong to parts. Small enough that pieces on their way
// overlap on slow lines and take little memory (fp32: 320 KiB), large enough that the cost of a
// message does not count. A multiple of rows, of 3LC's chunks (40,960) and of GComp's blocks (16,384).
inline constexpr std::uint64_t kPieceElements = 81920;

// Of a part, and of a message.
struct MostElements {
  std::uint64_t dense = kMostElements;
  std::uint64_t pairs = kMostElements;  // in key-value form, by dimension
};

struct OwnedRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  int owner = 0;
};

// The parts of a tensor, in order, none of them empty and none of more than `most_elements`. A tensor without
// elements has none.
std::vector<OwnedRange> owned_ranges(std::string_view name, std::uint64_t count, int world_size,
                                     std::uint64_t most_elements = kMostElements);

// How `direct` spreads the keys of a tensor over its owners: by stride, not in ranges as it cuts dense
// tensors.
//
// Features are mostly numbered by how often they come, or as they first come, so that a range of low keys has
// most pairs: of 8 ranges, one had 6.8 times its share of a batch of RCV1. If each of N shards takes every
// N-th key, all have as many of the frequent ones. A hash of each key would balance as well, but the keys of
// a shard would lie N times as far apart, and cost log2(N) bits more each. Here a key is divided by N: the
// places of a shard are as dense as the tensor's keys, and cost what those cost.
//
// Stripe g, keys N g ... N g + N - 1, gives one key to each shard. Each stripe begins with another shard, so
// that data whose features have a period of N are spread as well.

// A bijection of the keys of a tensor: shard after shard, in the order of keys within each.
class KeyPartition {
 public:
  KeyPartition(std::uint64_t count, std::uint32_t shards) noexcept
      : count_(count), shards_(shards), inverse_((std::uint64_t{1} << 32) / shards) {
    assert(shards >= 1 && shards <= 65535 && count >> 32 == 0);
  }

  std::uint32_t shards() const noexcept { return shards_; }

  struct Place {
    std::uint32_t shard;
    std::uint32_t at;  // of the shard's keys, in order
  };
  Place place_of(std::uint32_t key) const noexcept {
    // key / shards, or one less.
    auto stripe = static_cast<std::uint32_t>((key * inverse_) >> 32);
    std::uint32_t turn = key - stripe * shards_;
    if (turn >= shards_) {
      ++stripe;
      turn -= shards_;
    }
    const std::uint32_t shard = turn + first_shard_of(stripe);
    return {shard < shards_ ? shard : shard - shards_, stripe};
  }
  std::uint32_t key_at(const Place& place) const noexcept {
    const std::uint32_t begin = first_shard_of(place.at);
    return place.at * shards_ + (place.shard >= begin ? place.shard - begin : place.shard + shards_ - begin);
  }

  // Where a shard begins when all shards lie one after another; first(shards()) is the end. With several
  // shards places count from 1, where no range of a dense tensor begins: so ranks that have a tensor in
  // different forms get an error.
  std::uint64_t first(std::uint32_t shard) const noexcept {
    assert(shard <= shards_);
    const std::uint64_t stripes = count_ / shards_;
    // The last stripe isn't whole: its keys go to the shards [begin, end), from 0 again after the last one.
    const std::uint64_t begin = first_shard_of(static_cast<std::uint32_t>(stripes));
    const std::uint64_t end = begin + count_ % shards_;
    const std::uint64_t straight =
        std::min<std::uint64_t>(end, shard) - std::min<std::uint64_t>(begin, shard);
    const std::uint64_t again = end > shards_ ? std::min<std::uint64_t>(end - shards_, shard) : 0;
    return (shards_ > 1 ? 1 : 0) + stripes * shard + straight + again;
  }

  // The shard for which first(shard) <= at < first(shard + 1).
  std::uint32_t shard_at(std::uint64_t at) const noexcept {
    assert(first(0) <= at && at < first(shards_));
    auto shard = static_cast<std::uint32_t>((at - first(0)) / (count_ / shards_ + 1));
    while (first(shard + 1) <= at) ++shard;
    return shard;
  }

 private:
  // The shard that gets the first key of a stripe (docs/reference/format.md, "Parts").
  std::uint32_t first_shard_of(std::uint32_t stripe) const noexcept {
    const std::uint64_t mixed = (std::uint64_t{stripe} * 0x9E3779B97F4A7C15U) >> 32;
    return static_cast<std::uint32_t>((mixed * shards_) >> 32);
  }

  std::uint64_t count_;
  std::uint32_t shards_;
  std::uint64_t inverse_;  // 2^32 / shards, rounded down
};

// Which rank owns which part of a tensor in key-value form, in `direct`: ranges of the places of
// KeyPartition, shard after shard. Tensors below kWholeTensorElements are one shard.
KeyPartition key_partition_of(std::uint64_t count, int world_size) noexcept;
std::vector<OwnedRange> owned_key_ranges(std::string_view name, std::uint64_t count, int world_size,
                                         std::uint64_t most_elements);

// A tensor's pairs, sorted into shards.
class PartitionedPairs {
 public:
  // With one shard the pairs stay where they are. Keys that don't grow strictly, or lie beyond the dimension,
  // stay together, so that the encoder of the first part meets and refuses them.
  void assign(const TensorSlot& tensor, const KeyPartition& partition);

  // Makes the part hold the pairs of these places, keys counted from its first. Valid until the next assign.
  void take(const OwnedRange& range, TensorSlot& part);

 private:
  void sort_into_shards();

  KeyPartition partition_{0, 1};
  TensorSlot whole_;
  bool is_legal_ = true;
  std::vector<std::uint16_t> shard_of_;              // by pair
  std::vector<std::size_t> begins_;                  // by shard, of the pairs
  std::vector<std::uint32_t> places_;                // of the pairs, shard after shard
  std::vector<std::byte> values_;                    // as well
  std::vector<std::vector<std::uint32_t>> counted_;  // keys of parts that begin within a shard
};

}  // namespace deltawire
