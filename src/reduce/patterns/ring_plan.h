// Who sends what when in the ring. A function of names, counts and world size alone, the same on all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/tensor.h"

namespace deltawire {

// A part never has more elements; docs/reference/format.md, "Parts", states it: statistics belong to parts. A
// multiple of 3LC's rows (320) and chunks (40,960) and of GComp's blocks (16,384).
inline constexpr std::uint64_t kRingMessageElements = 245760;

// The parts that travel as one message, in staging memory.
struct RingMessage {
  std::vector<Named> parts;
  std::vector<TensorView> own;       // each part's values, in the caller's memory
  std::vector<std::size_t> tensors;  // by part: the one of the bucket that it is a part of
  std::uint32_t hash = 0;            // MessageLayout::hash_of(parts), as the caller has them
  std::uint64_t elements = 0;
  std::uint64_t raw_bytes = 0;

  MessageLayout layout() const noexcept { return {parts, hash}; }
};

// What is in one message of a phase, in the order in which messages leave and come.
struct RingStop {
  int partition = 0;
  std::size_t message = 0;  // of the partition
  bool last_hop = false;
};

// Partition p is what rank p owns. In hop h = 0 ... world-2 of the reduce-scatter a rank sends partition
// rank-1-h and receives rank-2-h, so that partition p starts at rank p+1 and ends, summed, at rank p; in hop
// h of the all-gather it sends rank-h and receives rank-1-h (GComp, section 6.2, figure 8).
class RingPlan {
 public:
  // Cuts the tensors, and lists both phases' arrivals.
  void cut(std::span<const Named> tensors, int rank, int world);

  // Says where the tensors that were cut last lie, and in `staged`, one after another, their sums and means.
  void place(std::span<const Named> tensors, std::span<float> staged) noexcept;

  const RingMessage& message(const RingStop& stop) const {
    return partitions_[static_cast<std::size_t>(stop.partition)][stop.message];
  }
  std::span<const RingMessage> partition(int owner) const {
    return partitions_[static_cast<std::size_t>(owner)];
  }
  std::span<const RingStop> scatter_arrivals() const noexcept { return scatter_; }
  std::span<const RingStop> gather_arrivals() const noexcept { return gather_; }
  // Of the largest partition.
  std::size_t most_messages() const noexcept;
  std::uint64_t raw_bytes_of(int owner) const noexcept;

 private:
  void add_part(const Named& part, std::size_t tensor, int owner);

  std::vector<std::uint64_t> staged_at_;              // by tensor
  std::vector<std::vector<RingMessage>> partitions_;  // by owner
  std::vector<RingStop> scatter_;
  std::vector<RingStop> gather_;
};

}  // namespace deltawire
