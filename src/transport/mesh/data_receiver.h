// The receiving half of a data stream: parses messages and stores them in the posted receives.
#pragma once

#include <chrono>
#include <list>

#include "transport/links/link.h"
#include "transport/mesh/message_header.h"
#include "transport/mesh/operation.h"
#include "transport/mesh/scoped_unlock.h"
#include "transport/mesh/unexpected_messages.h"

namespace deltawire {

class DataReceiver {
 public:
  // Shorter messages don't wait for their receives: copying them costs less.
  static constexpr std::size_t kLongBytes = std::size_t{64} << 10;

  // `blocks`, for unexpected messages and for what is read, and `names`, for errors, must outlive it. A long
  // message waits in its stream for its receive, for `patience` at most, and only if no other receive is
  // posted that it might block.
  DataReceiver(int peer, Link& link, UnexpectedBlocks& blocks, std::chrono::milliseconds patience,
               const RankNames& names = RankNames::plain())
      : peer_(peer), link_(&link), patience_(patience), names_(names), blocks_(blocks), unexpected_(blocks) {}

  // Takes a message that has already arrived, or registers `operation`, which must not move until it is done
  // or clear() was called. Ends a pause: call step() again. Kind is kMoved or kFailed.
  StreamStep post(Operation& operation);

  std::uint64_t bytes_received() const noexcept { return received_; }
  // How many blocks its complete messages would have needed if all had been unexpected.
  std::uint64_t unexpected_blocks() const noexcept { return unexpected_blocks_; }

  // Whether a long message has been received in part.
  bool is_midway() const noexcept {
    return (target_ == Target::kPosted || target_ == Target::kUnexpected) &&
           missing() >= UnexpectedBlock::kBytes;
  }

  // Receives at most about kStepBytes. While `scoped_unlock` has released the lock, others may post and
  // clear(). kPaused with a time: until then, or until a receive is posted.
  StreamStep step(ScopedUnlock scoped_unlock = {});

  // Forgets all operations; no posted memory is touched any more.
  void clear() noexcept;

 private:
  enum class Target : std::uint8_t {
    kNoMessage,   // between messages
    kUnclaimed,   // the header has arrived; there is no receive and no room for the rest
    kPosted,      // the message goes into a posted receive
    kUnexpected,  // the message is the newest of the unexpected ones
  };

  StreamStep consume_staged();
  StreamStep consume_messages();
  StreamStep begin_message();
  StreamStep claim(Operation& operation, std::uint64_t length);
  StreamStep adopt(Operation& operation, UnexpectedMessages::Message& message);
  StreamStep read_staged();
  StreamStep read_big(ScopedUnlock scoped_unlock);
  Deadline hold_until();
  MutBytes room();
  void take(Bytes bytes);
  void advance(std::size_t bytes) noexcept;
  void end_message_if_whole();
  Bytes staged() const noexcept {
    return stage_.empty() ? Bytes() : Bytes(stage_.front().bytes).first(stage_end_).subspan(stage_begin_);
  }
  std::uint64_t missing() const noexcept { return header_.length - got_; }

  int peer_;
  Link* link_;
  std::chrono::milliseconds patience_;
  const RankNames& names_;
  Deadline held_until_{};  // how long the current message may wait in the stream; {}: not decided yet
  std::uint64_t clears_ = 0;
  std::uint64_t received_ = 0;  // bytes of all messages
  std::uint64_t unexpected_blocks_ = 0;
  // Small messages are read together with their headers in one call; the rest of a big message goes straight
  // to its destination. A block while bytes are in it: most of many peers have sent all that they will for
  // now.
  UnexpectedBlocks& blocks_;
  std::list<UnexpectedBlock> stage_;
  std::size_t stage_begin_ = 0;
  std::size_t stage_end_ = 0;

  Target target_ = Target::kNoMessage;
  MessageHeader header_;
  std::uint64_t got_ = 0;
  Operation* posted_target_ = nullptr;
  UnexpectedMessages unexpected_;
  OperationList posted_;
};

}  // namespace deltawire
