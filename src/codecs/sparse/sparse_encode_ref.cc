// Reference kernel: coding the positions of a chunk.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

std::uint32_t gap_before(const std::uint32_t* positions, std::uint32_t i) noexcept {
  return positions[i] - positions[i - 1] - 1;
}

// Bits of the gaps in each of the lanes. Eight at a time, as vectors have them.
void count_bits(const std::uint32_t* positions, std::uint32_t count, unsigned parameter, unsigned lanes,
                std::uint32_t* lane_bits) noexcept {
  std::uint32_t bits[kMaxLanes] = {};
  std::uint32_t i = 1;
  for (; i + kMaxLanes <= count; i += kMaxLanes) {
    for (unsigned j = 0; j < kMaxLanes; ++j) {
      const std::uint32_t unary = gap_before(positions, i + j) >> parameter;
      bits[j] += unary < kMaxUnary ? unary + 1 + parameter : kMaxUnary + kEscapeBits;
    }
  }
  for (unsigned j = 0; i < count; ++i, ++j) {
    bits[j] += rice_bits_of(gap_before(positions, i), parameter, kEscapeBits).bits;
  }
  for (unsigned j = 0; j < kMaxLanes; ++j) lane_bits[j % lanes] += bits[j];
}

}  // namespace

std::uint32_t golomb_bytes(const std::uint32_t* positions, std::uint32_t count) {
  if (count < 2) return count == 0 ? kEmptyHeadBytes : kHeadBytes;
  const unsigned lanes = lanes_for(count);
  std::uint32_t lane_bits[kMaxLanes] = {};
  count_bits(positions, count, rice_parameter(count - 1, positions[count - 1] - positions[0]), lanes,
             lane_bits);
  std::uint32_t bytes = kHeadBytes + kLaneLengthBytes * (lanes - 1);
  for (unsigned lane = 0; lane < lanes; ++lane) bytes += (lane_bits[lane] + 7) / 8;
  return bytes;
}

std::uint32_t encode_chunk(const std::uint32_t* positions, std::uint32_t count, std::byte* out,
                           std::uint64_t out_bytes) {
  out[0] = std::byte{0};
  store_le(out + 1, static_cast<std::uint16_t>(count));
  if (count == 0) return kEmptyHeadBytes;
  store_le(out + kEmptyHeadBytes, positions[0]);
  if (count == 1) return kHeadBytes;

  const unsigned parameter = rice_parameter(count - 1, positions[count - 1] - positions[0]);
  const unsigned lanes = lanes_for(count);
  out[0] = static_cast<std::byte>(countr_zero(lanes) << kLaneShift | parameter);
  std::uint32_t lane_bits[kMaxLanes] = {};
  count_bits(positions, count, parameter, lanes, lane_bits);
  std::byte* at = out + kHeadBytes + kLaneLengthBytes * (lanes - 1);
  for (unsigned lane = 0; lane < lanes; ++lane) {
    const std::uint32_t bytes = (lane_bits[lane] + 7) / 8;
    if (lane + 1 < lanes) {
      store_le(out + kHeadBytes + kLaneLengthBytes * lane, static_cast<std::uint16_t>(bytes));
    }
    BitWriter codes(at, out_bytes - static_cast<std::uint64_t>(at - out));
    for (std::uint32_t i = 1 + lane; i < count; i += lanes) {
      const RiceBits code = rice_bits_of(gap_before(positions, i), parameter, kEscapeBits);
      codes.put(code.value, code.bits);
    }
    at += codes.finish();
  }
  return static_cast<std::uint32_t>(at - out);
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
