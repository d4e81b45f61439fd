// The sending half of a data stream: posted messages, one after the other.
#pragma once

#include <cassert>

#include "transport/links/link.h"
#include "transport/mesh/message_header.h"
#include "transport/mesh/operation.h"
#include "transport/mesh/scoped_unlock.h"

namespace deltawire {

class DataSender {
 public:
  explicit DataSender(Link& link) noexcept : link_(&link) {}

  // `operation` must not move until it is done or clear() was called.
  void post(Operation& operation) noexcept {
    assert(operation.kind == Operation::Kind::kSend && !operation.done);
    queue_.push_back(operation);
  }
  bool empty() const noexcept { return queue_.empty(); }
  std::uint64_t bytes_sent() const noexcept { return sent_; }

  // Sends at most about kStepBytes. While `scoped_unlock` has released the lock, others may post and
  // clear().
  StreamStep step(ScopedUnlock scoped_unlock = {}) noexcept;

  // Forgets all operations.
  void clear() noexcept {
    queue_.clear();
    ++clears_;
  }

 private:
  std::size_t gather(std::span<iovec> into) noexcept;
  void advance(std::size_t bytes) noexcept;
  bool front_sent() const noexcept;

  Link* link_;
  std::uint64_t sent_ = 0;  // bytes of all messages
  std::uint64_t clears_ = 0;
  OperationList queue_;
  MessageHeaderBytes header_{};
  std::size_t header_sent_ = 0;
  std::size_t piece_ = 0;       // the front operation's first piece that is not completely sent
  std::size_t piece_sent_ = 0;  // sent bytes of it
};

// How much one step on a stream moves at most, so that all peers and all posting threads get their turn.
inline constexpr std::size_t kStepBytes = std::size_t{1} << 20;

}  // namespace deltawire
