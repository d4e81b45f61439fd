#include "codecs/gcomp/gcomp_chunk.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "codecs/gcomp/gcomp_chunk_layout.h"

namespace deltawire::gcomp {

namespace {

constexpr std::uint32_t kMaxHeadBytes = 1 + kMaxTableBytes + (kMaxBlocks - 1) * kIndexEntryBytes;
constexpr std::uint64_t kBlockScratchBytes = kBlockElements * (4 + 4) + kWordRoom * 2 + kMantissaRoom;
static_assert(kBlockScratchBytes % alignof(std::uint32_t) == 0);

// The arrays of the caller's scratch memory that the block in this place works in.
BlockParts cut_scratch(MutBytes scratch, std::size_t place) noexcept {
  std::byte* at = scratch.data() + place * kBlockScratchBytes;
  BlockParts parts;
  parts.values = reinterpret_cast<std::uint32_t*>(at);
  parts.codes = parts.values + kBlockElements;
  parts.words = reinterpret_cast<std::uint16_t*>(parts.codes + kBlockElements);
  parts.mantissas = reinterpret_cast<std::byte*>(parts.words + kWordRoom);
  return parts;
}

std::uint32_t body_bytes(const BlockParts& parts, std::uint32_t count) noexcept {
  return 2 + lanes_for(count) * 4 + parts.mantissa_bytes + parts.word_count * 2;
}

void write_stored(const BlockParts& parts, std::uint32_t count, std::byte* out) noexcept {
  for (std::uint32_t i = 0; i < count; ++i) store_le(out + i * kValueBytes, parts.values[i]);
}

void write_body(const BlockParts& parts, std::uint32_t count, std::byte* out) noexcept {
  store_le(out, static_cast<std::uint16_t>(parts.word_count));
  out += 2;
  for (unsigned lane = 0; lane < lanes_for(count); ++lane, out += 4) store_le(out, parts.states[lane]);
  const std::uint16_t* words = parts.words + (kWordRoom - parts.word_count);
  for (std::uint32_t i = 0; i < parts.word_count; ++i, out += 2) store_le(out, words[i]);
  if (parts.mantissa_bytes > 0) std::memcpy(out, parts.mantissas, parts.mantissa_bytes);
}

// The smallest way to write a block, ties to the lower mode.
BlockMode smallest_mode(const BlockParts& parts, std::uint32_t count) noexcept {
  if (parts.zeros) return BlockMode::kZeros;
  return body_bytes(parts, count) < count * kValueBytes ? BlockMode::kCoded : BlockMode::kStored;
}

std::uint32_t write_block(BlockMode mode, const BlockParts& parts, std::uint32_t count,
                          std::byte* out) noexcept {
  out[0] = static_cast<std::byte>(mode);
  switch (mode) {
    case BlockMode::kZeros: return 1;
    case BlockMode::kStored: write_stored(parts, count, out + 1); return 1 + count * kValueBytes;
    case BlockMode::kCoded: write_body(parts, count, out + 1); return 1 + body_bytes(parts, count);
  }
  return 0;
}

Values block_of(const Values& chunk, std::uint32_t block) noexcept {
  Values values = chunk;
  const std::uint32_t at = block * kBlockElements;
  values.in += at;
  if (values.residual != nullptr) values.residual += at;
  if (values.significance != nullptr) values.significance += at;
  values.count = block_elements(chunk.count, block);
  return values;
}

// What stands before the blocks of a chunk.
struct Prologue {
  std::byte bytes[kMaxHeadBytes];
  std::uint32_t size = 0;
};

void write_prologue(const TableChoice& choice, const Rule& rule, Prologue& prologue) noexcept {
  ChunkHead head{rule.mixed() ? ChunkMode::kMixed : ChunkMode::kUniform, rule.uniform_level(), choice.id};
  prologue.bytes[0] = write_head(head);
  prologue.size = 1 + write_table(choice, rule.mixed(), prologue.bytes + 1);
}

// A chunk of one block: written whole as what is smallest.
std::uint32_t write_single(const Prologue& prologue, const BlockParts& parts, std::uint32_t count,
                           std::byte* out) noexcept {
  if (parts.zeros) {
    out[0] = write_head({.mode = ChunkMode::kZeros});
    return 1;
  }
  if (prologue.size + 1 + body_bytes(parts, count) >= 1 + count * kValueBytes) {
    out[0] = write_head({.mode = ChunkMode::kStored});
    write_stored(parts, count, out + 1);
    return 1 + count * kValueBytes;
  }
  std::memcpy(out, prologue.bytes, prologue.size);
  return prologue.size + write_block(BlockMode::kCoded, parts, count, out + prologue.size);
}

// What becomes of a chunk whose blocks, written behind `prologue`, are all zeros or stored, and which needs
// no table therefore: all zeros are one byte, stored blocks alone are stored values, and of a mixture the
// index stays, behind the shortest table that there is. Returns the chunk's bytes.
std::uint32_t drop_table(const Prologue& prologue, std::uint32_t count, std::uint32_t stored, std::byte* out,
                         std::uint32_t bytes) noexcept {
  const std::uint32_t blocks = block_count(count);
  if (stored == 0) {
    out[0] = write_head({.mode = ChunkMode::kZeros});
    return 1;
  }
  if (stored < blocks) {
    out[0] = write_head({.mode = ChunkMode::kUniform});
    out[1] = two_lengths(1, 1);  // the escape and zero
    out[2] = std::byte{0};
    std::memmove(out + 3, out + prologue.size, bytes - prologue.size);
    return bytes - prologue.size + 3;
  }
  out[0] = write_head({.mode = ChunkMode::kStored});
  const std::byte* area = out + prologue.size + (blocks - 1) * kIndexEntryBytes;
  for (std::uint32_t block = 0; block < blocks; ++block) {
    const std::uint32_t at = block * kBlockElements * kValueBytes;
    std::memmove(out + 1 + at, area + block + 1 + at, block_elements(count, block) * kValueBytes);
  }
  return 1 + count * kValueBytes;
}

// Codes blocks on all threads that there are, and writes them one after another into their place behind
// prologue and index.
std::uint32_t write_blocks(const Kernels& kernels, const Values& chunk, const EncodeTable& table,
                           const Prologue& prologue, const Exec& exec, std::byte* out) {
  const std::uint32_t blocks = block_count(chunk.count);
  std::byte* index = out + prologue.size;
  std::byte* area = index + (blocks - 1) * kIndexEntryBytes;
  std::uint32_t written = 0;
  std::uint32_t zeros = 0;
  std::uint32_t stored = 0;
  BlockParts parts[kMaxBlocks];
  // One thread goes block by block, so that what it writes is still in its cache.
  const std::uint32_t at_once = Workers::threads(exec.workers) > 1 ? kMaxBlocks : 1;
  for (std::uint32_t block = 0; block < blocks; ++block) {
    if (block % at_once == 0) {
      Workers::share(exec.workers, std::min(at_once, blocks - block), [&](std::size_t place) {
        parts[place] = cut_scratch(exec.scratch, place);
        kernels.encode_block(block_of(chunk, block + static_cast<std::uint32_t>(place)), table, parts[place]);
      });
    }
    const BlockParts& coded = parts[block % at_once];
    const std::uint32_t count = block_elements(chunk.count, block);
    const BlockMode mode = smallest_mode(coded, count);
    zeros += mode == BlockMode::kZeros ? 1 : 0;
    stored += mode == BlockMode::kStored ? 1 : 0;
    written += write_block(mode, coded, count, area + written);
    if (block + 1 < blocks) store_le(index + block * kIndexEntryBytes, written);
  }
  const std::uint32_t bytes = static_cast<std::uint32_t>(area - out) + written;
  if (zeros + stored == blocks) return drop_table(prologue, chunk.count, stored, out, bytes);
  std::memcpy(out, prologue.bytes, prologue.size);
  return bytes;
}

Fault decode_one(const Kernels& kernels, const ChunkBytes& block, const DecodeTable& table,
                 const Target& target) {
  const std::byte* body = block.at + 1;
  const std::uint32_t bytes = block.bytes - 1;
  std::uint32_t stored = 0;
  switch (static_cast<BlockMode>(block.at[0])) {
    case BlockMode::kCoded: return kernels.decode_block({body, bytes}, table, target);
    case BlockMode::kZeros: break;
    case BlockMode::kStored: stored = target.count * kValueBytes; break;
    default: return Fault::kBlockMode;
  }
  if (bytes < stored) return Fault::kTruncated;
  if (bytes > stored) return Fault::kTrailingBytes;
  kernels.decode_stored(stored > 0 ? body : nullptr, target);
  return Fault::kNone;
}

Fault decode_plain(const Kernels& kernels, ChunkMode mode, const ChunkBytes& chunk, const Target& target) {
  const std::uint32_t stored = mode == ChunkMode::kStored ? target.count * kValueBytes : 0;
  if (chunk.bytes - 1 < stored) return Fault::kTruncated;
  if (chunk.bytes - 1 > stored) return Fault::kTrailingBytes;
  kernels.decode_stored(stored > 0 ? chunk.at + 1 : nullptr, target);
  return Fault::kNone;
}

// On all threads that there are. The fault of the first block that has one.
Fault decode_blocks(const Kernels& kernels, const BlockArea& area, const DecodeTable& table,
                    const Target& target, Workers* workers) {
  Fault faults[kMaxBlocks];
  Workers::share(workers, area.count, [&](std::size_t place) {
    const auto i = static_cast<std::uint32_t>(place);
    ChunkBytes block;
    faults[i] = block_bytes(area, i, block);
    if (faults[i] != Fault::kNone) return;
    Target part = target;
    part.slot += i * kBlockElements;
    part.count = block_elements(target.count, i);
    faults[i] = decode_one(kernels, block, table, part);
  });
  for (std::uint32_t i = 0; i < area.count; ++i) {
    if (faults[i] != Fault::kNone) return faults[i];
  }
  return Fault::kNone;
}

}  // namespace

std::uint64_t chunk_bound(std::uint64_t count) noexcept {
  if (count == 0) return 0;
  const std::uint64_t stored = count * kValueBytes;
  return count <= kBlockElements ? 1 + stored : kMaxHeadBytes + kMaxBlocks + stored;
}

std::uint64_t scratch_bound(std::uint64_t count) noexcept {
  if (count == 0) return 0;
  const std::uint64_t blocks =
      block_count(static_cast<std::uint32_t>(std::min<std::uint64_t>(count, kChunkElements)));
  return blocks * kBlockScratchBytes;
}

std::uint32_t encode_chunk(const Kernels& kernels, const Values& chunk, std::byte* out, const Exec& exec) {
  Histogram histogram;
  kernels.histogram(chunk, histogram.counts);
  histogram.complete = chunk.count <= kBlockElements;
  TableChoice choice;
  choose_table(histogram, chunk.rule, choice);
  EncodeTable table;
  make_encode_table(choice.lengths, chunk.rule.uniform_level(), table);
  Prologue prologue;
  write_prologue(choice, chunk.rule, prologue);
  if (chunk.count > kBlockElements) return write_blocks(kernels, chunk, table, prologue, exec, out);
  BlockParts parts = cut_scratch(exec.scratch, 0);
  kernels.encode_block(chunk, table, parts);
  return write_single(prologue, parts, chunk.count, out);
}

Fault decode_chunk(const Kernels& kernels, const ChunkBytes& chunk, const Target& target, Workers* workers) {
  ChunkHead head;
  if (const Fault fault = read_head(chunk.at[0], head); fault != Fault::kNone) return fault;
  if (head.mode == ChunkMode::kStored || head.mode == ChunkMode::kZeros) {
    return decode_plain(kernels, head.mode, chunk, target);
  }
  const TableBytes in{chunk.at + 1, chunk.bytes - 1, head.mode == ChunkMode::kMixed, head.uniform_level,
                      head.table_id};
  DecodeTable table;
  std::uint32_t used = 0;
  if (const Fault fault = read_table(in, table, used); fault != Fault::kNone) return fault;
  BlockArea area;
  const Fault opened = open_blocks(in.at + used, in.bytes - used, block_count(target.count), area);
  if (opened != Fault::kNone) return opened;
  return decode_blocks(kernels, area, table, target, workers);
}

}  // namespace deltawire::gcomp
