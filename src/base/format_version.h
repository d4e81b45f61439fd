// Versions of formats (docs/reference/format.md, "What may never change"): each magic number is followed by
// the version of its format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "deltawire/result.h"

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

}  // namespace deltawire
