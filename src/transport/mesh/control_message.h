// Control messages: small news between ranks, on streams of their own so that they never queue behind
// data. 24 bytes, little-endian, then `text length` bytes of text:
//
//   0  u32  magic
//   4  u32  CRC-32C of bytes 8 to the end of the text
//   8  u8   kind
//   9  u8   0
//  10  u16  text length, <= 512
//  12  u16  error code (abort)
//  14  u16  0
//  16  u32  rank: the suspect (abort), or the one waited for (waiting); 0xFFFFFFFF for none
//  20  u32  origin: the rank that failed first (abort); else 0xFFFFFFFF
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

struct ControlMessage {
  enum class Kind : std::uint8_t {
    kAbort = 1,    // the mesh has failed: code, rank (suspect), origin, text
    kWaiting = 2,  // the sender has been waiting for `rank` for a while; rank -1: no longer
    kGoodbye = 3,  // the sender leaves, and nothing is wrong
  };
  Kind kind = Kind::kGoodbye;
  ErrorCode code = ErrorCode::kAborted;
  int rank = -1;
  int origin = -1;
  std::string text;
};

inline constexpr std::size_t kControlHeaderBytes = 24;
inline constexpr std::size_t kControlTextMax = 512;

// Appends the encoding to `out`; a longer text is cut.
void append_control_message(const ControlMessage& message, std::vector<std::byte>& out);

// Takes a control stream apart, however it was cut on its way. Never holds more than one message.
class ControlParser {
 public:
  // `world_size` bounds the ranks that messages may name.
  explicit ControlParser(int world_size) noexcept : world_size_(world_size) {}

  // Feeds bytes and appends the messages they complete. False: the stream is damaged, and stays so.
  bool feed(Bytes bytes, std::vector<ControlMessage>& messages);

 private:
  std::optional<ControlMessage> parse(Bytes whole) const;
  std::size_t needed() const noexcept;

  int world_size_;
  std::array<std::byte, kControlHeaderBytes + kControlTextMax> held_{};
  std::size_t held_bytes_ = 0;
  bool damaged_ = false;
};

}  // namespace deltawire
