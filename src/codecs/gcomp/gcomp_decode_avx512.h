// Decoding for AVX-512: blocks of 64 lanes. Shorter ones are left to the reference. What includes this has
// included the lanes that fit its target.
#pragma once

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "codecs/gcomp/gcomp_stream_ops.h"
#include "codecs/gcomp/gcomp_vectors_avx512.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

template <bool kWhole, Deliver kDeliver>
Fault decode_lanes(const BlockBytes& body, const DecodeTable& table, const Target& target) noexcept {
  Stream stream{body.at, body.at + body.stream_bytes};
  Lanes opened;
  if (!open(stream.at, kWhole, opened)) return Fault::kLaneState;
  Lanes lanes = opened;  // whose address nobody has: it stays in registers, which values written can't change
  const Look look = load_look(table);
  const __m512 scale = _mm512_set1_ps(target.scale);
  StreamEnd end;
  Fault fault = Fault::kNone;
  std::uint32_t begin = 0;
  for (; begin < target.count; begin += kMaxStretch) {
    const std::uint32_t count = target.count - begin;
    const std::byte* const from = readable(stream, end);
    const std::byte* at = from;
    fetch_early<kDeliver>(at, target.slot + begin);
    if (count >= kMaxStretch) [[likely]] {
      fault = decode_stretch<kWhole, false, kDeliver>(table, look, lanes, kMaxStretch, at, scale,
                                                      target.slot + begin);
    } else {
      constexpr Deliver kPlain = kDeliver == Deliver::kStream ? Deliver::kOverwrite : kDeliver;
      fault = decode_stretch<kWhole, true, kPlain>(table, look, lanes, count, at, scale, target.slot + begin);
    }
    if (!advance(stream, static_cast<std::uint32_t>(from - at))) return Fault::kTruncated;
    if (fault != Fault::kNone) return fault;
  }
  if constexpr (kDeliver == Deliver::kStream) _mm_sfence();
  return stream.at == stream.begin ? close(lanes) : Fault::kBytesLeft;
}

// `payload` may be null: zeros.
template <Deliver kDeliver>
void hand_over(const std::byte* payload, const Target& target) noexcept {
  const __m512 scale = _mm512_set1_ps(target.scale);
  const std::uint32_t full = target.count / 16 * 16;
  for (std::uint32_t i = 0; i < full; i += 16) {
    const __m512i bits =
        payload != nullptr ? _mm512_loadu_si512(payload + i * kValueBytes) : _mm512_setzero_si512();
    deliver<kDeliver>(bits, 0xFFFF, scale, target.slot + i);
  }
  if constexpr (kDeliver == Deliver::kStream) _mm_sfence();
  if (full == target.count) return;
  constexpr Deliver kPlain = kDeliver == Deliver::kStream ? Deliver::kOverwrite : kDeliver;
  const __mmask16 present = first_lanes(target.count, full);
  const __m512i bits = payload != nullptr ? _mm512_maskz_loadu_epi32(present, payload + full * kValueBytes)
                                          : _mm512_setzero_si512();
  deliver<kPlain>(bits, present, scale, target.slot + full);
}

Fault decode_any_block(const BlockBytes& body, const DecodeTable& table, const Target& target) {
  if (lanes_for(target.count) < kMaxLanes) {
    return kernels_for(TargetId::kReference).decode_block(body, table, target);
  }
  return for_target<64>(target, [&]<Deliver kDeliver>() {
    return table.whole ? decode_lanes<true, kDeliver>(body, table, target)
                       : decode_lanes<false, kDeliver>(body, table, target);
  });
}

void decode_any_stored(const std::byte* payload, const Target& target) {
  for_target<64>(target, [&]<Deliver kDeliver>() { hand_over<kDeliver>(payload, target); });
}

}  // namespace

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
