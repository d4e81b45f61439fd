// Who sends what when in the ring. A function of names, counts and world size alone, the same on all ranks.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/tensor.h"
#include "reduce/patterns/owners.h"

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
  void cut(std::span<const Named> tensors, int rank, int world) {
    assert(rank >= 0 && rank < world);
    partitions_.assign(static_cast<std::size_t>(world), {});
    scatter_.clear();
    gather_.clear();
    staged_at_.clear();
    std::uint64_t staged_at = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Named& tensor = tensors[i];
      for (const OwnedRange& range :
           owned_ranges(tensor.name, tensor.tensor.count, world, kRingMessageElements)) {
        add_part(part_of(tensor, range.first, range.count, nullptr), i, range.owner);
      }
      staged_at_.push_back(staged_at);
      staged_at += tensor.tensor.count;
    }
    for (auto& messages : partitions_) {
      for (RingMessage& message : messages) {
        message.hash = MessageLayout::hash_of(message.parts);
        for (Named& part : message.parts) part = staged_part(part);
      }
    }
    for (int hop = 0; hop + 1 < world; ++hop) {
      const bool last_hop = hop + 2 == world;
      const int scattered = (rank + 2 * world - 2 - hop) % world;
      const int gathered = (rank + world - 1 - hop) % world;
      for (std::size_t i = 0; i < partition(scattered).size(); ++i)
        scatter_.push_back({scattered, i, last_hop});
      for (std::size_t i = 0; i < partition(gathered).size(); ++i) gather_.push_back({gathered, i, last_hop});
    }
  }

  // Says where the tensors that were cut last lie, and in `staged`, one after another, their sums and means.
  void place(std::span<const Named> tensors, std::span<float> staged) noexcept {
    assert(tensors.size() == staged_at_.size());
    for (auto& messages : partitions_) {
      for (RingMessage& message : messages) {
        for (std::size_t i = 0; i < message.parts.size(); ++i) {
          const Named& tensor = tensors[message.tensors[i]];
          Named& part = message.parts[i];
          move_part(part, tensor, staged.data() + staged_at_[message.tensors[i]]);
          TensorView& own = message.own[i];
          own.values = static_cast<const std::byte*>(tensor.tensor.values) +
                       (part.first - tensor.first) * dtype_bytes(own.dtype);
        }
      }
    }
  }

  const RingMessage& message(const RingStop& stop) const {
    return partitions_[static_cast<std::size_t>(stop.partition)][stop.message];
  }
  std::span<const RingMessage> partition(int owner) const {
    return partitions_[static_cast<std::size_t>(owner)];
  }
  std::span<const RingStop> scatter_arrivals() const noexcept { return scatter_; }
  std::span<const RingStop> gather_arrivals() const noexcept { return gather_; }
  // Of the largest partition.
  std::size_t most_messages() const noexcept {
    std::size_t most = 0;
    for (const auto& messages : partitions_) most = std::max(most, messages.size());
    return most;
  }

  std::uint64_t raw_bytes_of(int owner) const noexcept {
    std::uint64_t bytes = 0;
    for (const RingMessage& message : partition(owner)) bytes += message.raw_bytes;
    return bytes;
  }

 private:
  void add_part(const Named& part, std::size_t tensor, int owner) {
    assert(owner >= 0 && static_cast<std::size_t>(owner) < partitions_.size());
    assert(part.tensor.count <= kRingMessageElements);
    auto& messages = partitions_[static_cast<std::size_t>(owner)];
    const bool opens =
        messages.empty() || messages.back().elements + part.tensor.count > kRingMessageElements;
    RingMessage& message = opens ? messages.emplace_back() : messages.back();
    message.parts.push_back(part);
    message.own.push_back(as_view(part.tensor));
    message.tensors.push_back(tensor);
    message.elements += part.tensor.count;
    message.raw_bytes += part.tensor.count * dtype_bytes(part.tensor.dtype);
  }

  std::vector<std::uint64_t> staged_at_;              // by tensor
  std::vector<std::vector<RingMessage>> partitions_;  // by owner
  std::vector<RingStop> scatter_;
  std::vector<RingStop> gather_;
};

}  // namespace deltawire
