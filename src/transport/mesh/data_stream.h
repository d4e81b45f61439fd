// A data stream: messages, each behind its header. They are sent one after the other, and received into what
// is posted for them.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <list>
#include <span>
#include <vector>

#include "deltawire/result.h"
#include "deltawire/transport.h"
#include "transport/links/link.h"
#include "transport/mesh/operation.h"
#include "transport/mesh/scoped_unlock.h"

namespace deltawire {

// Messages that arrived before a receive was posted for them: bounded, so that a fast peer fills its own pipe
// and not this rank's memory.
struct UnexpectedBlock {
  static constexpr std::size_t kBytes = std::size_t{16} << 10;

  UnexpectedBlock() noexcept {}  // uninitialized
  std::array<std::byte, kBytes> bytes;

  // How many blocks a message needs.
  static constexpr std::uint64_t count_for(std::uint64_t length) noexcept {
    return (length + kBytes - 1) / kBytes;
  }
};

// Blocks for the unexpected messages of all peers, kept from one message to the next.
class UnexpectedBlocks {
 public:
  // At most this many are kept, 16 MiB: so a peer that was once far ahead does not cost memory forever.
  static constexpr std::size_t kSpareMax = std::size_t{1} << 10;

  std::size_t spare() const noexcept { return spare_.size(); }

  // Ensures that there are this many blocks, including those in use, up to what is kept; and some more, as
  // steps differ slightly.
  void reserve(std::uint64_t blocks) {
    if (blocks <= made_) return;
    for (const std::uint64_t wanted = std::min<std::uint64_t>(blocks + blocks / 4, kSpareMax); made_ < wanted;
         ++made_) {
      spare_.emplace_back();
    }
  }
  // Appends one block to `blocks`.
  void append_to(std::list<UnexpectedBlock>& blocks) {
    if (spare_.empty()) {
      blocks.emplace_back();
      ++made_;
    } else {
      blocks.splice(blocks.end(), spare_, spare_.begin());
    }
  }
  // Takes back all of `blocks`.
  void take_back(std::list<UnexpectedBlock>& blocks) noexcept {
    spare_.splice(spare_.begin(), blocks);
    while (spare_.size() > kSpareMax) spare_.pop_back();
  }

 private:
  std::list<UnexpectedBlock> spare_;
  std::size_t made_ = 0;  // how many were ever made: used and spare blocks together, or as many as are kept
};

class UnexpectedMessages {
 public:
  static constexpr std::size_t kMessagesMax = 64;
  static constexpr std::uint64_t kBytesMax = std::uint64_t{64} << 20;
  static constexpr std::uint64_t kBlocksMax = UnexpectedBlock::count_for(kBytesMax);

  struct Message {
    Tag tag = 0;
    std::uint64_t length = 0;           // according to its header
    std::uint64_t arrived = 0;          // bytes received so far
    std::list<UnexpectedBlock> blocks;  // their memory
  };

  // `blocks` must outlive it.
  explicit UnexpectedMessages(UnexpectedBlocks& blocks) : blocks_(&blocks) {
    messages_.reserve(kMessagesMax);
  }

  bool has_room(std::uint64_t length) const noexcept {
    return messages_.size() < kMessagesMax && UnexpectedBlock::count_for(length) <= kBlocksMax - reserved_;
  }

  // Adds a message, the newest, of which nothing has arrived yet.
  void add(Tag tag, std::uint64_t length) noexcept {
    assert(has_room(length));
    messages_.push_back({tag, length, 0, {}});
    reserved_ += UnexpectedBlock::count_for(length);
  }
  Message& newest() noexcept {
    assert(!messages_.empty());
    return messages_.back();
  }

  // Memory for the next bytes of the newest message, at least one. It is allocated as bytes arrive, so a
  // claimed length in a header never makes this rank allocate much.
  MutBytes room() {
    Message& message = newest();
    assert(message.arrived < message.length);
    if (message.arrived == message.blocks.size() * UnexpectedBlock::kBytes) {
      blocks_->append_to(message.blocks);
    }
    const std::uint64_t left = message.blocks.size() * UnexpectedBlock::kBytes - message.arrived;
    return MutBytes(message.blocks.back().bytes)
        .last(static_cast<std::size_t>(left))
        .first(static_cast<std::size_t>(std::min(left, message.length - message.arrived)));
  }

  // The oldest message with `tag`; nullptr: there is none.
  Message* find(Tag tag) noexcept {
    const auto found = std::ranges::find(messages_, tag, &Message::tag);
    return found == messages_.end() ? nullptr : &*found;
  }

  // Copies the received bytes.
  static void copy(const Message& message, MutBytes into) noexcept {
    assert(message.arrived <= into.size());
    auto left = static_cast<std::size_t>(message.arrived);
    for (const UnexpectedBlock& block : message.blocks) {
      const std::size_t count = std::min(left, UnexpectedBlock::kBytes);
      std::memcpy(into.data(), block.bytes.data(), count);
      into = into.subspan(count);
      left -= count;
    }
  }

  void remove(Message& message) noexcept {
    assert(&message >= messages_.data() && &message < messages_.data() + messages_.size());
    assert(reserved_ >= UnexpectedBlock::count_for(message.length));
    reserved_ -= UnexpectedBlock::count_for(message.length);
    blocks_->take_back(message.blocks);
    messages_.erase(messages_.begin() + std::distance(messages_.data(), &message));
  }

 private:
  UnexpectedBlocks* blocks_;
  std::vector<Message> messages_;  // the oldest first
  std::uint64_t reserved_ = 0;     // blocks
};

// What precedes every message: 32 bytes, little-endian.
//
//   0  u32  magic
//   4  u32  CRC-32C of the other 28 bytes
//   8  u64  tag
//  16  u64  length of the message
//  24  u64  0
//
// The last eight bytes are padding for the kernel's copies. On CPUs with FSRM it copies with `rep movsb`,
// which on AMD's Zen 3 and Zen 4 is 15 times slower if the target is 1 to 15 bytes after the source, modulo
// 4,096. Large allocations begin 16 bytes into a page, and after a header of 24 bytes the kernel's copy of
// such a message would begin at 24.

inline constexpr std::size_t kMessageHeaderBytes = 32;
static_assert(kMessageHeaderBytes % 16 == 0);

struct MessageHeader {
  Tag tag = 0;
  std::uint64_t length = 0;
};

using MessageHeaderBytes = std::array<std::byte, kMessageHeaderBytes>;

MessageHeaderBytes encode_message_header(const MessageHeader& header) noexcept;

// kCorrupt: wrong magic, wrong checksum, last bytes that are not 0, or a length above kMessageBytesMax.
// `sender` is the suspect.
Result<MessageHeader> decode_message_header(std::span<const std::byte, kMessageHeaderBytes> bytes, int sender,
                                            const RankNames& names = RankNames::plain());

// The sending half: posted messages.
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
  bool front_sent() const noexcept {
    return header_sent_ == header_.size() && piece_ == queue_.front().pieces.size();
  }

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

// The receiving half: parses messages and stores them in the posted receives.
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
