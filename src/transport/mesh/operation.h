// Posted sends and receives, and votes.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "deltawire/transport.h"
#include "transport/links/link.h"
#include "transport/process/machine.h"

namespace deltawire {

struct Operation {
  enum class Kind : std::uint8_t { kSend, kReceive, kVote };

  Kind kind = Kind::kSend;
  int peer = 0;  // kVote: the first rank whose ballot is missing
  Tag tag = 0;
  std::vector<Bytes> pieces;  // kSend
  MutBytes capacity;          // kReceive
  std::uint64_t length = 0;   // of the message: known from the start (kSend), when done (kReceive)
  bool done = false;
  bool failed = false;          // its peer has departed, while the mesh has not failed
  Condition* waiter = nullptr;  // of the thread that waits for it
  Operation* next = nullptr;    // in the list that it is in, if any
  std::uint64_t handle = 0;     // its number in the table

  void finish(std::uint64_t message_length) noexcept {
    assert(!done);
    length = message_length;
    done = true;
    if (waiter != nullptr) waiter->notify_one();
  }
  void fail() noexcept {
    failed = true;
    finish(0);
  }
};

// Operations in the order of posting. An intrusive list, which needs no memory: operations don't move, and
// are in one list at a time.
class OperationList {
 public:
  OperationList() = default;
  OperationList(const OperationList&) = delete;
  OperationList& operator=(const OperationList&) = delete;

  bool empty() const noexcept { return first_ == nullptr; }
  Operation& front() const noexcept {
    assert(!empty());
    return *first_;
  }

  void push_back(Operation& operation) noexcept {
    operation.next = nullptr;
    *end_ = &operation;
    end_ = &operation.next;
  }
  void pop_front() noexcept {
    assert(!empty());
    remove(&first_);
  }
  // Removes the first one with this tag; nullptr: there is none. A linear search: few are posted to one peer
  // at a time, and usually it is the first.
  Operation* take(Tag tag) noexcept {
    for (Operation** at = &first_; *at != nullptr; at = &(*at)->next) {
      if ((*at)->tag == tag) return remove(at);
    }
    return nullptr;
  }
  void clear() noexcept {
    first_ = nullptr;
    end_ = &first_;
  }

 private:
  Operation* remove(Operation** at) noexcept {
    Operation* removed = *at;
    *at = removed->next;
    if (*at == nullptr) end_ = at;
    return removed;
  }

  Operation* first_ = nullptr;
  Operation** end_ = &first_;  // where the next one is linked in
};

// The result of a step on a data stream.
struct StreamStep {
  enum class Kind : std::uint8_t {
    kMoved,   // something moved, and there may be more at once
    kIdle,    // nothing to do until the link is ready or, if not kNever, until `retry_at`
    kPaused,  // receiving only: the next message waits until a receive is posted
    kClosed,  // the stream has ended; `error` is the errno, 0 for an ordinary end
    kFailed,  // the peer violated the protocol; `failure` says how
  };
  Kind kind = Kind::kMoved;
  Deadline retry_at = Deadline::max();
  int error = 0;
  Error failure;

  // Of a call that moved nothing.
  static StreamStep after(const IoResult& result) {
    if (result.kind == IoResult::Kind::kWouldBlock) return {Kind::kIdle, result.retry_at, 0, {}};
    return {Kind::kClosed, Deadline::max(), result.error, {}};
  }
};

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
