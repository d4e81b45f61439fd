#include "transport/mesh/control_message.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/little_endian.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kMagic = 0x43445744;  // "DWDC" on the wire
constexpr std::size_t kCrcAt = 4;
constexpr std::size_t kKindAt = 8;
constexpr std::size_t kTextLengthAt = 10;
constexpr std::size_t kCodeAt = 12;
constexpr std::size_t kRankAt = 16;
constexpr std::size_t kOriginAt = 20;
constexpr std::uint32_t kNoRank = 0xFFFFFFFF;

std::optional<int> rank_from_wire(std::uint32_t value, int world_size) noexcept {
  if (value == kNoRank) return -1;
  if (value >= static_cast<std::uint32_t>(world_size)) return std::nullopt;
  return static_cast<int>(value);
}

// A peer's text goes into logs and exceptions: it stays one printable line.
std::string printable(Bytes bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (const std::byte value : bytes) {
    const auto c = static_cast<unsigned char>(value);
    text.push_back(c < 0x20 || c == 0x7F ? ' ' : static_cast<char>(c));
  }
  return text;
}

}  // namespace

void append_control_message(const ControlMessage& message, std::vector<std::byte>& out) {
  const std::size_t text_bytes = std::min(message.text.size(), kControlTextMax);
  const std::size_t start = out.size();
  out.resize(start + kControlHeaderBytes + text_bytes);
  std::byte* at = out.data() + start;
  store_le(at, kMagic);
  at[kKindAt] = static_cast<std::byte>(message.kind);
  store_le(at + kTextLengthAt, static_cast<std::uint16_t>(text_bytes));
  store_le(at + kCodeAt, static_cast<std::uint16_t>(message.code));
  store_le(at + kRankAt, message.rank < 0 ? kNoRank : static_cast<std::uint32_t>(message.rank));
  store_le(at + kOriginAt, message.origin < 0 ? kNoRank : static_cast<std::uint32_t>(message.origin));
  if (text_bytes > 0) std::memcpy(at + kControlHeaderBytes, message.text.data(), text_bytes);
  store_le(at + kCrcAt, crc32c(Bytes(out).subspan(start + kKindAt)));
}

bool ControlParser::feed(Bytes bytes, std::vector<ControlMessage>& messages) {
  while (!bytes.empty() && !damaged_) {
    const std::size_t take = std::min(bytes.size(), needed() - held_bytes_);
    std::memcpy(held_.data() + held_bytes_, bytes.data(), take);
    held_bytes_ += take;
    bytes = bytes.subspan(take);
    if (damaged_ || held_bytes_ < kControlHeaderBytes) continue;
    // Checked before the length is used, so that a foreign stream is refused at its first header.
    if (load_le<std::uint32_t>(held_.data()) != kMagic ||
        load_le<std::uint16_t>(held_.data() + kTextLengthAt) > kControlTextMax) {
      damaged_ = true;
      break;
    }
    if (held_bytes_ < needed()) continue;
    std::optional<ControlMessage> message = parse(Bytes(held_).first(held_bytes_));
    held_bytes_ = 0;
    if (message) {
      messages.push_back(std::move(*message));
    } else {
      damaged_ = true;
    }
  }
  return !damaged_;
}

std::size_t ControlParser::needed() const noexcept {
  if (held_bytes_ < kControlHeaderBytes) return kControlHeaderBytes;
  return kControlHeaderBytes + load_le<std::uint16_t>(held_.data() + kTextLengthAt);
}

std::optional<ControlMessage> ControlParser::parse(Bytes whole) const {
  if (load_le<std::uint32_t>(whole.data() + kCrcAt) != crc32c(whole.subspan(kKindAt))) return std::nullopt;
  ControlMessage message;
  const auto kind = static_cast<std::uint8_t>(whole[kKindAt]);
  if (kind < static_cast<std::uint8_t>(ControlMessage::Kind::kAbort) ||
      kind > static_cast<std::uint8_t>(ControlMessage::Kind::kGoodbye)) {
    return std::nullopt;
  }
  message.kind = static_cast<ControlMessage::Kind>(kind);
  const auto code = load_le<std::uint16_t>(whole.data() + kCodeAt);
  const bool known = code >= static_cast<std::uint16_t>(ErrorCode::kInvalidArgument) &&
                     code <= static_cast<std::uint16_t>(ErrorCode::kIo);
  message.code = known ? static_cast<ErrorCode>(code) : ErrorCode::kAborted;
  const auto rank = rank_from_wire(load_le<std::uint32_t>(whole.data() + kRankAt), world_size_);
  const auto origin = rank_from_wire(load_le<std::uint32_t>(whole.data() + kOriginAt), world_size_);
  if (!rank || !origin) return std::nullopt;
  message.rank = *rank;
  message.origin = *origin;
  message.text = printable(whole.subspan(kControlHeaderBytes));
  return message;
}

}  // namespace deltawire
