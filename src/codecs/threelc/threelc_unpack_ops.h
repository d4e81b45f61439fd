// The parts that vector decoders have in common. They give up where anything is wrong with a chunk: the
// reference's decoder then says what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc {

// Of a full chunk.
inline constexpr std::uint32_t kMostPackedBytes = packed_bytes(kChunkElements);
inline constexpr std::uint32_t kMostMapBytes = map_bytes(kChunkElements);
inline constexpr std::uint32_t kRoom = 128;  // behind these, for stores of whole vectors

// How values get to the slot.
enum class Into : std::uint8_t { kSlot, kPastCaches, kSum };

// What the slot of a chunk allows: values go past the caches in whole lines only.
[[gnu::always_inline]] inline Into into_of(const DecodeTarget& target) noexcept {
  if (target.accumulate) return Into::kSum;
  const bool lines = bit_cast<std::uintptr_t>(target.slot) % 64 == 0;
  return target.streamed && lines ? Into::kPastCaches : Into::kSlot;
}

// Whether so few digits aren't 0 that they are better looked for one by one.
[[gnu::always_inline]] inline bool sparse(std::uint32_t nonzeros, std::uint32_t count) noexcept {
  return nonzeros <= count / 64;
}

// Of a row, that they are added one by one.
inline constexpr unsigned kFewBytes = 6;

// Values of maps' digits from element `begin` on, one by one.
[[gnu::always_inline]] inline void put_last_digits(const DigitMaps& maps, std::uint32_t begin,
                                                   const DecodeTarget& target) noexcept {
  for (std::uint32_t at = begin; at < target.count; ++at) {
    const unsigned bit = at % 8;
    const bool nonzero = (static_cast<unsigned>(maps.nonzero[at / 8]) >> bit & 1) != 0;
    const bool negative = (static_cast<unsigned>(maps.negative[at / 8]) >> bit & 1) != 0;
    const float value = negative ? -target.value : target.value;
    if (!target.accumulate) target.slot[at] = nonzero ? value : 0.0F;
    if (target.accumulate && nonzero) target.slot[at] += value;
  }
}

// The digits of the bytes of a row that `nonzero` says, one by one.
[[gnu::always_inline]] inline void add_bytes(const std::byte* packed, std::uint64_t nonzero, float value,
                                             float* slot) noexcept {
  for (; nonzero != 0; nonzero &= nonzero - 1) {
    const unsigned j = countr_zero(nonzero);
    std::uint32_t fraction = static_cast<std::uint32_t>(packed[j]) * 270;
    for (std::uint32_t p = 0; p < kDigitsPerByte; ++p) {
      fraction = (fraction & 0xFFFF) * 3;
      const std::uint32_t digit = fraction >> 16;
      if (digit != 1) slot[j + p * kRowBytes] += digit == 2 ? value : -value;
    }
  }
}

namespace DELTAWIRE_TARGET {

// Puts `rows` full rows of packed bytes into the slot. Returns the largest of the bytes: above kMaxPackedByte
// they mean nothing.
std::uint32_t unpack_rows(const std::byte* packed, std::uint32_t rows, const DecodeTarget& target);

// Puts the values of maps of target.count digits into the slot.
void put_digits(const DigitMaps& maps, const DecodeTarget& target);

// Expands mode 1 to `bytes` packed bytes; behind them there is kRoom. False if the chunk is no valid one.
bool expand_runs(const ChunkBytes& codes, std::byte* packed, std::uint32_t bytes);

// Reads mode 2 into maps of `count` elements; behind each there is kRoom. False if the chunk is no valid one,
// or an uncommon one: then the maps' content is unspecified.
bool read_rice(const ChunkBytes& rice, std::uint32_t count, const DigitMaps& maps);

// Reads mode 2 and adds to the slot, or sets, what isn't 0. False as above.
bool scatter_rice(const ChunkBytes& rice, const DecodeTarget& target);

[[gnu::always_inline]] inline Fault decode_as_reference(const ChunkBytes& chunk,
                                                        const DecodeTarget& target) noexcept {
  return kernels_for(TargetId::kReference).decode(chunk, target);
}

// The last row, of fewer than 320 elements, as a chunk of its own.
[[gnu::always_inline]] inline Fault decode_last_row(const std::byte* packed, std::uint32_t rows,
                                                    const DecodeTarget& target) noexcept {
  DecodeTarget row = target;
  row.slot += rows * kRowElements;
  row.count -= rows * kRowElements;
  if (row.count == 0) return Fault::kNone;
  std::byte chunk[1 + kRowBytes] = {static_cast<std::byte>(ChunkMode::kBase3)};
  const std::uint32_t bytes = packed_bytes(row.count);
  std::memcpy(chunk + 1, packed + rows * kRowBytes, bytes);
  return decode_as_reference({chunk, 1 + bytes}, row);
}

[[gnu::always_inline]] inline Fault decode_packed(const std::byte* packed,
                                                  const DecodeTarget& target) noexcept {
  const std::uint32_t rows = target.count / kRowElements;
  if (unpack_rows(packed, rows, target) > kMaxPackedByte) return Fault::kBadByte;
  return decode_last_row(packed, rows, target);
}

[[gnu::always_inline]] inline Fault decode_runs(const ChunkBytes& chunk,
                                                const DecodeTarget& target) noexcept {
  alignas(64) std::byte packed[kMostPackedBytes + kRoom];
  const bool valid = expand_runs({chunk.at + 1, chunk.bytes - 1}, packed, packed_bytes(target.count));
  return valid ? decode_packed(packed, target) : decode_as_reference(chunk, target);
}

[[gnu::always_inline]] inline Fault decode_rice(const ChunkBytes& chunk,
                                                const DecodeTarget& target) noexcept {
  const ChunkBytes rice = {chunk.at + 1, chunk.bytes - 1};
  if (rice.bytes < kRiceHeaderBytes) return Fault::kTruncated;
  // Past the caches each line is written but once.
  if (sparse(load_le<std::uint16_t>(rice.at + 1), target.count) && into_of(target) != Into::kPastCaches) {
    return scatter_rice(rice, target) ? Fault::kNone : decode_as_reference(chunk, target);
  }
  std::byte nonzero[kMostMapBytes + kRoom];
  std::byte negative[kMostMapBytes + kRoom];
  const DigitMaps maps = {nonzero, negative};
  if (!read_rice(rice, target.count, maps)) return decode_as_reference(chunk, target);
  put_digits(maps, target);
  return Fault::kNone;
}

}  // namespace DELTAWIRE_TARGET

}  // namespace deltawire::threelc
