#include "transport/tcp/hello.h"

#include <cerrno>
#include <cstring>

#include <sys/socket.h>

#include "base/little_endian.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kMagic = 0x48445744;  // "DWDH" on the wire
constexpr std::size_t kTokenBytes = std::tuple_size_v<Token>;
constexpr std::size_t kFixedSize = 20;

// Takes the same time wherever the first difference is, so that guessing byte by byte is no use.
bool equal_in_constant_time(const std::byte* a, const std::byte* b, std::size_t count) noexcept {
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < count; ++i) {
    difference = static_cast<unsigned char>(difference | static_cast<unsigned char>(a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace

std::vector<std::byte> encode_hello(const Token& token, const Hello& hello) {
  std::vector<std::byte> bytes(kTokenBytes + kFixedSize + hello.settings.size());
  std::memcpy(bytes.data(), token.data(), kTokenBytes);
  std::byte* at = bytes.data() + kTokenBytes;
  store_le(at, kMagic);
  store_le(at + 4, hello.version);
  at[6] = static_cast<std::byte>(hello.stream);
  store_le(at + 8, hello.rank);
  store_le(at + 12, hello.world_size);
  store_le(at + 16, static_cast<std::uint32_t>(hello.settings.size()));
  if (!hello.settings.empty()) std::memcpy(at + kFixedSize, hello.settings.data(), hello.settings.size());
  return bytes;
}

HelloReader::State HelloReader::read(int fd) {
  while (true) {
    while (held_bytes_ < wanted_) {
      const ssize_t got = ::recv(fd, held_.data() + held_bytes_, wanted_ - held_bytes_, MSG_DONTWAIT);
      if (got > 0) {
        held_bytes_ += static_cast<std::size_t>(got);
      } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        return State::kClosed;
      } else if (errno != EINTR) {
        return State::kMore;
      }
    }
    const State state = end_of_part();
    if (state != State::kMore) return state;
  }
}

HelloReader::State HelloReader::end_of_part() {
  switch (part_) {
    case Part::kToken:
      if (!equal_in_constant_time(held_.data(), expected_.data(), kTokenBytes)) return State::kStranger;
      part_ = Part::kFixed;
      wanted_ = kFixedBytes;
      break;
    case Part::kFixed:
      if (!parse_fixed()) return State::kBroken;
      part_ = Part::kSettings;
      break;
    case Part::kSettings:
      hello_.settings.assign(reinterpret_cast<const char*>(held_.data()), held_bytes_);
      return State::kDone;
  }
  held_bytes_ = 0;
  return State::kMore;
}

bool HelloReader::parse_fixed() {
  const std::byte* at = held_.data();
  if (load_le<std::uint32_t>(at) != kMagic) return false;
  hello_.version = load_le<std::uint16_t>(at + 4);
  const auto stream = static_cast<std::uint8_t>(at[6]);
  if (stream != static_cast<std::uint8_t>(Hello::Stream::kData) &&
      stream != static_cast<std::uint8_t>(Hello::Stream::kControl)) {
    return false;
  }
  hello_.stream = static_cast<Hello::Stream>(stream);
  hello_.rank = load_le<std::uint32_t>(at + 8);
  hello_.world_size = load_le<std::uint32_t>(at + 12);
  const auto length = load_le<std::uint32_t>(at + 16);
  if (length > kSettingsMax) return false;
  wanted_ = length;
  return true;
}

}  // namespace deltawire
