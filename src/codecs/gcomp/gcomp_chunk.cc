#include "codecs/gcomp/gcomp_chunk.h"

#include <algorithm>
#include <cstring>

#include "base/bit_functions.h"
#include "base/checked.h"
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "codecs/part_checks.h"
#include "codecs/streamed_copy.h"

namespace deltawire::gcomp {

namespace {

// Where things stand in a chunk.

constexpr unsigned kLevelShift = 2;  // in a chunk's first byte
constexpr unsigned kTableShift = 5;
constexpr std::uint32_t kIndexEntryBytes = 4;

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
};

std::byte write_head(const ChunkHead& head) noexcept {
  return static_cast<std::byte>(static_cast<unsigned>(head.mode) | head.level << kLevelShift |
                                head.table_id << kTableShift);
}

// kChunkMode for bits that mean nothing: a static table has a level exactly where mantissas are cut.
Fault read_head(std::byte first, ChunkHead& head) noexcept {
  const auto value = std::to_integer<std::uint32_t>(first);
  head.mode = static_cast<ChunkMode>(value & 3);
  head.level = value >> kLevelShift & 7;
  head.table_id = value >> kTableShift;
  const bool coded = head.mode == ChunkMode::kWhole || head.mode == ChunkMode::kCut;
  const bool leveled = head.mode == ChunkMode::kCut && head.table_id != 0;
  const bool known = head.table_id <= (coded ? kStaticTables : 0U) && leveled == (head.level != 0);
  return known ? Fault::kNone : Fault::kChunkMode;
}

TableBytes table_bytes(const ChunkHead& head, const ChunkBytes& chunk) noexcept {
  return {chunk.at + 1, chunk.bytes - 1, head.mode == ChunkMode::kWhole, head.level, head.table_id};
}

// Index and blocks of a coded chunk, behind its table.
struct BlockArea {
  const std::byte* index = nullptr;
  const std::byte* blocks = nullptr;
  std::uint32_t count = 0;  // blocks
  std::uint32_t bytes = 0;  // of all blocks
};

Fault open_blocks(const std::byte* at, std::uint32_t bytes, std::uint32_t count, BlockArea& area) noexcept {
  const std::uint32_t index_bytes = (count - 1) * kIndexEntryBytes;
  if (bytes < index_bytes) return Fault::kTruncated;
  area = {at, at + index_bytes, count, bytes - index_bytes};
  return Fault::kNone;
}

// A coded block begins with 3 bytes: in the low bits its mode, above them the size of its stream.
constexpr std::uint32_t kCodedHeadBytes = 3;
constexpr unsigned kBlockModeBits = 2;

void write_coded_head(std::uint32_t stream_bytes, std::byte* out) noexcept {
  const std::uint32_t head = static_cast<std::uint32_t>(BlockMode::kCoded) | stream_bytes << kBlockModeBits;
  for (unsigned i = 0; i < kCodedHeadBytes; ++i) out[i] = static_cast<std::byte>(head >> 8 * i);
}

// Finds the stream of a coded block of `count` values, and that all of it and its lanes are there.
Fault open_coded(const ChunkBytes& block, std::uint32_t count, bool whole, BlockBytes& out) noexcept {
  if (block.bytes < kCodedHeadBytes) return Fault::kTruncated;
  std::uint32_t head = 0;
  for (unsigned i = 0; i < kCodedHeadBytes; ++i) head |= std::to_integer<std::uint32_t>(block.at[i]) << 8 * i;
  out = {block.at + kCodedHeadBytes, head >> kBlockModeBits};
  const std::uint32_t bytes = kCodedHeadBytes + out.stream_bytes + states_bytes(count, whole);
  if (block.bytes < bytes) return Fault::kTruncated;
  return block.bytes > bytes ? Fault::kTrailingBytes : Fault::kNone;
}

// The mode of a block; kBlockMode for bits that mean nothing.
Fault read_block_mode(std::byte first, BlockMode& mode) noexcept {
  const auto value = std::to_integer<std::uint32_t>(first);
  mode = static_cast<BlockMode>(value & 3);
  const bool known = mode == BlockMode::kCoded || value <= static_cast<std::uint32_t>(BlockMode::kZeros);
  return known ? Fault::kNone : Fault::kBlockMode;
}

// The bytes of block `block`, its mode included. Blocks have at least one byte, so ends grow strictly.
Fault block_bytes(const BlockArea& area, std::uint32_t block, ChunkBytes& out) noexcept {
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

constexpr std::uint32_t kMaxHeadBytes = 1 + kMaxTableBytes + (kMaxBlocks - 1) * kIndexEntryBytes;

// The caller's scratch memory: a place for a block's codes, and then one for its values.
constexpr std::uint64_t kCodesBytes = (kBlockRoom + 63) / 64 * 64;

std::byte* codes_place(const Exec& exec) noexcept {
  return exec.scratch.data();
}
float* values_place(const Exec& exec) noexcept {
  return reinterpret_cast<float*>(exec.scratch.data() + kCodesBytes);
}

Values block_of(const Values& chunk, std::uint32_t block) noexcept {
  Values values = rest_of(chunk, block * kBlockElements);
  values.count = block_elements(chunk.count, block);
  return values;
}

// What stands before the blocks of a chunk.
struct Prologue {
  std::byte bytes[kMaxHeadBytes];
  std::uint32_t size = 0;
};

void write_prologue(const TableChoice& choice, const Rule& rule, Prologue& prologue) noexcept {
  const bool whole = rule.whole();
  const ChunkHead head{whole ? ChunkMode::kWhole : ChunkMode::kCut, choice.id != 0 ? rule.level : 0,
                       choice.id};
  prologue.bytes[0] = write_head(head);
  prologue.size = 1 + write_table(choice, whole, prologue.bytes + 1);
}

// Everything that coding the blocks of a chunk needs.
struct Coder {
  const Kernels& kernels;
  const Values& chunk;
  const Exec& exec;
  Prologue prologue;
  EncodeTable table;
};

// The values of a block that has been coded to `block`, in as many bytes: what its codes say. They can't be
// classified again, as the residual has changed.
void write_decoded(const Coder& coder, const BlockBytes& block, std::uint32_t count,
                   std::byte* out) noexcept {
  ChunkHead head;
  read_head(coder.prologue.bytes[0], head);
  DecodeTable table;
  std::uint32_t used = 0;
  read_table(table_bytes(head, {coder.prologue.bytes, coder.prologue.size}), table, used);
  float* const values = values_place(coder.exec);
  const Target target{.slot = values, .count = count};
  coder.kernels.decode_block(block, table, target);
  for (std::uint32_t i = 0; i < count; ++i) {
    store_le(out + i * kValueBytes, bit_cast<std::uint32_t>(values[i]));
  }
}

// Bytes of a coded block of `count` values.
std::uint32_t coded_bytes(const Coder& coder, const EncodedBlock& coded, std::uint32_t count) noexcept {
  return kCodedHeadBytes + coded.stream_bytes + states_bytes(count, coder.chunk.rule.whole());
}

// `block` may be where it belongs in `out`.
void write_coded(const std::byte* block, std::uint32_t stream_bytes, std::uint32_t bytes, bool streamed,
                 std::byte* out) noexcept {
  write_coded_head(stream_bytes, out);
  std::byte* const to = out + kCodedHeadBytes;
  if (block == to) return;
  if (streamed) return copy_streamed(to, block, bytes - kCodedHeadBytes);
  copy_cached(to, block, bytes - kCodedHeadBytes);
}

// A block on its way to its place in a chunk.
struct Block {
  EncodedBlock coded;
  const std::byte* place = nullptr;  // where its stream and lanes are
  std::uint32_t count = 0;
  std::uint32_t bytes = 0;  // of what is smallest, ties to the lower mode
  BlockMode mode = BlockMode::kCoded;
  std::uint32_t sum = 0;
};

void choose_mode(const Coder& coder, Block& block) noexcept {
  const std::uint32_t stored = 1 + block.count * kValueBytes;
  const std::uint32_t bytes = coded_bytes(coder, block.coded, block.count);
  block.mode = block.coded.zeros ? BlockMode::kZeros
               : bytes < stored  ? BlockMode::kCoded
                                 : BlockMode::kStored;
  block.bytes = block.coded.zeros ? 1 : std::min(bytes, stored);
}

void write_block(const Coder& coder, const Block& block, std::byte* out) noexcept {
  if (block.mode == BlockMode::kCoded) {
    write_coded(block.place, block.coded.stream_bytes, block.bytes, coder.chunk.streamed, out);
    return;
  }
  out[0] = static_cast<std::byte>(block.mode);
  if (block.mode == BlockMode::kZeros) return;
  write_decoded(coder, {block.place, block.coded.stream_bytes}, block.count, out + 1);
}

// The checksum of a block that was written to `out`; what was coded is read where it was coded, as in `out`
// it may be in no cache.
std::uint32_t sum_of(const Block& block, const std::byte* out) noexcept {
  if (block.mode != BlockMode::kCoded) return crc32c({out, block.bytes});
  return crc32c({block.place, block.bytes - kCodedHeadBytes}, crc32c({out, kCodedHeadBytes}));
}

// A chunk of one block: written whole as what is smallest.
std::uint32_t write_single(const Coder& coder, std::byte* out) noexcept {
  const std::uint32_t count = coder.chunk.count;
  std::byte* const block = codes_place(coder.exec);
  const EncodedBlock coded = coder.kernels.encode_block(coder.chunk, coder.table, block);
  if (coded.zeros) {
    out[0] = write_head({.mode = ChunkMode::kZeros});
    return 1;
  }
  const std::uint32_t bytes = coded_bytes(coder, coded, count);
  if (coder.prologue.size + bytes >= 1 + count * kValueBytes) {
    out[0] = write_head({.mode = ChunkMode::kStored});
    write_decoded(coder, {block, coded.stream_bytes}, count, out + 1);
    return 1 + count * kValueBytes;
  }
  std::memcpy(out, coder.prologue.bytes, coder.prologue.size);
  write_coded(block, coded.stream_bytes, bytes, coder.chunk.streamed, out + coder.prologue.size);
  return coder.prologue.size + bytes;
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
    out[0] = write_head({.mode = ChunkMode::kCut});
    out[1] = two_lengths(1, 1);  // the escape and zero
    out[2] = std::byte{0};       // and no level
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

// Where a block is coded that belongs at `at`: right there, if kernels have the room that they need, unless
// it must go past the caches.
std::byte* place_of(const Coder& coder, std::byte* at, const std::byte* end) noexcept {
  const bool has_room = static_cast<std::size_t>(end - at) >= kCodedHeadBytes + kBlockRoom;
  return has_room && !coder.chunk.streamed ? at + kCodedHeadBytes : codes_place(coder.exec);
}

// The blocks of a chunk, side by side.
struct BlockRow {
  Block at[kMaxBlocks];
  std::uint32_t count = 0;
  std::uint32_t of_mode[3] = {};

  void add_up(const Block& block) noexcept { ++of_mode[static_cast<std::size_t>(block.mode)]; }
};

// Block by block, so that what is written and summed is still in the cache. One thread does it: to be shared,
// blocks would have to be coded elsewhere and copied when all sizes are known, which costs more than a second
// thread saves (docs/results/speed.md). Returns the bytes.
std::uint32_t write_in_turn(const Coder& coder, std::byte* area, const std::byte* end, bool sums,
                            BlockRow& row) {
  std::uint32_t written = 0;
  for (std::uint32_t i = 0; i < row.count; ++i) {
    Block& block = row.at[i];
    std::byte* const at = area + written;
    std::byte* const place = place_of(coder, at, end);
    const Values values = block_of(coder.chunk, i);
    block = {coder.kernels.encode_block(values, coder.table, place), place, values.count};
    choose_mode(coder, block);
    write_block(coder, block, at);
    if (sums) block.sum = sum_of(block, at);
    row.add_up(block);
    written += block.bytes;
  }
  return written;
}

// Blocks behind prologue and index.
std::uint32_t write_blocks(const Coder& coder, const ChunkPlace& place) {
  const std::uint32_t count = coder.chunk.count;
  std::byte* const out = place.at;
  BlockRow row{.at = {}, .count = block_count(count)};
  std::byte* const index = out + coder.prologue.size;
  std::byte* const area = index + (row.count - 1) * kIndexEntryBytes;
  const bool sums = place.sum != nullptr;
  const std::uint32_t written = write_in_turn(coder, area, out + chunk_bound(count), sums, row);
  std::uint32_t end = 0;
  for (std::uint32_t i = 0; i + 1 < row.count; ++i) {
    store_le(index + i * kIndexEntryBytes, end += row.at[i].bytes);
  }
  const auto head_bytes = static_cast<std::uint32_t>(area - out);
  if (row.of_mode[static_cast<std::size_t>(BlockMode::kCoded)] == 0) {
    const std::uint32_t stored = row.of_mode[static_cast<std::size_t>(BlockMode::kStored)];
    const std::uint32_t bytes = drop_table(coder.prologue, count, stored, out, head_bytes + written);
    if (sums) *place.sum = crc32c({out, bytes});
    return bytes;
  }
  std::memcpy(out, coder.prologue.bytes, coder.prologue.size);
  if (sums) {
    *place.sum = crc32c({out, head_bytes});
    for (std::uint32_t i = 0; i < row.count; ++i) {
      *place.sum = crc32c_joined(*place.sum, row.at[i].sum, row.at[i].bytes);
    }
  }
  return head_bytes + written;
}

Fault decode_one(const Kernels& kernels, const ChunkBytes& block, const DecodeTable& table,
                 const Target& target) {
  BlockMode mode = BlockMode::kStored;
  if (const Fault fault = read_block_mode(block.at[0], mode); fault != Fault::kNone) return fault;
  if (mode == BlockMode::kCoded) {
    BlockBytes coded;
    const Fault fault = open_coded(block, target.count, table.whole, coded);
    return fault != Fault::kNone ? fault : kernels.decode_block(coded, table, target);
  }
  const std::uint32_t stored = mode == BlockMode::kStored ? target.count * kValueBytes : 0;
  if (block.bytes - 1 < stored) return Fault::kTruncated;
  if (block.bytes - 1 > stored) return Fault::kTrailingBytes;
  kernels.decode_stored(stored > 0 ? block.at + 1 : nullptr, target);
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
    Target part = rest_of(target, i * kBlockElements);
    part.count = block_elements(target.count, i);
    faults[i] = decode_one(kernels, block, table, part);
  });
  for (std::uint32_t i = 0; i < area.count; ++i) {
    if (faults[i] != Fault::kNone) return faults[i];
  }
  return Fault::kNone;
}

// Codes and mantissas share a block's stream, and what is what can't be told without decoding it.
void describe_block(const ChunkBytes& block, std::uint32_t count, bool whole,
                    std::vector<Section>& sections) {
  add_section(sections, "heads", 8);
  BlockMode mode = BlockMode::kStored;
  BlockBytes coded;
  if (read_block_mode(block.at[0], mode) != Fault::kNone) return;
  if (mode != BlockMode::kCoded) {
    add_section(sections, "stored values", (std::uint64_t{block.bytes} - 1) * 8);
    return;
  }
  if (open_coded(block, count, whole, coded) != Fault::kNone) return;
  add_section(sections, "heads", (kCodedHeadBytes - 1) * 8);
  add_section(sections, "lanes", std::uint64_t{states_bytes(count, whole)} * 8);
  add_section(sections, "codes and mantissas", std::uint64_t{coded.stream_bytes} * 8);
}

}  // namespace

std::uint64_t chunk_bound(std::uint64_t count) noexcept {
  if (count == 0) return 0;
  const std::uint64_t stored = count * kValueBytes;
  return count <= kBlockElements ? 1 + stored : kMaxHeadBytes + kMaxBlocks + stored;
}

std::uint64_t scratch_bound(std::uint64_t count) noexcept {
  if (count == 0) return 0;
  return kCodesBytes + std::min<std::uint64_t>(count, kBlockElements) * sizeof(float);
}

std::uint32_t encode_chunk(const Kernels& kernels, const Values& chunk, const ChunkPlace& out,
                           const Exec& exec) {
  Histogram histogram;
  kernels.histogram(chunk, histogram.counts);
  histogram.complete = sample_share(chunk.count) == 0;
  TableChoice choice;
  choose_table(histogram, chunk.rule, choice);
  Coder coder{.kernels = kernels, .chunk = chunk, .exec = exec, .prologue = {}, .table = {}};
  std::uint32_t bytes = 1 + chunk.count * kValueBytes;
  if (choice.worth_coding) {
    make_encode_table(choice.lengths, coder.table);
    write_prologue(choice, chunk.rule, coder.prologue);
    if (block_count(chunk.count) > 1) return write_blocks(coder, out);
    bytes = write_single(coder, out.at);
  } else {
    out.at[0] = write_head({.mode = ChunkMode::kStored});
    kernels.store_values(chunk, out.at + 1);
  }
  if (out.sum != nullptr) *out.sum = crc32c({out.at, bytes});
  return bytes;
}

Fault decode_chunk(const Kernels& kernels, const ChunkBytes& chunk, const Target& target, Workers* workers) {
  ChunkHead head;
  if (const Fault fault = read_head(chunk.at[0], head); fault != Fault::kNone) return fault;
  if (head.mode == ChunkMode::kStored || head.mode == ChunkMode::kZeros) {
    return decode_plain(kernels, head.mode, chunk, target);
  }
  const TableBytes in = table_bytes(head, chunk);
  DecodeTable table;
  std::uint32_t used = 0;
  if (const Fault fault = read_table(in, table, used); fault != Fault::kNone) return fault;
  BlockArea area;
  const Fault opened = open_blocks(in.at + used, in.bytes - used, block_count(target.count), area);
  if (opened != Fault::kNone) return opened;
  return decode_blocks(kernels, area, table, target, workers);
}

void describe_chunk(const ChunkBytes& chunk, std::uint32_t count, std::vector<Section>& sections) {
  add_section(sections, "heads", 8);
  ChunkHead head;
  if (read_head(chunk.at[0], head) != Fault::kNone) return;
  if (head.mode == ChunkMode::kStored || head.mode == ChunkMode::kZeros) {
    add_section(sections, "stored values", (std::uint64_t{chunk.bytes} - 1) * 8);
    return;
  }
  const TableBytes in = table_bytes(head, chunk);
  DecodeTable table;
  std::uint32_t used = 0;
  BlockArea area;
  if (read_table(in, table, used) != Fault::kNone) return;
  if (open_blocks(in.at + used, in.bytes - used, block_count(count), area) != Fault::kNone) return;
  add_section(sections, "tables", std::uint64_t{used} * 8);
  add_section(sections, "block index", (std::uint64_t{area.count} - 1) * kIndexEntryBytes * 8);
  for (std::uint32_t i = 0; i < area.count; ++i) {
    ChunkBytes block;
    if (block_bytes(area, i, block) != Fault::kNone) return;
    describe_block(block, block_elements(count, i), in.whole, sections);
  }
}

}  // namespace deltawire::gcomp
