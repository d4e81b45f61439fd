// Messages that arrived before anybody posted a receive for them: bounded, so that a fast peer fills its
// own pipe and not this rank's memory.
#pragma once

#include <algorithm>
#include <array>
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

  // How many a message takes.
  static constexpr std::uint64_t count_for(std::uint64_t length) noexcept {
    return (length + kBytes - 1) / kBytes;
  }
};

// Blocks for the unexpected messages of all peers, kept from one message to the next.
class UnexpectedBlocks {
 public:
  // What is kept at most, 16 MiB: a peer that was once far ahead takes no more for good.
  static constexpr std::size_t kSpareMax = std::size_t{1} << 10;

  std::size_t spare() const noexcept { return spare_.size(); }

  // Sees to it that there are so many, those included that are in use, as far as they would be kept; and some
  // more, as steps differ a little.
  void reserve(std::uint64_t blocks) {
    if (blocks <= made_) return;
    for (const std::uint64_t wanted = std::min<std::uint64_t>(blocks + blocks / 4, kSpareMax); made_ < wanted;
         ++made_) {
      spare_.emplace_back();
    }
  }
  // Puts one at the end of `blocks`.
  void append_to(std::list<UnexpectedBlock>& blocks) {
    if (spare_.empty()) {
      blocks.emplace_back();
      ++made_;
    } else {
      blocks.splice(blocks.end(), spare_, spare_.begin());
    }
  }
  // Takes all of them back.
  void take_back(std::list<UnexpectedBlock>& blocks) noexcept {
    spare_.splice(spare_.begin(), blocks);
    while (spare_.size() > kSpareMax) spare_.pop_back();
  }

 private:
  std::list<UnexpectedBlock> spare_;
  std::size_t made_ = 0;  // ever: with those in use there are so many, or enough to be kept
};

class UnexpectedMessages {
 public:
  static constexpr std::size_t kMessagesMax = 64;
  static constexpr std::uint64_t kBytesMax = std::uint64_t{64} << 20;
  static constexpr std::uint64_t kBlocksMax = UnexpectedBlock::count_for(kBytesMax);

  struct Message {
    Tag tag = 0;
    std::uint64_t length = 0;           // as its header says
    std::uint64_t arrived = 0;          // of it
    std::list<UnexpectedBlock> blocks;  // with what has arrived
  };

  // `blocks` outlives the store.
  explicit UnexpectedMessages(UnexpectedBlocks& blocks) : blocks_(&blocks) {
    messages_.reserve(kMessagesMax);
  }

  bool has_room(std::uint64_t length) const noexcept {
    return messages_.size() < kMessagesMax && UnexpectedBlock::count_for(length) <= kBlocksMax - reserved_;
  }

  // Opens a message of which nothing has arrived: the newest. REQUIRES: has_room(length).
  void add(Tag tag, std::uint64_t length) noexcept {
    messages_.push_back({tag, length, 0, {}});
    reserved_ += UnexpectedBlock::count_for(length);
  }
  // REQUIRES: there is one.
  Message& newest() noexcept { return messages_.back(); }

  // Where the next bytes of the newest message go, at least one. Memory is taken as bytes arrive: the length
  // in a header alone never makes this rank allocate much. REQUIRES: bytes are missing.
  MutBytes room() {
    Message& message = newest();
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

  // Copies what has arrived. REQUIRES: it fits.
  static void copy(const Message& message, MutBytes into) noexcept {
    auto left = static_cast<std::size_t>(message.arrived);
    for (const UnexpectedBlock& block : message.blocks) {
      const std::size_t count = std::min(left, UnexpectedBlock::kBytes);
      std::memcpy(into.data(), block.bytes.data(), count);
      into = into.subspan(count);
      left -= count;
    }
  }

  void remove(Message& message) noexcept {
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
