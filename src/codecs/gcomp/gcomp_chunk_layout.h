// Where things stand in a chunk: shared by decoding and describing.
#pragma once

#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_chunk.h"

namespace deltawire::gcomp {

inline constexpr unsigned kLevelShift = 2;  // in a chunk's first byte
inline constexpr unsigned kTableShift = 4;
inline constexpr std::uint32_t kIndexEntryBytes = 4;

inline constexpr std::uint32_t block_count(std::uint32_t count) noexcept {
  return (count + kBlockElements - 1) / kBlockElements;
}

inline constexpr std::uint32_t block_elements(std::uint32_t count, std::uint32_t block) noexcept {
  const std::uint32_t left = count - block * kBlockElements;
  return left < kBlockElements ? left : kBlockElements;
}

// The first byte of a chunk.
struct ChunkHead {
  ChunkMode mode = ChunkMode::kStored;
  std::uint32_t uniform_level = 0;
  std::uint32_t table_id = 0;
};

inline std::byte write_head(const ChunkHead& head) noexcept {
  return static_cast<std::byte>(static_cast<unsigned>(head.mode) | head.uniform_level << kLevelShift |
                                head.table_id << kTableShift);
}

// kChunkMode for bits that mean nothing.
inline Fault read_head(std::byte first, ChunkHead& head) noexcept {
  const auto value = std::to_integer<std::uint32_t>(first);
  head.mode = static_cast<ChunkMode>(value & 3);
  head.uniform_level = value >> kLevelShift & 3;
  head.table_id = value >> kTableShift;
  const bool bare = head.uniform_level == 0 && head.table_id == 0;
  return head.table_id <= kStaticTables && (bare || head.mode == ChunkMode::kUniform) ? Fault::kNone
                                                                                      : Fault::kChunkMode;
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
  if (bytes < index_bytes) return Fault::kTruncated;
  area = {at, at + index_bytes, count, bytes - index_bytes};
  return Fault::kNone;
}

// The bytes of block `block`, mode byte included. Blocks have at least one byte, so ends grow strictly.
inline Fault block_bytes(const BlockArea& area, std::uint32_t block, ChunkBytes& out) noexcept {
  const auto end_of = [&area](std::uint32_t i) {
    return i + 1 < area.count ? load_le<std::uint32_t>(area.index + i * kIndexEntryBytes) : area.bytes;
  };
  const std::uint32_t begin = block > 0 ? end_of(block - 1) : 0;
  const std::uint32_t end = end_of(block);
  // The last end is what is there. Ends beyond it mean that the rest is missing.
  if (end > area.bytes || (block + 1 == area.count && end <= begin)) return Fault::kTruncated;
  if (end <= begin) return Fault::kBlockIndex;
  out = {area.blocks + begin, end - begin};
  return Fault::kNone;
}

}  // namespace deltawire::gcomp
