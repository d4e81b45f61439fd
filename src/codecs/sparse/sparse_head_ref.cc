// A chunk's head, for every target.
#include <cstddef>
#include <cstdint>

#include "base/little_endian.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

constexpr unsigned kParameterMask = 31;

// Fills in head and content from a chunk's first bytes; lane lengths are read later.
Fault read_code(const ChunkBytes& chunk, Head& head, ChunkContent& content) noexcept {
  if (chunk.bytes < kEmptyHeadBytes) return Fault::kTruncated;
  const auto code = static_cast<unsigned>(chunk.at[0]);
  head.parameter = code & kParameterMask;
  head.lanes = 1U << (code >> kLaneShift);
  content.positions = load_le<std::uint16_t>(chunk.at + 1);
  content.head_bytes = kEmptyHeadBytes;
  if (head.parameter > kMaxParameter) return Fault::kParameter;
  if (head.lanes != 1 && head.lanes != 4 && head.lanes != kMaxLanes) return Fault::kLanes;
  if (content.positions > kChunkPositions) return Fault::kCount;
  if (content.positions < 2 && code != 0) return Fault::kUnusedCode;
  if (content.positions == 0) return chunk.bytes > kEmptyHeadBytes ? Fault::kTrailingBytes : Fault::kNone;
  content.head_bytes = kHeadBytes + kLaneLengthBytes * (head.lanes - 1);
  if (chunk.bytes < content.head_bytes) return Fault::kTruncated;
  head.first = load_le<std::uint32_t>(chunk.at + kEmptyHeadBytes);
  return Fault::kNone;
}

Fault open_streams(const ChunkBytes& chunk, std::uint32_t head_bytes, Head& head) noexcept {
  std::uint32_t at = head_bytes;
  for (unsigned lane = 0; lane + 1 < head.lanes; ++lane) {
    const std::uint32_t bytes = load_le<std::uint16_t>(chunk.at + kHeadBytes + kLaneLengthBytes * lane);
    if (bytes > chunk.bytes - at) return Fault::kTruncated;
    head.streams[lane] = {chunk.at + at, bytes};
    at += bytes;
  }
  head.streams[head.lanes - 1] = {chunk.at + at, chunk.bytes - at};
  return Fault::kNone;
}

}  // namespace

Fault read_head(const ChunkBytes& chunk, std::uint64_t begin, std::uint64_t count, Head& head,
                ChunkContent& content) {
  if (const Fault fault = read_code(chunk, head, content); fault != Fault::kNone) return fault;
  content.next = begin;
  if (content.positions == 0) return Fault::kNone;
  if (head.first < begin) return Fault::kOrder;
  if (head.first >= count) return Fault::kPosition;
  return open_streams(chunk, content.head_bytes, head);
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
