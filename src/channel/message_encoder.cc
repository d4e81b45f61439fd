#include "channel/message_encoder.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/little_endian.h"
#include "wire/frame_layout.h"

namespace deltawire {
namespace {

// Frames that stay where they are: heads one after another, payloads wherever the parts' bytes lie.
class StayingFrames {
 public:
  explicit StayingFrames(Message& message) : message_(message) {}

  std::vector<std::byte>& heads() const noexcept { return message_.heads; }
  void add(Bytes payload) {
    begin();
    Bytes& last = message_.pieces.back();
    if (!last.empty() && last.data() + last.size() == payload.data()) {
      last = Bytes(last.data(), last.size() + payload.size());
    } else {
      message_.pieces.push_back(payload);
    }
  }
  void close(Bytes) {
    if (!is_open_) add({});
    is_open_ = false;
  }

  // After the last frame: puts the heads, which say how long they and their payloads are, into their places.
  void finish() {
    Bytes heads(message_.heads);
    for (std::size_t i = 0; i < message_.pieces.size();) {
      const auto head_bytes = load_le<std::uint32_t>(heads.data() + frame_layout::kHeadBytesAt);
      std::uint64_t payload = load_le<std::uint32_t>(heads.data() + frame_layout::kFrameBytesAt) - head_bytes;
      message_.pieces[i++] = heads.first(head_bytes);
      heads = heads.subspan(head_bytes);
      do {
        assert(i < message_.pieces.size() && message_.pieces[i].size() <= payload);
        payload -= message_.pieces[i++].size();
      } while (payload > 0);
    }
    assert(heads.empty());
  }

 private:
  // Leaves a place for the head.
  void begin() {
    if (!std::exchange(is_open_, true)) message_.pieces.emplace_back();
  }

  Message& message_;
  bool is_open_ = false;  // the frame that is being built
};

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
  StayingFrames frames(message);
  Framer<StayingFrames> framer(header, frames);
  framer.add_all(parts);
  framer.finish();
  frames.finish();
}

}  // namespace deltawire
