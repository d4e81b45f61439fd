// Gives frames and states the checksums that fit them, so that a fuzzer gets past these.
#pragma once

#include <cstdint>
#include <span>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/varint.h"
#include "deltawire/tensor.h"

namespace deltawire::fuzz {

inline constexpr std::uint64_t kHeader = 28 + 6;  // where all numbers have one byte, and no scale follows

// Of a state: the last four bytes are the checksum of all before them.
inline void repair_checksum(std::span<std::byte> state) {
  if (state.size() < 4) return;
  const Bytes body = state.first(state.size() - 4);
  store_le<std::uint32_t>(state.data() + body.size(), crc32c(body));
}

// Walks over the segments, as far as they make sense, and gives each chunk its checksum.
inline void repair_chunks(std::byte* frame, Bytes segments, Bytes payload) {
  const auto number = [&] { return take_varint(segments, UINT32_MAX); };
  std::uint32_t chunk = 0;
  while (!segments.empty()) {
    const auto tag = std::to_integer<unsigned>(segments.front());
    segments = segments.subspan(1);
    if (!number()) return;                     // part
    if ((tag & 32) != 0 && !number()) return;  // parts
    if ((tag & 16) != 0 && !number()) return;  // begin
    if (!number()) return;                     // count
    if ((tag & 3) != 0) continue;
    const std::size_t scalars = 4 * (tag >> 2 & 3);
    if (!number() || segments.size() < scalars) return;
    segments = segments.subspan(scalars);
    for (std::uint64_t left = number().value_or(0); left > 0; --left) {
      const auto bytes = number();
      if (!bytes || *bytes > payload.size() || segments.size() < 4) return;
      store_le<std::uint32_t>(frame + (segments.data() - frame), crc32c(payload.first(*bytes), chunk++));
      segments = segments.subspan(4);
      payload = payload.subspan(*bytes);
    }
  }
}

inline void repair_checksums(std::byte* frame, std::uint64_t bytes) {
  const std::uint64_t head = load_le<std::uint32_t>(frame + 8);
  if (head < kHeader || head > bytes) return;
  const Bytes all(frame, bytes);
  repair_chunks(frame, all.subspan(kHeader, head - kHeader), all.subspan(head));
  store_le<std::uint32_t>(frame + 16, crc32c(all.subspan(20, head - 20), crc32c(all.first(16))));
}

// Frame after frame, as far as their lengths say where the next one begins. `before` may change each.
template <class Before>
void repair_frames(std::span<std::byte> message, Before&& before) {
  while (message.size() >= kHeader) {
    before(message.data());
    repair_checksums(message.data(), message.size());
    const std::uint64_t frame_bytes = load_le<std::uint32_t>(message.data() + 12);
    if (frame_bytes < kHeader || frame_bytes > message.size()) return;
    message = message.subspan(frame_bytes);
  }
}

}  // namespace deltawire::fuzz
