#include "deltawire/result.h"

#include <array>
#include <cassert>

namespace deltawire {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The well-formed sequences of UTF-8: table 3-7 of the Unicode standard, chapter 3.9.
struct LeadBytes {
  std::uint8_t first;
  std::uint8_t last;
  std::uint8_t continuations;
  std::uint8_t second_first;  // the second byte's range; that of further bytes is 80 to BF
  std::uint8_t second_last;
};
constexpr std::array<LeadBytes, 9> kLeadBytes{{{0x00, 0x7F, 0, 0, 0},
                                               {0xC2, 0xDF, 1, 0x80, 0xBF},
                                               {0xE0, 0xE0, 2, 0xA0, 0xBF},
                                               {0xE1, 0xEC, 2, 0x80, 0xBF},
                                               {0xED, 0xED, 2, 0x80, 0x9F},
                                               {0xEE, 0xEF, 2, 0x80, 0xBF},
                                               {0xF0, 0xF0, 3, 0x90, 0xBF},
                                               {0xF1, 0xF3, 3, 0x80, 0xBF},
                                               {0xF4, 0xF4, 3, 0x80, 0x8F}}};

struct Character {
  std::size_t bytes;  // its length; if it is malformed, that of its well-formed beginning
  bool is_whole;
  char32_t code_point;
};

// The first character.
Character first_character(std::string_view text) noexcept {
  assert(!text.empty());
  const auto byte_at = [text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte_at(0);
  for (const LeadBytes& kind : kLeadBytes) {
    if (lead < kind.first || lead > kind.last) continue;
    if (kind.continuations == 0) return {1, true, lead};
    char32_t code_point = lead & (0x3Fu >> kind.continuations);
    for (std::size_t i = 1; i <= kind.continuations; ++i) {
      const std::uint8_t lowest = i == 1 ? kind.second_first : std::uint8_t{0x80};
      const std::uint8_t highest = i == 1 ? kind.second_last : std::uint8_t{0xBF};
      if (i == text.size() || byte_at(i) < lowest || byte_at(i) > highest) return {i, false, 0};
      code_point = code_point << 6 | (byte_at(i) & 0x3Fu);
    }
    return {std::size_t{1} + kind.continuations, true, code_point};
  }
  return {1, false, 0};
}

// Not C0 and C1 control characters, line separators, and marks that change the reading direction.
bool is_printable(char32_t c) noexcept {
  if (c < 0x20 || (c >= 0x7F && c <= 0x9F)) return false;
  if (c == 0x061C || c == 0x200E || c == 0x200F || c == 0xFEFF) return false;
  return !(c >= 0x2028 && c <= 0x202E) && !(c >= 0x2066 && c <= 0x2069);
}

}  // namespace

std::string printable_line(std::string_view text, std::size_t max_bytes) {
  std::string line;
  while (!text.empty()) {
    const Character character = first_character(text);
    std::string_view shown = text.substr(0, character.bytes);
    if (!character.is_whole) {
      shown = kReplacement;
    } else if (!is_printable(character.code_point)) {
      shown = " ";
    }
    if (shown.size() > max_bytes - line.size()) break;
    line += shown;
    text.remove_prefix(character.bytes);
  }
  return line;
}

std::string_view error_code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "InvalidArgument";
    case ErrorCode::kUnknownCodec: return "UnknownCodec";
    case ErrorCode::kUnsupportedDType: return "UnsupportedDType";
    case ErrorCode::kNotFinite: return "NotFinite";
    case ErrorCode::kRange: return "Range";
    case ErrorCode::kOutputTooSmall: return "OutputTooSmall";
    case ErrorCode::kTruncated: return "Truncated";
    case ErrorCode::kCorrupt: return "Corrupt";
    case ErrorCode::kUnsupportedVersion: return "UnsupportedVersion";
    case ErrorCode::kMismatch: return "Mismatch";
    case ErrorCode::kLimit: return "Limit";
    case ErrorCode::kTimeout: return "Timeout";
    case ErrorCode::kPeerLost: return "PeerLost";
    case ErrorCode::kAborted: return "Aborted";
    case ErrorCode::kUnauthorized: return "Unauthorized";
    case ErrorCode::kAddressInUse: return "AddressInUse";
    case ErrorCode::kSystem: return "System";
    case ErrorCode::kState: return "State";
    case ErrorCode::kIo: return "Io";
    case ErrorCode::kNoMemory: return "NoMemory";
    case ErrorCode::kExcluded: return "Excluded";
    case ErrorCode::kNoQuorum: return "NoQuorum";
  }
  return "Unknown";
}

std::string Error::text() const {
  return advice.empty() ? message : message + "; " + advice;
}

}  // namespace deltawire
