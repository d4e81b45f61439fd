#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/bit_functions.h"
#include "base/copying.h"
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_chunk.h"
#include "codecs/gcomp/gcomp_heads.h"
#include "codecs/gcomp/gcomp_table.h"

namespace deltawire::gcomp {

namespace {

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
  assert(count > 0 && count <= kBlockElements);
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
  assert(stored <= blocks && blocks > 1);
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
// thread saves (docs/results/speed/parts-and-threads.md). Returns the bytes.
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
  assert(head_bytes + written <= chunk_bound(count));
  return head_bytes + written;
}

constexpr std::uint32_t kRuns = 4;  // of values that are looked at first
constexpr std::uint32_t kRun = 256;
constexpr std::uint32_t kHighestLeveled = 233;  // exponents above have level 0: 21 more is still no infinity

// Whether at least half of some values other than +0 have the three zeros of level 1, as an eighth of random
// ones has: so that other chunks cost nothing but this look.
bool may_have_low_zeros(const Values& chunk) noexcept {
  std::uint32_t some = 0;
  std::uint32_t even = 0;
  for (std::uint32_t run = 0; run < kRuns; ++run) {
    const float* const in = chunk.in + run * (chunk.count / kRuns);
    for (std::uint32_t i = 0; i < kRun; ++i) {
      const auto bits = bit_cast<std::uint32_t>(in[i]);
      some += bits != 0 ? 1U : 0U;
      even += bits != 0 && (bits & 7) == 0 ? 1U : 0U;
    }
  }
  return some > 0 && 2 * even >= some;
}

// Writes a significance by which each value has the highest level that drops only zeros. False if there are
// tiny values, which have no level.
bool write_significance(const Values& chunk, float* out) noexcept {
  std::uint32_t tiny = 0;
  for (std::uint32_t i = 0; i < chunk.count; ++i) {
    const auto bits = bit_cast<std::uint32_t>(chunk.in[i]);
    const std::uint32_t exponent = (bits & kExponentMask) >> kMantissaBits;
    std::uint32_t zeros = 0;
    for (std::uint32_t level = 1; level < kLevels; ++level) {
      const std::uint32_t cut = kFloat32.cut_at(level);
      zeros += (bits & ((1U << cut) - 1)) == 0 ? kFloat32.step : 0U;
    }
    const std::uint32_t seen = (exponent + zeros) << kMantissaBits;
    out[i] = bit_cast<float>(exponent <= kHighestLeveled ? seen : 0U);
    tiny |= exponent == 0 ? bits : 0U;
  }
  return tiny == 0;
}

// Bits of a chunk, about: those of all values as of the counted ones, and the table.
std::uint64_t bits_of(const TableChoice& choice, const Values& chunk) noexcept {
  std::byte table[kMaxTableBytes];
  return (choice.bits << sample_share(chunk.count)) +
         std::uint64_t{8} * write_table(choice, chunk.rule.whole(), table);
}

// Values whose lowest bits of mantissa are 0, as a difference of two numbers that are close to each other has
// them: lossless=on codes such a chunk by levels that drop nothing but zeros. The same chunk by levels, and
// their table in `choice`, where that is at least half a bit a value smaller than the chunk by `choice`
// (spec.md, 6.6); otherwise the chunk as it is. Writes to `room`, which has as many numbers as the chunk.
// REQUIRES: a rule that keeps everything of float32, and no residual.
Values by_low_zeros(const Kernels& kernels, const Values& chunk, float* room, TableChoice& choice) {
  if (chunk.count < kRuns * kRun || !may_have_low_zeros(chunk) || !write_significance(chunk, room)) {
    return chunk;
  }
  Values leveled = chunk;
  leveled.significance = room;
  leveled.rule = {.keep = Keep::kSignificance};
  TableChoice other;
  choose_table(kernels, leveled, other);
  if (bits_of(other, leveled) + chunk.count / 2 > bits_of(choice, chunk)) return chunk;
  choice = other;
  return leveled;
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

float* room_place(const Exec& exec, std::uint64_t count) noexcept {
  return values_place(exec) + std::min<std::uint64_t>(count, kBlockElements);
}

std::uint64_t halves_bound(std::uint64_t count) noexcept {
  return 2 * std::min<std::uint64_t>(count, kChunkElements) * sizeof(float);
}

std::uint32_t encode_chunk(const Kernels& kernels, const Values& given, const ChunkPlace& out,
                           const Exec& exec, float* room) {
  assert(given.count > 0 && given.count <= kChunkElements);
  assert(exec.scratch.size() >= scratch_bound(given.count));
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

}  // namespace deltawire::gcomp
