// Versions of formats (docs/reference/format.md, "What may never change"): each magic number is followed by
// the version of its format.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/crc32c.h"
#include "base/errors.h"
#include "base/little_endian.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

// The versions of a format that this build reads: all from the oldest to the newest.
struct FormatVersions {
  FormatVersions(std::uint64_t only) noexcept : oldest(only), newest(only) {}  // NOLINT: most have one
  FormatVersions(std::uint64_t from, std::uint64_t to) noexcept : oldest(from), newest(to) {}

  std::uint64_t oldest;
  std::uint64_t newest;
};

// kUnsupportedVersion unless `found`, the version in the bytes of `what`, is one of `read`. The message names
// all of them, and says which version of deltawire reads these bytes.
inline Status check_format_version(std::string_view what, std::uint64_t found, FormatVersions read) {
  if (found >= read.oldest && found <= read.newest) return {};
  std::string message = std::string(what) + ": format " + std::to_string(found) +
                        ", but this build reads format " + std::to_string(read.oldest);
  if (read.newest > read.oldest) message += " to " + std::to_string(read.newest);
  message += "; ";
  message += found > read.newest ? "use a newer version of deltawire"
                                 : "use the version of deltawire that wrote it, or write it again";
  return fail(ErrorCode::kUnsupportedVersion, message);
}

// Of a saved state, of which errors say `what` it is: eight bytes of magic, u32 version and what else is in
// its head, a body, and the CRC-32C of these. Returns the body. Errors: kTruncated, kCorrupt,
// kUnsupportedVersion.
inline Result<Bytes> body_of_state(const std::string& what, Bytes state, std::string_view magic,
                                   FormatVersions read, std::uint64_t head_bytes) {
  constexpr std::uint64_t kCrcBytes = 4;
  if (state.size() < head_bytes + kCrcBytes) {
    return truncated(what + ": " + std::to_string(state.size()) + " bytes are too few");
  }
  if (std::memcmp(state.data(), magic.data(), magic.size()) != 0) {
    return corrupt(what + ": wrong magic; these bytes are something else");
  }
  RETURN_IF_ERROR(check_format_version(what, load_le<std::uint32_t>(state.data() + magic.size()), read));
  const Bytes checked = state.first(state.size() - kCrcBytes);
  if (crc32c(checked) != load_le<std::uint32_t>(state.data() + checked.size())) {
    return corrupt(what + ": the checksum is wrong; the bytes changed or were cut");
  }
  return checked.subspan(head_bytes);
}

}  // namespace deltawire
