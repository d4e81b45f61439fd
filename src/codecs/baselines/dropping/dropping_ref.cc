#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/baselines/dropping/dropping_ops.h"

namespace deltawire::dropping::DELTAWIRE_TARGET {

namespace {

std::uint32_t largest(const Addends& x) {
  return largest_magnitude(x.in, x.residual, x.count);
}

std::uint32_t encode_chunk(const Addends& x, std::uint32_t least, std::byte* out) {
  std::uint32_t written = bitmap_bytes(x.count);
  for (std::uint32_t i = 0; i < written; ++i) out[i] = std::byte{0};
  for (std::uint64_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    const bool is_sent = magnitude_bits(sum) >= least;
    if (x.left != nullptr) x.left[i] = is_sent ? 0 : sum;
    if (!is_sent) continue;
    out[i / 8] |= static_cast<std::byte>(1U << i % 8);
    store_le(out + written, bit_cast<std::uint32_t>(sum));
    written += kValueBytes;
  }
  return written;
}

std::uint32_t sent_in(const ChunkBytes& chunk, std::uint32_t bytes) noexcept {
  std::uint32_t sent = 0;
  for (std::uint32_t i = 0; i < bytes; ++i) sent += popcount(static_cast<std::uint64_t>(chunk.at[i]));
  return sent;
}

Fault check(const ChunkBytes& chunk, std::uint64_t count) noexcept {
  const std::uint32_t bitmap = bitmap_bytes(count);
  if (chunk.bytes < bitmap) return Fault::kTruncated;
  const unsigned used = count % 8;
  if (used != 0 && static_cast<unsigned>(chunk.at[bitmap - 1]) >> used != 0) return Fault::kPadding;
  const std::uint32_t sent = sent_in(chunk, bitmap);
  if (chunk.bytes - bitmap < sent * kValueBytes) return Fault::kTruncated;
  if (chunk.bytes - bitmap > sent * kValueBytes) return Fault::kTrailingBytes;
  for (std::uint32_t at = bitmap; at < chunk.bytes; at += kValueBytes) {
    if ((load_le<std::uint32_t>(chunk.at + at) & kMagnitudeMask) >= kInfinityBits) return Fault::kValue;
  }
  return Fault::kNone;
}

Fault decode_chunk(const ChunkBytes& chunk, std::uint64_t count, const Target& target) {
  const Fault fault = check(chunk, count);
  if (fault != Fault::kNone || target.slot == nullptr) return fault;
  std::uint32_t at = bitmap_bytes(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!target.accumulate) target.slot[i] = 0;
    if ((static_cast<unsigned>(chunk.at[i / 8]) >> i % 8 & 1) == 0) continue;
    const float value = bit_cast<float>(load_le<std::uint32_t>(chunk.at + at));
    at += kValueBytes;
    if (value == 0) continue;
    target.slot[i] = target.accumulate ? target.slot[i] + target.scale * value : target.scale * value;
  }
  return Fault::kNone;
}

}  // namespace

extern constexpr Kernels kKernels = {largest, encode_chunk, decode_chunk};

}  // namespace deltawire::dropping::DELTAWIRE_TARGET
