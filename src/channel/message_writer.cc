#include "channel/message_writer.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/crc32c.h"
#include "base/errors.h"

namespace deltawire {

void WrittenFrames::add(Bytes payload) {
  if (!waiting_.empty() && waiting_.back().data() + waiting_.back().size() == payload.data()) {
    waiting_.back() = Bytes(waiting_.back().data(), waiting_.back().size() + payload.size());
    return;
  }
  waiting_.push_back(payload);
}

void WrittenFrames::close(Bytes head) {
  write(head);
  for (const Bytes payload : waiting_) write(payload);
  heads_.clear();
  waiting_.clear();
}

void WrittenFrames::write(Bytes bytes) noexcept {
  assert(bytes.size() <= out_.size() - written_);
  if (!bytes.empty()) std::memcpy(out_.data() + written_, bytes.data(), bytes.size());
  written_ += bytes.size();
}

MessageWriter::MessageWriter(const FrameHeader& header, MutBytes out, const Sizes& chunk,
                             WriterMemory& memory)
    : memory_(memory), frames_(out, memory), framer_(header, frames_) {
  // Chunks of the open frame and those that are kept back for it are as many bytes together as a frame's
  // target, or one chunk; so there is always room for the next one, in one piece.
  const std::uint64_t ring = std::max(kFramePayloadTarget, chunk.payload_bytes) + 2 * chunk.payload_bytes;
  if (memory_.chunks.size() < ring) memory_.chunks.resize(ring);
  if (memory_.scratch.size() < chunk.scratch_bytes) memory_.scratch.resize(chunk.scratch_bytes);
  memory_.ends.clear();
  memory_.sums.clear();
  memory_.places.clear();
}

MutBytes MessageWriter::room_for(std::uint64_t bytes) noexcept {
  if (memory_.chunks.size() - next_ < bytes) next_ = 0;
  assert(bytes <= memory_.chunks.size());
  return MutBytes(memory_.chunks).subspan(next_, bytes);
}

Status MessageWriter::code_chunk(const SentPart& part, const TensorView& values) {
  std::uint32_t end = 0;
  std::uint32_t sum = 0;
  const PartBuffer room{room_for(part.codec->sizes(values).payload_bytes), {&end, 1}, {&sum, 1}};
  ASSIGN_OR_RETURN(const EncodedPart coded,
                   part.codec->encode(values, {}, room, {.scratch = memory_.scratch}));
  assert(coded.chunks == 1 && coded.scalar == 0 && coded.scalar2 == 0);
  const Bytes chunk = room.payload.first(coded.payload_bytes);
  take_chunk(chunk, coded.has_sums ? sum : crc32c(chunk));
  next_ += chunk.size();
  return {};
}

void MessageWriter::take_chunk(Bytes chunk, std::uint32_t sum) {
  memory_.places.push_back(chunk);
  memory_.ends.push_back(static_cast<std::uint32_t>(chunk.size()) +
                         (memory_.ends.empty() ? 0 : memory_.ends.back()));
  memory_.sums.push_back(sum);
}

// The first `added` chunks are in frames.
void MessageWriter::drop(std::size_t added, std::uint64_t chunk_elements) {
  if (added == 0) return;
  const std::uint32_t start = memory_.ends[added - 1];
  const std::uint64_t elements = std::min(held_, chunk_elements * added);
  const auto count = static_cast<std::ptrdiff_t>(added);
  memory_.ends.erase(memory_.ends.begin(), memory_.ends.begin() + count);
  memory_.sums.erase(memory_.sums.begin(), memory_.sums.begin() + count);
  memory_.places.erase(memory_.places.begin(), memory_.places.begin() + count);
  for (std::uint32_t& end : memory_.ends) end -= start;
  first_ += elements;
  held_ -= elements;
}

Result<std::uint64_t> MessageWriter::code(const SentPart& part, const TensorView& values, bool copies) {
  const std::uint64_t chunk = part.codec->info().chunk_elements;
  assert(chunk > 0 && values.dtype == DType::kF32 && values.count == part.count && held_ == 0);
  std::uint64_t bytes = 0;
  first_ = 0;
  for (std::uint64_t at = 0; at < values.count;) {
    TensorView now{static_cast<const float*>(values.values) + at, std::min(chunk, values.count - at),
                   DType::kF32};
    if (values.significance != nullptr) now.significance = values.significance + at;
    if (copies) {
      const Bytes own(static_cast<const std::byte*>(now.values), sizeof(float) * now.count);
      take_chunk(own, crc32c(own));
    } else if (Status coded = code_chunk(part, now); !coded) {
      return forward_error(coded);
    }
    bytes += memory_.places.back().size();
    at += now.count;
    held_ += now.count;
    const ChunkRun run{first_, held_, memory_.ends, memory_.sums, Bytes(), memory_.places};
    drop(framer_.add_chunks(part, run, at < values.count), chunk);
  }
  assert(held_ == 0);
  return bytes;
}

std::uint64_t MessageWriter::finish() {
  framer_.finish();
  return frames_.written();
}

}  // namespace deltawire
