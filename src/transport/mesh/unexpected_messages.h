// Messages that arrived before a receive was posted for them: bounded, so that a fast peer fills its own pipe
// and not this rank's memory.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <list>
#include <vector>

#include "deltawire/transport.h"

namespace deltawire {

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

}  // namespace deltawire
