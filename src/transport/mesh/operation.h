// Posted sends and receives, and votes.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "deltawire/transport.h"

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
  bool failed = false;                        // alone: its peer was lost, and the mesh was not
  std::condition_variable* waiter = nullptr;  // of the thread that waits for it
  Operation* next = nullptr;                  // in the one list that it stands in
  std::uint64_t handle = 0;                   // its number in the table

  void finish(std::uint64_t message_length) noexcept {
    length = message_length;
    done = true;
    if (waiter != nullptr) waiter->notify_one();
  }
  void fail() noexcept {
    failed = true;
    finish(0);
  }
};

// Operations in the order of posting. They stay where they are, and stand in one list at a time: it needs no
// memory.
class OperationList {
 public:
  OperationList() = default;
  OperationList(const OperationList&) = delete;
  OperationList& operator=(const OperationList&) = delete;

  bool empty() const noexcept { return first_ == nullptr; }
  Operation& front() const noexcept { return *first_; }

  void push_back(Operation& operation) noexcept {
    operation.next = nullptr;
    *end_ = &operation;
    end_ = &operation.next;
  }
  void pop_front() noexcept { remove(&first_); }
  // Takes the first one with this tag out; nullptr: there is none. Looks at all before it: few are posted to
  // one peer at one time, and mostly the first is the one.
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
  Operation** end_ = &first_;  // where the next one is hung in
};

// The operations of an engine by their handles. The memory of one that was waited for, its list of pieces
// too, serves the next: so the table keeps what was needed at one time, and a step like the last takes none.
class OperationTable {
 public:
  // A new operation, for the rest of its life at this place, with a handle that none has had before. Where
  // memory fails, all is as before.
  Operation& add(std::span<const Bytes> pieces = {}) {
    if (free_ == nullptr) {
      free_ = places_.emplace_back(std::make_unique<Operation>()).get();
      free_->handle = places_.size();
    }
    Operation& added = *free_;
    longest_ = std::max(longest_, pieces.size());
    added.pieces.reserve(longest_);  // any of them may be the next long one
    added.pieces.assign(pieces.begin(), pieces.end());
    free_ = added.next;
    added.length = 0;
    added.done = added.failed = false;
    return added;
  }

  // nullptr: it was removed, or there has been none.
  Operation* find(Handle handle) const noexcept {
    const auto number = static_cast<std::uint64_t>(handle);
    const std::uint64_t place = (number & kPlaceMask) - 1;
    if (place >= places_.size()) return nullptr;
    return places_[place]->handle == number ? places_[place].get() : nullptr;
  }

  // All that are open with this peer. REQUIRES: they stand in no list.
  void fail_all(int peer) noexcept {
    for (const auto& place : places_) {
      if (place->peer == peer && !place->done) place->fail();
    }
  }

  // REQUIRES: it stands in no list, and nobody waits for it.
  void remove(Operation& operation) noexcept {
    operation.handle += kPlaceMask + 1;
    operation.next = free_;
    free_ = &operation;
  }

 private:
  // A handle is how often its place was used before, and the place from 1.
  static constexpr std::uint64_t kPlaceMask = 0xFFFFFFFF;

  std::vector<std::unique_ptr<Operation>> places_;
  Operation* free_ = nullptr;
  std::size_t longest_ = 0;  // list of pieces so far
};

// What a step on a data stream came to.
struct StreamStep {
  enum class Kind : std::uint8_t {
    kMoved,   // something moved, there may be more at once
    kIdle,    // nothing to do until the link is ready or, if not kNever, until `retry_at`
    kPaused,  // receiving only: the next message waits for somebody to post a receive
    kClosed,  // the stream has ended; `error` is the errno, 0 for an ordinary end
    kFailed,  // the peer broke the rules; `failure` says how
  };
  Kind kind = Kind::kMoved;
  Deadline retry_at = Deadline::max();
  int error = 0;
  Error failure;
};

}  // namespace deltawire
