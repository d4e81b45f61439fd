#include "channel/message_maker.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "channel/distinct_tensors.h"

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

void PayloadMaker::open(Message& message, std::uint64_t bound) {
  if (bound == 0) return;
  largest_bound_ = std::max(largest_bound_, bound);
  if (room_.bytes().size() < bound) {
    room_.reset();
    room_ = pool_.take(bound);
  }
  message.payload = std::move(room_);
  assert(message.payload.bytes().size() >= bound);
}

void PayloadMaker::close(Message& message, std::span<SentPart> parts) {
  std::uint64_t used = 0;
  for (const SentPart& part : parts) used += part.encoded.payload.size();
  assert(used <= message.payload.bytes().size());
  const bool far_below = message.is_needed && used <= message.payload.bytes().size() / 4 * 3;
  const std::uint64_t slack = used / 16 + 512;  // what the next step's message may be longer by
  BufferPool::Buffer exact = far_below ? pool_.take(used, slack) : BufferPool::Buffer();
  std::byte* at = far_below ? exact.bytes().data() : message.payload.bytes().data();
  for (SentPart& part : parts) {
    Bytes& bytes = part.encoded.payload;
    assert(bytes.empty() || far_below || bytes.data() >= at);
    if (!bytes.empty() && bytes.data() != at) std::memmove(at, bytes.data(), bytes.size());
    bytes = Bytes(at, bytes.size());
    at += bytes.size();
  }
  if (!far_below) return;
  room_ = std::move(message.payload);
  message.payload = std::move(exact);
}

void PayloadMaker::end_step() noexcept {
  if (room_.bytes().size() > largest_bound_) room_.reset();
  largest_bound_ = 0;
  pool_.end_step();
}

void PayloadMaker::clear() noexcept {
  room_.reset();
  largest_bound_ = 0;
  pool_.clear();
}

namespace {

constexpr std::size_t kMostLayouts = 4096;  // for programs whose messages are others in every step

}  // namespace

Status MessageMaker::check_distinct(const MessageLayout& layout) {
  if (distinct_.contains(layout.hash)) return {};
  RETURN_IF_ERROR(check_parts(layout.parts));
  if (distinct_.size() == kMostLayouts) distinct_.clear();
  distinct_.insert(layout.hash);
  return {};
}

void MessageMaker::open(const MessageLayout& layout, std::uint64_t step, bool is_needed, std::uint64_t room,
                        const MessageBounds& bounds, bool leaves_alone) {
  Message& message = record_.messages().add(bounds.lists());
  message.is_needed = is_needed;
  payloads_.open(message, std::max(bounds.payload_bytes, is_needed ? 0 : room));
  jobs_.reserve(jobs_.size() + bounds.parts);
  record_.reserve(jobs_.size() + bounds.parts);
  Sizes at;  // where the next part's buffer begins
  const std::size_t first = jobs_.size();
  std::size_t parts = opened_.empty() ? 0 : opened_.back().end;
  for (const Named& part : layout.parts) {
    if (part.tensor.elements() == 0) continue;
    ++parts;
    const bool is_left = leaves_alone && encoder_.codes_alone(part, step);
    const Sizes sizes = is_left ? Sizes() : encoder_.sizes(part, step);
    const PartBuffer buffer = message.buffer_behind(at, sizes);
    at.payload_bytes += sizes.payload_bytes;
    at.chunks += sizes.chunks;
    const bool is_copied = joins_copies_ && encoder_.only_copies(part, step);
    if (is_copied && jobs_.size() > first && jobs_.back().take_copied(sizes)) continue;
    PartJob& job = jobs_.emplace_back();
    job.part = &part;
    job.is_left = is_left;
    job.copied_parts = is_copied ? 1 : 0;
    job.buffer = buffer;
    job.sent.index = static_cast<std::uint32_t>(&part - layout.parts.data());
    job.coded = encoder_.open(part, step, job.sent);
  }
  assert(at.payload_bytes == bounds.payload_bytes && at.chunks == bounds.chunks);
  assert(jobs_.size() <= first + bounds.parts);
  opened_.push_back({&message, parts, layout.hash});
}

Status MessageMaker::record_jobs() {
  for (const PartJob& job : jobs_) record_job(job, record_);
  for (const PartJob& job : jobs_) {
    if (!job.coded) return job.coded;
  }
  return {};
}

Status MessageMaker::close(const MessageId& id, std::uint32_t params_hash) {
  const std::size_t earlier = record_.parts().size();
  RETURN_IF_ERROR(record_jobs());
  std::size_t begin = 0;
  for (const Opened& each : opened_) {
    assert(begin <= each.end);
    const std::span<SentPart> sent = record_.parts().subspan(earlier + begin, each.end - begin);
    payloads_.close(*each.message, sent);
    frame_message(sent, {id, params_hash, each.layout_hash}, *each.message);
    each.message->count();
    begin = each.end;
  }
  assert(earlier + begin == record_.parts().size());
  return {};
}

namespace {

// Shorter ones are copied: a piece of its own costs a send as much.
constexpr std::uint64_t kLeastInPlace = 16384;

// Where the chunks of so many bytes end, in the first of `ends`.
std::span<const std::uint32_t> fill_ends(std::uint64_t bytes, std::uint64_t chunk_bytes,
                                         std::span<std::uint32_t> ends) noexcept {
  const std::span<std::uint32_t> own = ends.first(ceil_div(bytes, chunk_bytes));
  std::uint64_t end = 0;
  for (std::uint32_t& each : own) {
    end = std::min(bytes, end + chunk_bytes);
    each = static_cast<std::uint32_t>(end);
  }
  return own;
}

}  // namespace

// Raw parts are copied, too: a segment may hold several, one behind the other.
std::span<const Bytes> MessageMaker::make_in_place(const MessageLayout& layout, const MessageId& id,
                                                   std::uint32_t params_hash, bool sums) {
  const auto bytes_of = [](const Named& part) {
    return std::as_bytes(std::span(static_cast<const float*>(part.tensor.values), part.tensor.count));
  };
  const auto stays = [&](const Named& part) {
    return bytes_of(part).size() >= kLeastInPlace && !encoder_.only_copies(part, id.step);
  };
  const MessageBounds bounds = bounds_of(layout.parts, id.step, encoder_);
  MessageLists lists = bounds.lists();
  std::uint64_t copied = 0;
  for (const Named& part : layout.parts) stays(part) ? lists.pieces += 2 : copied += bytes_of(part).size();
  Message& message = record_.messages().add(lists);
  message.is_needed = false;
  payloads_.open(message, copied);
  const std::size_t earlier = record_.parts().size();
  record_.reserve(bounds.parts);
  MutBytes room = message.payload.bytes();
  std::span<std::uint32_t> ends(message.chunk_ends);
  if (!sums) std::ranges::fill(message.chunk_sums, 0);
  for (const Named& part : layout.parts) {
    if (part.tensor.elements() == 0) continue;
    SentPart sent;
    sent.index = static_cast<std::uint32_t>(&part - layout.parts.data());
    [[maybe_unused]] const Status opened = encoder_.open(part, id.step, sent);
    assert(opened && sent.residual == nullptr);
    Bytes values = bytes_of(part);
    if (!stays(part)) {
      std::memcpy(room.data(), values.data(), values.size());
      values = room.first(values.size());
      room = room.subspan(values.size());
    }
    sent.encoded = {values,
                    fill_ends(values.size(), sizeof(float) * sent.codec->info().chunk_elements, ends)};
    ends = ends.subspan(sent.encoded.chunk_ends.size());
    if (!sums) sent.sums = std::span(message.chunk_sums).first(sent.encoded.chunk_ends.size());
    sent.is_lent = !sums;
    sent.state = SegmentState::kCoded;
    record_.add(sent);
  }
  frame_message(record_.parts().subspan(earlier), {id, params_hash, layout.hash}, message);
  message.count();
  return message.pieces;
}

// What is left is as long as its codec makes it, and never more than its bound: the heads too, since parts
// are cut as in other messages.
Result<std::uint64_t> MessageMaker::write(const MessageId& id, std::uint32_t params_hash, const Sizes& chunk,
                                          MutBytes out) {
  assert(opened_.size() == 1);
  Message& message = *opened_.front().message;
  const std::size_t earlier = record_.parts().size();
  RETURN_IF_ERROR(record_jobs());
  const std::span<SentPart> sent = record_.parts().subspan(earlier);
  if (sent.empty()) return 0;
  payloads_.close(message, sent);
  MessageWriter writer(
      {.message = id, .params_hash = params_hash, .layout_hash = opened_.front().layout_hash}, out, chunk,
      writing_);
  std::size_t begin = 0;  // of the parts that are coded and not in the writer yet
  std::size_t next = 0;
  for (const PartJob& job : jobs_) {
    if (job.is_left) {
      writer.add(sent.subspan(begin, next - begin));
      SentPart& part = sent[next];
      part.state = SegmentState::kCoded;
      const auto bytes = writer.code(part, as_view(job.part->tensor), encoder_.copies_chunks(part));
      if (!bytes) return name_part(*job.part, bytes.error());
      part.encoded.payload = out.first(*bytes);  // for its length
      begin = next + 1;
    }
    next += std::max<std::uint32_t>(1, job.copied_parts);
  }
  assert(next == sent.size());
  writer.add(sent.subspan(begin));
  const std::uint64_t bytes = writer.finish();
  message.count();
  if (!message.is_needed) {
    message.payload.reset();
    message.is_released = true;
  }
  return bytes;
}

}  // namespace deltawire
