#include "server/skip_message.h"

#include <cassert>

#include "base/crc32c.h"
#include "base/little_endian.h"

namespace deltawire {
namespace {

constexpr std::size_t kStepBytes = sizeof(std::uint64_t);
static_assert(is_skip(kStepBytes + sizeof(std::uint32_t)));

}  // namespace

SkipMessage skip_message(std::uint64_t step) noexcept {
  SkipMessage message;
  store_le(message.data(), step);
  store_le(message.data() + kStepBytes, crc32c(Bytes(message).first(kStepBytes)));
  return message;
}

Result<std::uint64_t> read_skip(Bytes message) {
  assert(is_skip(message.size()));
  if (load_le<std::uint32_t>(message.data() + kStepBytes) != crc32c(message.first(kStepBytes))) {
    return fail(ErrorCode::kCorrupt,
                "a step that is skipped has a wrong checksum; the bytes changed on the way");
  }
  return load_le<std::uint64_t>(message.data());
}

}  // namespace deltawire
