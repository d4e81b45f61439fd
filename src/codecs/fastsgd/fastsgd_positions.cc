#include "codecs/fastsgd/fastsgd_positions.h"

#include <array>
#include <limits>

#include "base/bit_functions.h"
#include "base/checked.h"
#include "base/little_endian.h"
#include "codecs/part_checks.h"
#include "codecs/sparse/sparse_part.h"

namespace deltawire::fastsgd {

namespace {

constexpr std::uint32_t kCodeBytes = 2;  // the base, and the bits of the rest
constexpr std::uint32_t kLeastBytes = kCodeBytes + sparse::kEmptyHeadBytes;
static_assert(kChunkPairs == sparse::kChunkPositions);

std::uint32_t value_bytes(const Head& head) noexcept {
  return (head.pairs * (head.code_bits + 1) + 7) / 8;
}

// Keys of a chunk, on their way to their values.
using Keys = std::array<std::uint32_t, kChunkPairs>;

Status decode_position_chunk(const PositionKeys& form, const PositionChunk& read, std::size_t number,
                             const DecodeRules& rules, DecodeTarget& target, Keys& keys) {
  const sparse::ChunkContent content = form.positions.decode_chunk(
      read.positions, target.least_key, {.count = target.dimension, .positions = keys.data()});
  if (content.fault != sparse::Fault::kNone) {
    return deltawire::fault_status("fastsgd", number, content.fault, sparse::fault_text(content.fault));
  }
  if (target.sink == Sink::kPairs && read.head.pairs > target.capacity - target.pairs) {
    return fault_status(Fault::kNoRoom, number);
  }
  target.least_key = content.next;
  if (read.head.pairs == 0) return {};
  return fault_status(form.kernels.place_values({keys.data(), read.head, read.values}, rules, target),
                      number);
}

}  // namespace

std::uint64_t position_bytes_bound(std::uint64_t pairs, std::uint64_t elements) noexcept {
  if (elements > sparse::kMaxElements) return std::numeric_limits<std::uint64_t>::max();
  if (pairs == 0) return kLeastBytes;
  return sparse::positions_bound(pairs, elements) + kCodeBytes * ceil_div(pairs, kChunkPairs);
}

std::uint32_t write_position_chunk(const PositionKeys& form, const ChunkPairs& chunk, MutBytes out) {
  const unsigned code_bits = bit_width(chunk.range.highest - chunk.range.lowest);
  store_le(out.data(), static_cast<std::uint16_t>(chunk.range.lowest | code_bits << kMaxCodeBits));
  const std::uint32_t head =
      kCodeBytes + sparse::write_positions(form.positions, sparse::PositionCode::kShorter,
                                           {chunk.keys, chunk.pairs}, out.subspan(kCodeBytes));
  const std::byte* const end = form.kernels.write_values(chunk, code_bits, out.data() + head);
  return static_cast<std::uint32_t>(end - out.data());
}

Fault read_position_chunk(const ChunkBytes& chunk, bool is_first, bool is_last,
                          PositionChunk& read) noexcept {
  if (chunk.bytes < kLeastBytes) return Fault::kTruncated;
  Head& head = read.head;
  head.pairs = load_le<std::uint16_t>(chunk.at + kCodeBytes + 1);  // behind the code of the positions
  if (head.pairs > kChunkPairs || (!is_last && head.pairs != kChunkPairs)) return Fault::kPairCount;
  if (head.pairs == 0 && !is_first) return Fault::kPairCount;
  const std::uint32_t codes = load_le<std::uint16_t>(chunk.at);
  head.base = codes & kMaxCode;
  head.code_bits = codes >> kMaxCodeBits;
  if (head.code_bits > kMaxCodeBits || (head.pairs == 0 && codes != 0)) return Fault::kHead;
  const std::uint32_t values = value_bytes(head);
  if (values > chunk.bytes - kLeastBytes) return Fault::kTruncated;
  read.positions = {chunk.at + kCodeBytes, chunk.bytes - kCodeBytes - values};
  read.values = {chunk.at + chunk.bytes - values, values};
  return Fault::kNone;
}

Status decode_position_chunks(const PositionKeys& form, const PartView& in, const DecodeRules& rules,
                              DecodeTarget& target) {
  if (auto ok = sparse::check_count("fastsgd", target.dimension); !ok) return ok;
  Keys keys;
  for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
    PositionChunk read;
    const Fault fault = read_position_chunk(chunk_of(in, i), i == 0, i + 1 == in.chunk_ends.size(), read);
    if (fault != Fault::kNone) return fault_status(fault, i);
    if (auto ok = decode_position_chunk(form, read, i, rules, target, keys); !ok) return ok;
  }
  return {};
}

ChunkSections position_sections(const PositionKeys& form, const ChunkBytes& chunk) {
  PositionChunk read;
  read_position_chunk(chunk, true, true, read);
  const sparse::ChunkContent content =
      form.positions.decode_chunk(read.positions, 0, {.count = sparse::kMaxElements});
  return {.head = std::uint64_t{kCodeBytes + content.head_bytes} * 8,
          .values = std::uint64_t{value_bytes(read.head)} * 8,
          .keys = std::uint64_t{read.positions.bytes - content.head_bytes} * 8};
}

}  // namespace deltawire::fastsgd
