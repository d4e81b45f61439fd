#include "reduce/patterns/ring_plan.h"

#include <algorithm>
#include <cassert>

#include "reduce/patterns/owners.h"

namespace deltawire {

void RingPlan::add_part(const Named& part, std::size_t tensor, int owner) {
  assert(owner >= 0 && static_cast<std::size_t>(owner) < partitions_.size());
  assert(part.tensor.count <= kRingMessageElements);
  auto& messages = partitions_[static_cast<std::size_t>(owner)];
  const bool opens = messages.empty() || messages.back().elements + part.tensor.count > kRingMessageElements;
  RingMessage& message = opens ? messages.emplace_back() : messages.back();
  message.parts.push_back(part);
  message.own.push_back(as_view(part.tensor));
  message.tensors.push_back(tensor);
  message.elements += part.tensor.count;
  message.raw_bytes += part.tensor.count * dtype_bytes(part.tensor.dtype);
}

void RingPlan::cut(std::span<const Named> tensors, int rank, int world) {
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

void RingPlan::place(std::span<const Named> tensors, std::span<float> staged) noexcept {
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

std::size_t RingPlan::most_messages() const noexcept {
  std::size_t most = 0;
  for (const auto& messages : partitions_) most = std::max(most, messages.size());
  return most;
}

std::uint64_t RingPlan::raw_bytes_of(int owner) const noexcept {
  std::uint64_t bytes = 0;
  for (const RingMessage& message : partition(owner)) bytes += message.raw_bytes;
  return bytes;
}

}  // namespace deltawire
