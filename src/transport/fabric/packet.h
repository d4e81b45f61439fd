// The packets of a mesh over Gloo or MPI: a header of 24 bytes, little-endian, then the payload.
//
//   0  u32  magic
//   4  u32  CRC-32C of bytes 8 to 24
//   8  u32  kind
//  12  u32  payload bytes
//  16  u32  data packets from the receiver that the sender has consumed, since the start, modulo 2^32
//  20  u32  control packets, likewise
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "deltawire/tensor.h"

namespace deltawire {

inline constexpr std::size_t kPacketHeaderBytes = 24;
// Header and payload. Larger packets are faster over Gloo, where each needs a notification from the receiver;
// smaller ones need less memory.
inline constexpr std::size_t kPacketBytes = std::size_t{128} << 10;
inline constexpr std::size_t kPayloadMax = kPacketBytes - kPacketHeaderBytes;

// The two streams of a pair of ranks.
enum class Lane : std::uint8_t { kData = 0, kControl = 1 };
inline constexpr std::size_t kLanes = 2;

struct PacketHeader {
  enum class Kind : std::uint8_t {
    kHandshake = 1,  // the first to each peer: who sends, and with which settings
    kData = 2,       // bytes of the data stream
    kControl = 3,    // bytes of the control stream
    kGrant = 4,      // only the two counts
    kLast = 5,       // the sender's streams end here
    kTaken = 6,      // the answer to kLast: all before it has arrived
  };
  Kind kind = Kind::kGrant;
  std::uint32_t payload_bytes = 0;
  std::array<std::uint32_t, kLanes> used{};
};

// Writes the header into the first bytes of `packet`.
void encode_packet_header(const PacketHeader& header,
                          std::span<std::byte, kPacketHeaderBytes> packet) noexcept;

// Nothing if `packet`, which may be longer than what was sent, is damaged or too short for its payload.
std::optional<PacketHeader> decode_packet_header(Bytes packet) noexcept;

}  // namespace deltawire
