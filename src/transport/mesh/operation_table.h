// The operations of one rank by their handles.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/mesh/operation.h"

namespace deltawire {

// The memory of an operation that was waited for, including its list of pieces, is reused for the next: so a
// step like the last one allocates nothing.
class OperationTable {
 public:
  // A new operation, which never moves, with a handle that none has had before. If an allocation fails,
  // nothing has changed.
  Operation& add(std::span<const Bytes> pieces = {}) {
    if (free_ == nullptr) {
      free_ = places_.emplace_back(std::make_unique<Operation>()).get();
      free_->handle = places_.size();
    }
    Operation& added = *free_;
    longest_ = std::max(longest_, pieces.size());
    added.pieces.reserve(longest_);  // any place may get the next long list
    added.pieces.assign(pieces.begin(), pieces.end());
    free_ = added.next;
    added.length = 0;
    added.done = added.failed = false;
    return added;
  }

  // nullptr: it was removed, or never existed.
  Operation* find(Handle handle) const noexcept {
    const auto number = static_cast<std::uint64_t>(handle);
    const std::uint64_t place = (number & kPlaceMask) - 1;
    if (place >= places_.size()) return nullptr;
    return places_[place]->handle == number ? places_[place].get() : nullptr;
  }

  // Fails all open operations with this peer. REQUIRES: they are in no list.
  void fail_all(int peer) noexcept {
    for (const auto& place : places_) {
      if (place->peer == peer && !place->done) place->fail();
    }
  }

  // Of one that is in no list, and that no thread waits for.
  void remove(Operation& operation) noexcept {
    assert(operation.waiter == nullptr && find(Handle{operation.handle}) == &operation);
    operation.handle += kPlaceMask + 1;
    operation.next = free_;
    free_ = &operation;
  }

 private:
  // A handle consists of how often its place was used before, and the place, from 1.
  static constexpr std::uint64_t kPlaceMask = 0xFFFFFFFF;

  std::vector<std::unique_ptr<Operation>> places_;
  Operation* free_ = nullptr;
  std::size_t longest_ = 0;  // the length of the longest list of pieces so far
};

}  // namespace deltawire
