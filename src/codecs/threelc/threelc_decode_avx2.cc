// Decoding a chunk of hostile bytes: what mode it has, and whether all of it is there. Vector kernels know
// chunks without a fault; whatever else there may be is left to the reference, which says what is wrong.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/little_endian.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_unpack_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

Fault decode_as_reference(const ChunkBytes& chunk, const DecodeTarget& target) noexcept {
  return kernels_for(TargetId::kReference).decode(chunk, target);
}

// The last row, of fewer than 320 elements, as a chunk of its own.
Fault decode_last_row(const std::byte* packed, std::uint32_t rows, const DecodeTarget& target) noexcept {
  DecodeTarget row = target;
  row.slot += rows * kRowElements;
  row.count -= rows * kRowElements;
  if (row.count == 0) return Fault::kNone;
  std::byte chunk[1 + kRowBytes] = {static_cast<std::byte>(ChunkMode::kBase3)};
  const std::uint32_t bytes = packed_bytes(row.count);
  std::memcpy(chunk + 1, packed + rows * kRowBytes, bytes);
  return decode_as_reference({chunk, 1 + bytes}, row);
}

Fault decode_packed(const std::byte* packed, const DecodeTarget& target) noexcept {
  const std::uint32_t rows = target.count / kRowElements;
  if (unpack_rows(packed, rows, target) > kMaxPackedByte) return Fault::kBadByte;
  return decode_last_row(packed, rows, target);
}

Fault decode_runs(const ChunkBytes& chunk, const DecodeTarget& target) noexcept {
  alignas(64) std::byte packed[kMostPackedBytes + kRoom];
  const bool valid = expand_runs({chunk.at + 1, chunk.bytes - 1}, packed, packed_bytes(target.count));
  return valid ? decode_packed(packed, target) : decode_as_reference(chunk, target);
}

Fault decode_rice(const ChunkBytes& chunk, const DecodeTarget& target) noexcept {
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

}  // namespace

Fault decode_chunk(const ChunkBytes& chunk, const DecodeTarget& target) {
  if (chunk.bytes == 0 || target.zeros_only) return decode_as_reference(chunk, target);
  switch (static_cast<std::uint8_t>(chunk.at[0])) {
    case static_cast<std::uint8_t>(ChunkMode::kBase3):
      return chunk.bytes == 1 + packed_bytes(target.count) ? decode_packed(chunk.at + 1, target)
                                                           : decode_as_reference(chunk, target);
    case static_cast<std::uint8_t>(ChunkMode::kZeroRuns): return decode_runs(chunk, target);
    case static_cast<std::uint8_t>(ChunkMode::kRice): return decode_rice(chunk, target);
    default: return Fault::kUnknownMode;
  }
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
