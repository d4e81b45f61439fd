// What precedes every message on a data stream: 24 bytes, little-endian.
//
//   0  u32  magic
//   4  u32  CRC-32C of the other 20 bytes
//   8  u64  tag
//  16  u64  length of the message
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "deltawire/result.h"
#include "deltawire/transport.h"

namespace deltawire {

inline constexpr std::size_t kMessageHeaderBytes = 24;

struct MessageHeader {
  Tag tag = 0;
  std::uint64_t length = 0;
};

using MessageHeaderBytes = std::array<std::byte, kMessageHeaderBytes>;

MessageHeaderBytes encode_message_header(const MessageHeader& header) noexcept;

// kCorrupt: wrong magic, wrong checksum, or a length above kMessageBytesMax. `sender` is the suspect.
Result<MessageHeader> decode_message_header(std::span<const std::byte, kMessageHeaderBytes> bytes,
                                            int sender);

}  // namespace deltawire
