// What precedes every message on a data stream: 32 bytes, little-endian.
//
//   0  u32  magic
//   4  u32  CRC-32C of the other 28 bytes
//   8  u64  tag
//  16  u64  length of the message
//  24  u64  0
//
// The last eight bytes are padding for the kernel's copies. On CPUs with FSRM it copies with `rep movsb`,
// which on AMD's Zen 3 and Zen 4 is 15 times slower if the target is 1 to 15 bytes after the source, modulo
// 4,096. Large allocations begin 16 bytes into a page, and after a header of 24 bytes the kernel's copy of
// such a message would begin at 24.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "deltawire/result.h"
#include "deltawire/transport.h"

namespace deltawire {

inline constexpr std::size_t kMessageHeaderBytes = 32;
static_assert(kMessageHeaderBytes % 16 == 0);

struct MessageHeader {
  Tag tag = 0;
  std::uint64_t length = 0;
};

using MessageHeaderBytes = std::array<std::byte, kMessageHeaderBytes>;

MessageHeaderBytes encode_message_header(const MessageHeader& header) noexcept;

// kCorrupt: wrong magic, wrong checksum, last bytes that are not 0, or a length above kMessageBytesMax.
// `sender` is the suspect.
Result<MessageHeader> decode_message_header(std::span<const std::byte, kMessageHeaderBytes> bytes, int sender,
                                            const RankNames& names = RankNames::plain());

}  // namespace deltawire
