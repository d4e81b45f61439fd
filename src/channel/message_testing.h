// For tests of the rules of messages: messages that no encoder would make, behind good checksums.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "deltawire/channel.h"
#include "deltawire/frame.h"
#include "wire/frame_builder.h"
#include "wire/hashes.h"

namespace deltawire::testing {

inline constexpr MessageId kId{5, 2, 4, 6, 1};
inline constexpr Policy kPolicy{16};

inline constexpr std::uint16_t kFp32 = 1;
inline constexpr std::uint16_t kBf16 = 2;
inline constexpr std::uint16_t kInt8 = 7;
inline constexpr std::uint16_t kFp16 = 17;

// One segment of a message to be made.
struct Piece {
  std::uint32_t part = 0;
  std::uint16_t codec = kInt8;
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
  SegmentState state = SegmentState::kCoded;
  std::uint32_t scalar = 0;
  std::uint32_t scalar2 = 0;
  bool new_frame = false;
  std::uint32_t parts = 1;
};

inline Piece in_new_frame(Piece piece) {
  piece.new_frame = true;
  return piece;
}

// Of 70,000 elements, none, and 3, raw, from element 1,000 of its tensor on.
struct Parts {
  std::vector<float> large = std::vector<float>(70000, 0.0F);
  std::vector<float> small = std::vector<float>(3, 0.0F);

  std::vector<Named> named() {
    return {{"large", {large.data(), large.size(), DType::kF32}, 0},
            {"empty", {nullptr, 0, DType::kF32}, 0},
            {"small", {small.data(), small.size(), DType::kF32}, 1000}};
  }
};

inline constexpr Piece kLarge{0, kInt8, 0, 70000};
inline constexpr Piece kLargeBegin{0, kInt8, 0, 65536};
inline constexpr Piece kLargeRest{0, kInt8, 65536, 4464};
inline constexpr Piece kSmall{2, kFp32, 0, 3};

inline FrameHeader header_of(std::span<const Named> parts, const MessageId& id = kId,
                             std::string_view spec = "int8", const Policy& policy = kPolicy) {
  const auto params = params_hash((*make_codec(spec))->spec(), policy);
  return {
      .message = id, .params_hash = static_cast<std::uint32_t>(params), .layout_hash = layout_hash(parts)};
}

using Spoil = std::function<void(FrameHeader&)>;

// The message of these segments, its frames' headers spoilt before their checksums are made. Coded ones have
// chunks of up to 65,536 elements, of 4 bytes where they are of fp32, 2 of bf16 and fp16, else of 1, as
// int8's.
inline std::vector<std::byte> message_of(
    FrameHeader header, const std::vector<Piece>& pieces, const Spoil& spoil = [](FrameHeader&) {},
    std::uint8_t version = kFrameVersion) {
  std::vector<std::byte> message;
  std::vector<std::byte> payload;
  FrameHeader own = header;
  spoil(own);
  FrameBuilder builder(own, message);
  builder.need_version(version);
  const auto close = [&](bool last) {
    builder.finish();
    message.insert(message.end(), payload.begin(), payload.end());
    payload.clear();
    ++header.seq;
    own = header;
    spoil(own);
    if (last) return;
    builder = FrameBuilder(own, message);
    builder.need_version(version);
  };
  for (const Piece& piece : pieces) {
    if (piece.new_frame) close(false);
    if (piece.state != SegmentState::kCoded) {
      builder.add_bare(
          {.part = piece.part, .begin = piece.begin, .count = piece.count, .state = piece.state});
      continue;
    }
    const Segment segment{.part = piece.part,
                          .begin = piece.begin,
                          .count = piece.count,
                          .codec = piece.codec,
                          .scalar = piece.scalar,
                          .scalar2 = piece.scalar2,
                          .parts = piece.parts};
    const std::uint32_t bytes = piece.codec == kFp32                           ? 4
                                : piece.codec == kBf16 || piece.codec == kFp16 ? 2
                                                                               : 1;
    const std::vector<std::byte> values(bytes * std::size_t{piece.count}, std::byte(bytes > 1 ? 0x40 : 0));
    std::vector<std::uint32_t> ends;
    for (std::uint32_t at = 65536; at < piece.count; at += 65536) ends.push_back(bytes * at);
    ends.push_back(bytes * piece.count);
    builder.add_segment(segment, values, ends);
    payload.insert(payload.end(), values.begin(), values.end());
  }
  close(true);
  return message;
}

inline void expect_code(const Status& status, std::optional<ErrorCode> wanted) {
  if (!wanted) {
    EXPECT_TRUE(status) << status.error().message;
    return;
  }
  ASSERT_FALSE(status) << "accepted";
  EXPECT_EQ(error_code_name(status.error().code), error_code_name(*wanted)) << status.error().message;
}

}  // namespace deltawire::testing
