#include <cassert>

#include "codecs/gcomp/gcomp_chunk.h"
#include "codecs/gcomp/gcomp_heads.h"
#include "codecs/gcomp/gcomp_table.h"
#include "codecs/part_checks.h"
#include "deltawire/workers.h"

namespace deltawire::gcomp {

namespace {

Fault decode_one(const Kernels& kernels, const ChunkBytes& block, const DecodeTable& table,
                 const Target& target) {
  BlockMode mode = BlockMode::kStored;
  if (const Fault fault = read_block_mode(block.at[0], mode); fault != nullptr) return fault;
  if (mode == BlockMode::kCoded) {
    BlockBytes coded;
    const Fault fault = open_coded(block, target.count, table.in_bytes, coded);
    return fault != nullptr ? fault : kernels.decode_block(coded, table, target);
  }
  const std::uint32_t stored = mode == BlockMode::kStored ? target.count * kValueBytes : 0;
  if (block.bytes - 1 < stored) return &faults::kTruncated;
  if (block.bytes - 1 > stored) return &faults::kTrailingBytes;
  kernels.decode_stored(stored > 0 ? block.at + 1 : nullptr, target);
  return nullptr;
}

Fault decode_plain(const Kernels& kernels, ChunkMode mode, const ChunkBytes& chunk, const Target& target) {
  const std::uint32_t stored = mode == ChunkMode::kStored ? target.count * kValueBytes : 0;
  if (chunk.bytes - 1 < stored) return &faults::kTruncated;
  if (chunk.bytes - 1 > stored) return &faults::kTrailingBytes;
  kernels.decode_stored(stored > 0 ? chunk.at + 1 : nullptr, target);
  return nullptr;
}

Target target_of(const Target& chunk, std::uint32_t block) noexcept {
  Target part = rest_of(chunk, block * kBlockElements);
  part.count = block_elements(chunk.count, block);
  return part;
}

Fault decode_at(const Kernels& kernels, const BlockArea& area, std::uint32_t block, const DecodeTable& table,
                const Target& chunk) {
  ChunkBytes bytes;
  const Fault fault = block_bytes(area, block, bytes);
  return fault != nullptr ? fault : decode_one(kernels, bytes, table, target_of(chunk, block));
}

// Decodes a block and the one behind it together. False: that can't be done, or they have a fault.
bool decode_together(const Kernels& kernels, const BlockArea& area, std::uint32_t first,
                     const DecodeTable& table, const Target& chunk) {
  assert(kernels.decode_two != nullptr);
  if (first + 1 >= area.count) return false;
  BlockBytes bodies[2];
  Target targets[2];
  for (std::uint32_t i = 0; i < 2; ++i) {
    ChunkBytes bytes;
    BlockMode mode = BlockMode::kStored;
    targets[i] = target_of(chunk, first + i);
    if (targets[i].count != kBlockElements || block_bytes(area, first + i, bytes) != nullptr ||
        read_block_mode(bytes.at[0], mode) != nullptr || mode != BlockMode::kCoded ||
        open_coded(bytes, kBlockElements, table.in_bytes, bodies[i]) != nullptr) {
      return false;
    }
  }
  return kernels.decode_two(bodies, table, targets);
}

// On all threads that there are. The fault of the first block that has one.
Fault decode_blocks(const Kernels& kernels, const BlockArea& area, const DecodeTable& table,
                    const Target& target, Workers* workers) {
  assert(area.count <= kMaxBlocks);
  Fault faults[kMaxBlocks] = {};
  // Two at a time, unless threads would have to wait for each other.
  const auto threads = static_cast<std::uint32_t>(Workers::threads(workers));
  const bool two = kernels.decode_two != nullptr && (threads == 1 || 4 * threads <= area.count);
  const std::uint32_t step = two ? 2 : 1;
  Workers::share(workers, (area.count + step - 1) / step, [&](std::size_t place) {
    const std::uint32_t first = step * static_cast<std::uint32_t>(place);
    if (two && decode_together(kernels, area, first, table, target)) return;
    for (std::uint32_t i = first; i < area.count && i < first + step; ++i) {
      faults[i] = decode_at(kernels, area, i, table, target);
    }
  });
  for (std::uint32_t i = 0; i < area.count; ++i) {
    if (faults[i] != nullptr) return faults[i];
  }
  return nullptr;
}

// Codes and mantissas share a block's stream; only decoding could tell them apart.
void describe_block(const ChunkBytes& block, std::uint32_t count, bool in_bytes,
                    std::vector<Section>& sections) {
  add_section(sections, "heads", 8);
  BlockMode mode = BlockMode::kStored;
  BlockBytes coded;
  if (read_block_mode(block.at[0], mode) != nullptr) return;
  if (mode != BlockMode::kCoded) {
    add_section(sections, "stored values", (std::uint64_t{block.bytes} - 1) * 8);
    return;
  }
  if (open_coded(block, count, in_bytes, coded) != nullptr) return;
  add_section(sections, "heads", (kCodedHeadBytes - 1) * 8);
  add_section(sections, "lanes", std::uint64_t{states_bytes(count, in_bytes)} * 8);
  add_section(sections, "codes and mantissas", std::uint64_t{coded.stream_bytes} * 8);
}

}  // namespace

Fault decode_chunk(const Kernels& kernels, const ChunkBytes& chunk, const Target& target, Workers* workers) {
  ChunkHead head;
  if (const Fault fault = read_head(chunk.at[0], head); fault != nullptr) return fault;
  if (head.mode == ChunkMode::kStored || head.mode == ChunkMode::kZeros) {
    return decode_plain(kernels, head.mode, chunk, target);
  }
  const TableBytes in = table_bytes(head, chunk);
  DecodeTable table;
  std::uint32_t used = 0;
  if (const Fault fault = read_table(in, table, used); fault != nullptr) return fault;
  BlockArea area;
  const Fault opened = open_blocks(in.at + used, in.bytes - used, block_count(target.count), area);
  if (opened != nullptr) return opened;
  return decode_blocks(kernels, area, table, target, workers);
}

void describe_chunk(const ChunkBytes& chunk, std::uint32_t count, std::vector<Section>& sections) {
  add_section(sections, "heads", 8);
  ChunkHead head;
  if (read_head(chunk.at[0], head) != nullptr) return;
  if (head.mode == ChunkMode::kStored || head.mode == ChunkMode::kZeros) {
    add_section(sections, "stored values", (std::uint64_t{chunk.bytes} - 1) * 8);
    return;
  }
  const TableBytes in = table_bytes(head, chunk);
  DecodeTable table;
  std::uint32_t used = 0;
  BlockArea area;
  if (read_table(in, table, used) != nullptr) return;
  if (open_blocks(in.at + used, in.bytes - used, block_count(count), area) != nullptr) return;
  add_section(sections, "tables", std::uint64_t{used} * 8);
  add_section(sections, "block index", (std::uint64_t{area.count} - 1) * kIndexEntryBytes * 8);
  for (std::uint32_t i = 0; i < area.count; ++i) {
    ChunkBytes block;
    if (block_bytes(area, i, block) != nullptr) return;
    describe_block(block, block_elements(count, i), table.in_bytes, sections);
  }
}

}  // namespace deltawire::gcomp
