// The stream of a block, read from its end to its beginning; shared by all decoders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

// What is unread: [begin, at). Behind `at` stand at least what has been read and the lanes' states.
struct Stream {
  const std::byte* begin = nullptr;
  const std::byte* at = nullptr;
};

inline constexpr std::uint32_t kVectorBytes = 64;  // a load may reach this far past what it takes

// Room for the last bytes of a stream, with zeros below them, so that a stretch needs no check before each
// word.
struct StreamEnd {
  std::byte bytes[2 * kStretchBytes + kVectorBytes];
};

// Where to read the next stretch from: kStretchBytes lie below. That is the stream itself or, near its
// beginning, a copy.
[[gnu::always_inline]] inline const std::byte* readable(const Stream& stream, StreamEnd& end) noexcept {
  const auto left = static_cast<std::size_t>(stream.at - stream.begin);
  if (left >= kStretchBytes) [[likely]]
    return stream.at;
  std::memset(end.bytes, 0, sizeof end.bytes);
  if (left > 0) std::memcpy(end.bytes + kStretchBytes, stream.begin, left);
  return end.bytes + kStretchBytes + left;
}

// Takes the bytes that a stretch has read. False if they weren't there.
[[gnu::always_inline]] inline bool advance(Stream& stream, std::uint32_t used) noexcept {
  if (used > static_cast<std::size_t>(stream.at - stream.begin)) return false;
  stream.at -= used;
  return true;
}

// Whether an escape may stand for `exponent`: for one without a code, and for 0 only where tiny values are
// kept.
[[gnu::always_inline]] inline bool may_escape(const DecodeTable& table, std::uint32_t exponent) noexcept {
  if (exponent == 0 && !table.whole) return false;
  return (table.coded[exponent / 64] >> (exponent % 64) & 1) == 0;
}

// What a lane holds at its start: the `count` bits below the end bit of its state. False if it has no end
// bit, or fewer than `least` bits.
[[gnu::always_inline]] inline bool open_lane(const std::byte* at, unsigned least, std::uint32_t& bits,
                                             std::uint32_t& count) noexcept {
  const auto state = load_le<std::uint32_t>(at);
  if (state >> least == 0) return false;
  count = bit_width(state) - 1;
  bits = state ^ 1U << count;
  return true;
}

// What becomes of decoded values; kStream: written past the caches.
enum class Deliver : std::uint8_t { kOverwrite, kStream, kScale, kAccumulate };

// Calls `call` with what the target asks for as its template's argument. Vectors of kVector bytes
// can be written past the caches if the slot is aligned to them; with 0, none can.
template <std::uintptr_t kVector, class Call>
[[gnu::always_inline]] inline auto for_target(const Target& target, const Call& call) noexcept {
  if (target.accumulate) return call.template operator()<Deliver::kAccumulate>();
  if (target.scale != 1.0F) return call.template operator()<Deliver::kScale>();
  if constexpr (kVector > 0) {
    const bool streamed = target.streamed && bit_cast<std::uintptr_t>(target.slot) % kVector == 0;
    if (streamed) return call.template operator()<Deliver::kStream>();
  }
  return call.template operator()<Deliver::kOverwrite>();
}

// Leaves stored values from `begin` on to the reference. `payload` may be null: zeros.
[[gnu::always_inline]] inline void hand_over_rest(const std::byte* payload, const Target& target,
                                                  std::uint32_t begin) noexcept {
  const std::byte* const behind = payload != nullptr ? payload + begin * kValueBytes : nullptr;
  kernels_for(TargetId::kReference).decode_stored(behind, rest_of(target, begin));
}

// What later stretches read of the stream, downwards, and where they write, unless that goes past the caches.
template <Deliver kDeliver>
[[gnu::always_inline]] inline void fetch_early(const std::byte* at, const float* slot) noexcept {
  for (unsigned line = 0; line < 6; ++line) {
    __builtin_prefetch(at - 2048 - 64 * line);
  }
  if constexpr (kDeliver == Deliver::kStream) return;
  for (unsigned i = 0; i < kMaxStretch; i += 16) {
    __builtin_prefetch(slot + 4 * kMaxStretch + i);
  }
}

// Decodes a block of whole stretches, and of a last one that is decoded into a copy of its values. Decoder, a
// target's lanes: open(states), a fault if they are none; stretch<kDeliver>(count, at, slot), which reads
// `count` values downwards from `at` and writes all of a stretch; close(), a fault if the lanes don't end as
// they must.
template <Deliver kDeliver, class Decoder>
[[gnu::always_inline]] inline Fault decode_by(Decoder& decoder, const BlockBytes& body,
                                              const Target& target) noexcept {
  Stream stream{body.at, body.at + body.stream_bytes};
  if (const Fault fault = decoder.open(stream.at); fault != nullptr) return fault;
  StreamEnd end;
  for (std::uint32_t begin = 0; begin < target.count; begin += kMaxStretch) {
    const std::uint32_t count = target.count - begin;
    const std::byte* const from = readable(stream, end);
    const std::byte* at = from;
    fetch_early<kDeliver>(at, target.slot + begin);
    Fault fault = nullptr;
    if (count >= kMaxStretch) [[likely]] {
      fault = decoder.template stretch<kDeliver>(kMaxStretch, at, target.slot + begin);
    } else {
      constexpr Deliver kPlain = kDeliver == Deliver::kStream ? Deliver::kOverwrite : kDeliver;
      float last[kMaxStretch] = {};
      std::memcpy(last, target.slot + begin, count * sizeof(float));
      fault = decoder.template stretch<kPlain>(count, at, last);
      std::memcpy(target.slot + begin, last, count * sizeof(float));
    }
    if (!advance(stream, static_cast<std::uint32_t>(from - at))) return &faults::kTruncated;
    if (fault != nullptr) return fault;
  }
  return stream.at == stream.begin ? decoder.close() : &faults::kBytesLeft;
}

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
