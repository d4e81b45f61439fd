// Where things stand in a chunk: its first byte, table, index of blocks, and what each block begins with
// (spec.md, sections 1 to 3). The reading half gets hostile bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/gcomp/gcomp_table.h"
#include "codecs/kernels/chunk_bytes.h"

namespace deltawire::gcomp {

inline constexpr unsigned kLevelShift = 2;  // in a chunk's first byte
inline constexpr unsigned kTableShift = 5;
inline constexpr unsigned kHalfShift = 7;
inline constexpr std::uint32_t kIndexEntryBytes = 4;

constexpr std::uint32_t block_count(std::uint32_t count) noexcept {
  return (count + kBlockElements - 1) / kBlockElements;
}

constexpr std::uint32_t block_elements(std::uint32_t count, std::uint32_t block) noexcept {
  const std::uint32_t left = count - block * kBlockElements;
  return left < kBlockElements ? left : kBlockElements;
}

// The first byte of a chunk.
struct ChunkHead {
  ChunkMode mode = ChunkMode::kStored;
  std::uint32_t level = 0;
  std::uint32_t table_id = 0;
  Precision precision = {};
};

inline std::byte write_head(const ChunkHead& head) noexcept {
  const std::uint32_t number = head.precision.is_half() ? head.precision.in_chunk : head.level;
  return static_cast<std::byte>(static_cast<unsigned>(head.mode) | number << kLevelShift |
                                head.table_id << kTableShift |
                                (head.precision.is_half() ? 1U : 0U) << kHalfShift);
}

constexpr bool is_of_halves(std::byte first) noexcept {
  return std::to_integer<std::uint32_t>(first) >> kHalfShift != 0;
}

constexpr ChunkMode mode_of(std::byte first) noexcept {
  return static_cast<ChunkMode>(std::to_integer<std::uint32_t>(first) & 3);
}

// A chunk of 16-bit values has the number of their type in the level's place.
inline Fault read_half_head(std::uint32_t number, ChunkHead& head) noexcept {
  for (const Precision& each : {kBFloat16, kFloat16}) {
    if (each.in_chunk == number) head.precision = each;
  }
  const bool coded = head.mode == ChunkMode::kWhole || head.mode == ChunkMode::kCut;
  const bool known = coded && head.table_id == 0 && head.precision.is_half();
  return known ? nullptr : &faults::kChunkMode;
}

// kChunkMode for bits that mean nothing: a static table has a level exactly where mantissas are cut.
inline Fault read_head(std::byte first, ChunkHead& head) noexcept {
  const auto value = std::to_integer<std::uint32_t>(first);
  head.mode = mode_of(first);
  head.level = value >> kLevelShift & 7;
  head.table_id = value >> kTableShift & 3;
  if (is_of_halves(first)) return read_half_head(std::exchange(head.level, 0), head);
  const bool coded = head.mode == ChunkMode::kWhole || head.mode == ChunkMode::kCut;
  const bool leveled = head.mode == ChunkMode::kCut && head.table_id != 0;
  const bool known = head.table_id <= (coded ? kStaticTables : 0U) && leveled == (head.level != 0);
  return known ? nullptr : &faults::kChunkMode;
}

inline TableBytes table_bytes(const ChunkHead& head, const ChunkBytes& chunk) noexcept {
  return {chunk.at + 1, chunk.bytes - 1, head.mode == ChunkMode::kWhole,
          head.level,   head.table_id,   head.precision};
}

// Index and blocks of a coded chunk, behind its table.
struct BlockArea {
  const std::byte* index = nullptr;
  const std::byte* blocks = nullptr;
  std::uint32_t count = 0;  // blocks
  std::uint32_t bytes = 0;  // of all blocks
};

inline Fault open_blocks(const std::byte* at, std::uint32_t bytes, std::uint32_t count,
                         BlockArea& area) noexcept {
  const std::uint32_t index_bytes = (count - 1) * kIndexEntryBytes;
  if (bytes < index_bytes) return &faults::kTruncated;
  area = {at, at + index_bytes, count, bytes - index_bytes};
  return nullptr;
}

// A coded block begins with 3 bytes: in the low bits its mode, above them the size of its stream.
inline constexpr std::uint32_t kCodedHeadBytes = 3;
inline constexpr unsigned kBlockModeBits = 2;

inline void write_coded_head(std::uint32_t stream_bytes, std::byte* out) noexcept {
  const std::uint32_t head = static_cast<std::uint32_t>(BlockMode::kCoded) | stream_bytes << kBlockModeBits;
  for (unsigned i = 0; i < kCodedHeadBytes; ++i) out[i] = static_cast<std::byte>(head >> 8 * i);
}

// Finds the stream of a coded block of `count` values, and that all of it and its lanes are there.
inline Fault open_coded(const ChunkBytes& block, std::uint32_t count, bool in_bytes,
                        BlockBytes& out) noexcept {
  if (block.bytes < kCodedHeadBytes) return &faults::kTruncated;
  std::uint32_t head = 0;
  for (unsigned i = 0; i < kCodedHeadBytes; ++i) head |= std::to_integer<std::uint32_t>(block.at[i]) << 8 * i;
  out = {block.at + kCodedHeadBytes, head >> kBlockModeBits};
  const std::uint32_t bytes = kCodedHeadBytes + out.stream_bytes + states_bytes(count, in_bytes);
  if (block.bytes < bytes) return &faults::kTruncated;
  return block.bytes > bytes ? &faults::kTrailingBytes : nullptr;
}

// The mode of a block; kBlockMode for bits that mean nothing.
inline Fault read_block_mode(std::byte first, BlockMode& mode) noexcept {
  const auto value = std::to_integer<std::uint32_t>(first);
  mode = static_cast<BlockMode>(value & 3);
  const bool known = mode == BlockMode::kCoded || value <= static_cast<std::uint32_t>(BlockMode::kZeros);
  return known ? nullptr : &faults::kBlockMode;
}

// The bytes of block `block`, its mode included. Blocks have at least one byte, so ends grow strictly.
inline Fault block_bytes(const BlockArea& area, std::uint32_t block, ChunkBytes& out) noexcept {
  const auto end_of = [&area](std::uint32_t i) {
    return i + 1 < area.count ? load_le<std::uint32_t>(area.index + i * kIndexEntryBytes) : area.bytes;
  };
  const std::uint32_t begin = block > 0 ? end_of(block - 1) : 0;
  const std::uint32_t end = end_of(block);
  // The last end is what is there. Ends beyond it mean that the rest is missing.
  if (end > area.bytes || (block + 1 == area.count && end <= begin)) return &faults::kTruncated;
  if (end <= begin) return &faults::kBlockIndex;
  out = {area.blocks + begin, end - begin};
  return nullptr;
}

inline constexpr std::uint32_t kMaxHeadBytes = 1 + kMaxTableBytes + (kMaxBlocks - 1) * kIndexEntryBytes;

}  // namespace deltawire::gcomp
