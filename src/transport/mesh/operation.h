// Posted sends and receives, and votes.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "deltawire/transport.h"
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
};

}  // namespace deltawire
