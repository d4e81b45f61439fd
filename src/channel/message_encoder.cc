#include "channel/message_encoder.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/little_endian.h"
#include "channel/framer.h"
#include "wire/frame_layout.h"

namespace deltawire {
namespace {

// Frames that stay where they are: heads one after another, payloads in the message's.
struct StayingFrames {
  std::vector<std::byte>& heads() const noexcept { return message.heads; }
  static void add(Bytes) noexcept {}
  static void close(Bytes) noexcept {}

  Message& message;
};

// The heads say how long they are, and their payloads.
void list_pieces(Message& message) {
  Bytes heads(message.heads);
  Bytes payload(message.payload.bytes());
  while (!heads.empty()) {
    const std::uint64_t head_bytes = load_le<std::uint32_t>(heads.data() + frame_layout::kHeadBytesAt);
    const std::uint64_t frame_bytes = load_le<std::uint32_t>(heads.data() + frame_layout::kFrameBytesAt);
    assert(frame_bytes >= head_bytes && frame_bytes - head_bytes <= payload.size());
    message.pieces.push_back(heads.first(head_bytes));
    heads = heads.subspan(head_bytes);
    message.pieces.push_back(payload.first(frame_bytes - head_bytes));
    payload = payload.subspan(frame_bytes - head_bytes);
  }
}

}  // namespace

Message& StepMessages::add(const MessageLists& lists) {
  assert(used_ <= all_.size());
  if (used_ == all_.size()) all_.emplace_back().held = MeteredBytes(meter_, MemoryMeter::Use::kMessages);
  longest_ = {std::max(longest_.chunks, lists.chunks), std::max(longest_.head_bytes, lists.head_bytes),
              std::max(longest_.pieces, lists.pieces)};
  Message& message = all_[used_++];
  for (std::vector<std::uint32_t>* const list : {&message.chunk_ends, &message.chunk_sums}) {
    list->reserve(longest_.chunks);
    list->resize(lists.chunks);
  }
  message.heads.reserve(longest_.head_bytes);
  message.heads.clear();
  message.pieces.reserve(longest_.pieces);
  message.pieces.clear();
  message.is_needed = true;
  message.is_released = false;
  return message;
}

// Messages are released nearly in their order, so that the search is short.
void StepMessages::release(std::span<const Bytes> pieces) noexcept {
  for (std::size_t i = first_unreleased_; i < used_; ++i) {
    if (all_[i].is_released || all_[i].pieces.data() != pieces.data()) continue;
    all_[i].is_released = true;
    if (!all_[i].is_needed) all_[i].payload.reset();
    break;
  }
  while (first_unreleased_ < used_ && all_[first_unreleased_].is_released) ++first_unreleased_;
}

void StepMessages::end_step() noexcept {
  assert(first_unreleased_ <= used_ && used_ <= all_.size());
  while (all_.size() > used_) all_.pop_back();
  for (Message& message : all_) message.payload.reset();
  used_ = 0;
  first_unreleased_ = 0;
}

void StepMessages::swap(StepMessages& other) noexcept {
  all_.swap(other.all_);
  std::swap(used_, other.used_);
  std::swap(first_unreleased_, other.first_unreleased_);
  std::swap(longest_, other.longest_);
}

MessageLists lists_of(std::uint64_t payload_bytes, std::uint64_t chunks, std::uint64_t parts) noexcept {
  // A frame is closed for its bytes only when the next chunk would not fit: two neighbours hold more than
  // the target together. Each cut adds a frame and at most one more segment.
  const std::uint64_t frames = 2 + 2 * (payload_bytes / kFramePayloadTarget) + parts / kMaxFrameSegments;
  return {.chunks = chunks,
          .head_bytes = kFrameHeaderBytesMax * frames + kSegmentBytesMax * (parts + frames) +
                        kChunkEntryBytesMax * chunks,
          .pieces = 2 * frames};
}

void frame_message(std::span<const SentPart> parts, FrameHeader header, Message& message) {
  if (parts.empty()) return;
  assert(message.heads.empty() && message.pieces.empty());
  header.seq = 0;
  StayingFrames frames{message};
  Framer<StayingFrames> framer(header, frames);
  framer.add_all(parts);
  framer.finish();
  list_pieces(message);
}

}  // namespace deltawire
