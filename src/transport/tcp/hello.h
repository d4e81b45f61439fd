// The first bytes of every TCP connection, in both directions; little-endian:
//
//   0  32 bytes  token
//  32  u32       magic
//  36  u16       version
//  38  u8        stream: 1 data, 2 control
//  39  u8        0
//  40  u32       rank of the sender
//  44  u32       its world size
//  48  u32       length of its settings, <= 1024
//  52            its settings
//
// Nothing behind the token is read before the token has matched.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "deltawire/connect.h"
#include "deltawire/tensor.h"
#include "transport/settings.h"

namespace deltawire {

struct Hello {
  enum class Stream : std::uint8_t { kData = 1, kControl = 2 };
  static constexpr std::uint16_t kVersion = 1;

  std::uint16_t version = kVersion;
  Stream stream = Stream::kData;
  std::uint32_t rank = 0;
  std::uint32_t world_size = 0;
  std::string settings;
};

// Bytes that a receiver needs to have seen; REQUIRES: settings of at most kSettingsMax bytes.
std::vector<std::byte> encode_hello(const Token& token, const Hello& hello);

// Reads a hello from a non-blocking socket, never a byte past its end.
class HelloReader {
 public:
  enum class State : std::uint8_t {
    kMore,      // not all here yet
    kDone,      // hello() is there
    kStranger,  // another token
    kClosed,    // the connection ended first
    kBroken,    // the right token, but nonsense behind it
  };

  explicit HelloReader(const Token& expected) noexcept : expected_(expected) {}

  State read(int fd);
  const Hello& hello() const noexcept { return hello_; }
  bool token_matched() const noexcept { return part_ != Part::kToken; }

 private:
  enum class Part : std::uint8_t { kToken, kFixed, kSettings };
  static constexpr std::size_t kFixedBytes = 20;

  State end_of_part();
  bool parse_fixed();

  Token expected_;
  Part part_ = Part::kToken;
  std::array<std::byte, kSettingsMax> held_{};
  std::size_t held_bytes_ = 0;
  std::size_t wanted_ = std::tuple_size_v<Token>;
  Hello hello_;
};

}  // namespace deltawire
