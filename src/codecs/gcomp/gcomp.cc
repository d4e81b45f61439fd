// gcomp: exponents by a length-limited Huffman code, mantissas cut by what the optimizer can still see, after
// X. Li, C. Guo, K. Qian, M. Zhang, M. Yang, M. Xu, "Near-Lossless Gradient Compression for Data-Parallel
// Distributed DNN Training" (SoCC 2024), sections 4 to 6.1. spec.md in this folder defines the bytes.

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/bit_functions.h"
#include "base/checked.h"
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_halves.h"
#include "codecs/gcomp/gcomp_low_zeros.h"
#include "codecs/gcomp/gcomp_table.h"
#include "codecs/kernels/chunk_bytes.h"
#include "codecs/kernels/streaming.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/streamed_copy.h"

namespace deltawire::gcomp {

namespace {

constexpr ParameterInfo kParameters[] = {
    {"cut", "auto, 0, 6, 12 or 18", "auto",
     "low mantissa bits rounded off every value; auto: of each as many as the optimizer can't see"},
    {"levels", "8 or 4", "8", "of cut=auto: 8 levels in steps of 3 bits, or the paper's 4 in steps of 6"},
    {"lossless", "on or off", "off", "on: every bit is kept, subnormals and signs of zeros too"},
    {"values", "fp32, bf16 or fp16", "fp32",
     "what values are rounded to first; a Channel chooses it by itself for tensors of 16 bits"},
};

constexpr std::string_view kExamples[] = {"gcomp:levels=4",
                                          "gcomp:cut=6",
                                          "gcomp:cut=18",
                                          "gcomp:lossless=on",
                                          "gcomp:values=bf16",
                                          "gcomp:cut=18,values=fp16",
                                          "gcomp:lossless=on,values=fp16"};

constexpr CodecInfo info_with(bool lossless, bool significance, bool halves) noexcept {
  return {
      .id = 5,
      .name = "gcomp",
      .summary = "Huffman-coded exponents, mantissas cut by what the optimizer can still see: near-lossless",
      .source = "Li et al.: Near-Lossless Gradient Compression (SoCC 2024), sections 4 to 6.1",
      .parameters = kParameters,
      .examples = kExamples,
      .default_pattern = "ring",
      .lossless = lossless,
      .significance = significance,
      .half_form = !halves,
      .chunk_elements = kChunkElements,
  };
}

constexpr std::string_view kCuts[] = {"auto", "0", "6", "12", "18"};
constexpr std::uint32_t kCutBits[] = {0, 0, 6, 12, 18};
constexpr std::string_view kLevelCounts[] = {"8", "4"};
constexpr std::string_view kSwitch[] = {"on", "off"};
constexpr std::string_view kValues[] = {"fp32", "bf16", "fp16"};
constexpr Precision kPrecisions[] = {kFloat32, kBFloat16, kFloat16};

struct Parameters {
  std::size_t cut = 0;     // index in kCuts
  std::size_t levels = 0;  // index in kLevelCounts
  bool lossless = false;
  std::size_t values = 0;  // index in kValues

  Precision precision() const noexcept { return kPrecisions[values]; }
  const CodecInfo& info() const noexcept;
};

std::string_view fault_text(Fault fault) noexcept {
  switch (fault) {
    case Fault::kNone: return "no fault";
    case Fault::kTruncated: return "the bytes end before the chunk does";
    case Fault::kChunkMode: return "the first byte is of no known mode";
    case Fault::kBlockMode: return "unknown block mode";
    case Fault::kBlockIndex: return "the ends of blocks don't grow";
    case Fault::kTrailingBytes: return "bytes follow the last element";
    case Fault::kTableWindow:
      return "the table's exponents are out of range or too far apart, or a window has an unused end";
    case Fault::kTableLength: return "a code longer than 8 bits";
    case Fault::kTablePadding: return "the table's padding isn't 0";
    case Fault::kTableKraft: return "the table's lengths make no complete code";
    case Fault::kLaneState: return "a lane begins with too few bits, or has no end bit";
    case Fault::kLaneEnd: return "a lane doesn't end empty";
    case Fault::kBytesLeft: return "bytes of a block's stream are left over";
    case Fault::kEscape: return "an escape for a symbol that has a code or doesn't exist";
    case Fault::kTinyZero: return "a zero among the subnormals";
  }
  return "unknown fault";
}

constexpr CodecInfo kInfo = info_with(false, true, false);
constexpr CodecInfo kLosslessInfo = info_with(true, false, false);
constexpr CodecInfo kUniformCutInfo = info_with(false, false, false);
constexpr CodecInfo kHalfInfo = info_with(false, true, true);
constexpr CodecInfo kHalfUniformCutInfo = info_with(false, false, true);

const CodecInfo& Parameters::info() const noexcept {
  if (values == 0) return lossless ? kLosslessInfo : cut == 0 ? kInfo : kUniformCutInfo;
  return cut == 0 ? kHalfInfo : kHalfUniformCutInfo;
}

// One chunk: head, table, index of blocks, blocks (spec.md, sections 1 to 4).

// Where things stand in a chunk.

constexpr unsigned kLevelShift = 2;  // in a chunk's first byte
constexpr unsigned kTableShift = 5;
constexpr unsigned kHalfShift = 7;
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
  Precision precision = {};
};

std::byte write_head(const ChunkHead& head) noexcept {
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
Fault read_half_head(std::uint32_t number, ChunkHead& head) noexcept {
  for (const Precision& each : {kBFloat16, kFloat16}) {
    if (each.in_chunk == number) head.precision = each;
  }
  const bool coded = head.mode == ChunkMode::kWhole || head.mode == ChunkMode::kCut;
  const bool known = coded && head.table_id == 0 && head.precision.is_half();
  return known ? Fault::kNone : Fault::kChunkMode;
}

// kChunkMode for bits that mean nothing: a static table has a level exactly where mantissas are cut.
Fault read_head(std::byte first, ChunkHead& head) noexcept {
  const auto value = std::to_integer<std::uint32_t>(first);
  head.mode = mode_of(first);
  head.level = value >> kLevelShift & 7;
  head.table_id = value >> kTableShift & 3;
  if (is_of_halves(first)) return read_half_head(std::exchange(head.level, 0), head);
  const bool coded = head.mode == ChunkMode::kWhole || head.mode == ChunkMode::kCut;
  const bool leveled = head.mode == ChunkMode::kCut && head.table_id != 0;
  const bool known = head.table_id <= (coded ? kStaticTables : 0U) && leveled == (head.level != 0);
  return known ? Fault::kNone : Fault::kChunkMode;
}

TableBytes table_bytes(const ChunkHead& head, const ChunkBytes& chunk) noexcept {
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
Fault open_coded(const ChunkBytes& block, std::uint32_t count, bool in_bytes, BlockBytes& out) noexcept {
  if (block.bytes < kCodedHeadBytes) return Fault::kTruncated;
  std::uint32_t head = 0;
  for (unsigned i = 0; i < kCodedHeadBytes; ++i) head |= std::to_integer<std::uint32_t>(block.at[i]) << 8 * i;
  out = {block.at + kCodedHeadBytes, head >> kBlockModeBits};
  const std::uint32_t bytes = kCodedHeadBytes + out.stream_bytes + states_bytes(count, in_bytes);
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

// The most that a chunk of `count` elements may take.
std::uint64_t chunk_bound(std::uint64_t count) noexcept {
  if (count == 0) return 0;
  const std::uint64_t stored = count * kValueBytes;
  return count <= kBlockElements ? 1 + stored : kMaxHeadBytes + kMaxBlocks + stored;
}

// The scratch memory that encoding needs.
std::uint64_t scratch_bound(std::uint64_t count) noexcept {
  if (count == 0) return 0;
  return kCodesBytes + std::min<std::uint64_t>(count, kBlockElements) * sizeof(float);
}

std::byte* codes_place(const Exec& exec) noexcept {
  return exec.scratch.data();
}
float* values_place(const Exec& exec) noexcept {
  return reinterpret_cast<float*>(exec.scratch.data() + kCodesBytes);
}
float* room_place(const Exec& exec, std::uint64_t count) noexcept {
  return values_place(exec) + std::min<std::uint64_t>(count, kBlockElements);
}

Values block_of(const Values& chunk, std::uint32_t block) noexcept {
  Values values = rest_of(chunk, block * kBlockElements);
  values.count = block_elements(chunk.count, block);
  return values;
}

// The bytes before a chunk's blocks.
struct Prologue {
  std::byte bytes[kMaxHeadBytes];
  std::uint32_t size = 0;
};

void write_prologue(const TableChoice& choice, const Rule& rule, Prologue& prologue) noexcept {
  const bool whole = rule.whole();
  const ChunkHead head{whole ? ChunkMode::kWhole : ChunkMode::kCut, choice.id != 0 ? rule.level : 0,
                       choice.id, rule.precision};
  prologue.bytes[0] = write_head(head);
  prologue.size = 1 + write_table(choice, whole, prologue.bytes + 1);
}

// What coding the blocks of a chunk needs.
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
  return kCodedHeadBytes + coded.stream_bytes + states_bytes(count, coder.chunk.rule.in_bytes());
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

// A coded block, before it is written to its place in the chunk.
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

// A chunk of one block, written in the smallest mode.
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

// Rewrites a chunk whose blocks, written behind `prologue`, are all zeros or stored, so that it needs no
// table: only zeros become one byte, only stored blocks become stored values, and a mixture keeps its index
// behind the shortest valid table. Returns the chunk's bytes.
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

// Where a block that belongs at `at` is coded: in place, if kernels have room there and the bytes need not go
// past the caches.
std::byte* place_of(const Coder& coder, std::byte* at, const std::byte* end) noexcept {
  const bool has_room = static_cast<std::size_t>(end - at) >= kCodedHeadBytes + kBlockRoom;
  return has_room && !coder.chunk.streamed ? at + kCodedHeadBytes : codes_place(coder.exec);
}

// The blocks of a chunk.
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

// Where a chunk goes.
struct ChunkPlace {
  std::byte* at = nullptr;       // chunk_bound() bytes
  std::uint32_t* sum = nullptr;  // its checksum, by parts while they are in the cache; null: not wanted
};

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
    const Fault fault = open_coded(block, target.count, table.in_bytes, coded);
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

// Codes and mantissas share a block's stream; only decoding could tell them apart.
void describe_block(const ChunkBytes& block, std::uint32_t count, bool in_bytes,
                    std::vector<Section>& sections) {
  add_section(sections, "heads", 8);
  BlockMode mode = BlockMode::kStored;
  BlockBytes coded;
  if (read_block_mode(block.at[0], mode) != Fault::kNone) return;
  if (mode != BlockMode::kCoded) {
    add_section(sections, "stored values", (std::uint64_t{block.bytes} - 1) * 8);
    return;
  }
  if (open_coded(block, count, in_bytes, coded) != Fault::kNone) return;
  add_section(sections, "heads", (kCodedHeadBytes - 1) * 8);
  add_section(sections, "lanes", std::uint64_t{states_bytes(count, in_bytes)} * 8);
  add_section(sections, "codes and mantissas", std::uint64_t{coded.stream_bytes} * 8);
}

// Encodes a chunk, whose values have the rule's precision; returns the bytes written. `room`: for
// by_low_zeros(), or null where that isn't for this chunk.
std::uint32_t encode_chunk(const Kernels& kernels, const Values& given, const ChunkPlace& out,
                           const Exec& exec, float* room) {
  TableChoice choice;
  choose_table(kernels, given, choice);
  const Values chunk = room != nullptr ? by_low_zeros(kernels, given, room, choice) : given;
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

// The scratch memory for the values of a chunk as 16 bits hold them and, where there is a residual, for what
// is left of these; behind scratch_bound().
std::uint64_t halves_bound(std::uint64_t count) noexcept {
  return 2 * std::min<std::uint64_t>(count, kChunkElements) * sizeof(float);
}

// As encode_chunk, for values of any precision.
std::uint32_t encode_halved(const Kernels& kernels, const Values& chunk, const ChunkPlace& out,
                            const Exec& exec, float* halves) {
  round_to_halves(chunk, halves);
  Values rounded = chunk;
  rounded.in = halves;
  if (chunk.residual != nullptr) {
    rounded.residual = halves + chunk.count;
    std::memset(rounded.residual, 0, chunk.count * sizeof(float));
  }
  const std::uint32_t bytes = encode_chunk(kernels, rounded, out, exec, nullptr);
  if (chunk.residual != nullptr) keep_left_over(chunk, halves, rounded.residual);
  return bytes;
}

// Decodes a chunk into target.count values. On a fault the slot's content is unspecified.
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

// The sections of a chunk that decode_chunk has accepted for `count` elements.
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
    describe_block(block, block_elements(count, i), table.in_bytes, sections);
  }
}

class Gcomp final : public Codec {
 public:
  Gcomp(const Parameters& parameters, const Kernels& kernels) noexcept
      : Codec(parameters.info()), parameters_(parameters), kernels_(kernels) {}

  std::string spec() const override {
    return "gcomp:cut=" + std::string(kCuts[parameters_.cut]) +
           ",levels=" + std::string(kLevelCounts[parameters_.levels]) +
           ",lossless=" + (parameters_.lossless ? "on" : "off") +
           (parameters_.values == 0 ? "" : ",values=" + std::string(kValues[parameters_.values]));
  }

  Sizes do_sizes(const TensorView& part) const noexcept override {
    const std::uint64_t full = part.count / kChunkElements;
    const std::uint64_t rest = chunk_bound(part.count % kChunkElements);
    const std::uint64_t bytes = product_or_max(full, chunk_bound(kChunkElements));
    return Sizes{.payload_bytes = sum_or_max(bytes, rest),
                 .chunks = chunks_or_max(ceil_div(part.count, kChunkElements)),
                 .scratch_bytes = scratch_bound(part.count) + room_bound(part.count)};
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const float* significance = part.view.significance;
    float* const residual = residual_in_place(part);
    const std::uint64_t chunks = ceil_div(part.count, kChunkElements);
    // A short part is still in the cache when the frame sums it.
    const bool sums = !out.chunk_sums.empty() && part.count > kBlockElements;
    float* const halves = needs_rounding(part) ? room_place(exec, part.count) : nullptr;
    float* const levels = may_have_levels(part) ? room_place(exec, part.count) : nullptr;
    std::uint64_t written = 0;
    for (std::uint64_t i = 0; i < chunks; ++i) {
      const std::uint64_t at = i * kChunkElements;
      const Values chunk{.in = part.in + at,
                         .residual = residual != nullptr ? residual + at : nullptr,
                         .significance = significance != nullptr ? significance + at : nullptr,
                         .count = elements_of_chunk(part.count, i, kChunkElements),
                         .rule = rule(significance != nullptr),
                         .streamed = part.count * sizeof(float) >= kStreamedBytes};
      const ChunkPlace place{out.payload.data() + written, sums ? &out.chunk_sums[i] : nullptr};
      written += halves != nullptr ? encode_halved(kernels_, chunk, place, exec, halves)
                                   : encode_chunk(kernels_, chunk, place, exec, levels);
      out.chunk_ends[i] = static_cast<std::uint32_t>(written);
    }
    return EncodedPart{
        .payload_bytes = written, .chunks = static_cast<std::uint32_t>(chunks), .has_sums = sums};
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec& exec) const override {
    Target target{.slot = out.slot,
                  .count = 0,
                  .scale = out.scale,
                  .accumulate = out.accumulate,
                  .streamed = out.count * sizeof(float) >= kStreamedBytes};
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      target.count = elements_of_chunk(out.count, i, kChunkElements);
      const Fault fault = decode(chunk_of(in, i), target, exec.workers);
      if (fault != Fault::kNone) return fault_status("gcomp", i, fault, fault_text(fault));
      target.slot += target.count;
    }
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    std::vector<float> values(static_cast<std::size_t>(std::min<std::uint64_t>(count, kChunkElements)));
    std::vector<Section> found;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const Target target{.slot = values.data(), .count = elements_of_chunk(count, i, kChunkElements)};
      const ChunkBytes chunk = chunk_of(in, i);
      const Fault fault = decode(chunk, target, nullptr);
      if (fault != Fault::kNone) return fault_status("gcomp", i, fault, fault_text(fault));
      describe_chunk(chunk, target.count, found);
    }
    for (const Section& section : found) add_section(sections, section.name, section.bits);
    return {};
  }

 private:
  Fault decode(const ChunkBytes& chunk, const Target& target, Workers* workers) const {
    if (is_of_halves(chunk.at[0]) && !may_be_of_halves(mode_of(chunk.at[0]))) return Fault::kChunkMode;
    return decode_chunk(kernels_, chunk, target, workers);
  }

  // Of 16-bit values lossless=on has whole chunks alone, lossless=off cut ones.
  bool may_be_of_halves(ChunkMode mode) const noexcept {
    return parameters_.values != 0 && mode == (parameters_.lossless ? ChunkMode::kWhole : ChunkMode::kCut);
  }

  Rule rule(bool has_significance) const noexcept {
    const Precision precision = parameters_.precision();
    if (parameters_.lossless) return {.keep = Keep::kEverything, .precision = precision};
    if (parameters_.cut == 0 && has_significance) {
      const std::uint32_t step = parameters_.levels == 0 ? 1 : 2;
      return {.keep = Keep::kSignificance, .step = step, .precision = precision};
    }
    const std::uint32_t bits = kCutBits[parameters_.cut];
    const std::uint32_t level = bits > precision.unused ? (bits - precision.unused) / precision.step : 0;
    return {.keep = Keep::kLevel, .level = level, .precision = precision};
  }

  // For halves_bound(), or for the significances of by_low_zeros().
  std::uint64_t room_bound(std::uint64_t count) const noexcept {
    if (parameters_.values != 0) return halves_bound(count);
    return parameters_.lossless ? std::min<std::uint64_t>(count, kChunkElements) * sizeof(float) : 0;
  }

  bool may_have_levels(const PartSource& part) const noexcept {
    return parameters_.lossless && parameters_.values == 0 && part.residual == nullptr;
  }

  // Whether a value may have more bits than the parameter `values` says.
  bool needs_rounding(const PartSource& part) const noexcept {
    constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
    return parameters_.values != 0 &&
           (part.residual != nullptr || part.view.dtype != kTypes[parameters_.values]);
  }

  Parameters parameters_;
  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  const auto lossless = choice_parameter(spec, "lossless", kSwitch, 1);
  if (!lossless) return forward_error(lossless);
  const bool keeps_all = *lossless == 0;
  const auto cut = choice_parameter(spec, "cut", kCuts, keeps_all ? 1 : 0);
  if (!cut) return forward_error(cut);
  if (keeps_all && *cut != 1) {
    return fail(ErrorCode::kInvalidArgument, "gcomp: cut=" + std::string(kCuts[*cut]) +
                                                 " together with lossless=on: give cut=0, or leave it out");
  }
  const auto values = choice_parameter(spec, "values", kValues, 0);
  if (!values) return forward_error(values);
  const auto levels = choice_parameter(spec, "levels", kLevelCounts, 0);
  if (!levels) return forward_error(levels);
  if (*levels != 0 && *cut != 0) {
    return fail(ErrorCode::kInvalidArgument, "gcomp: levels=" + std::string(kLevelCounts[*levels]) +
                                                 " together with cut=" + std::string(kCuts[*cut]) +
                                                 ": levels are those of cut=auto; leave one out");
  }
  return std::make_unique<const Gcomp>(Parameters{*cut, *levels, keeps_all, *values}, kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference, avx2, avx512, avx512vbmi, neon)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::gcomp
