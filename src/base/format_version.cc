#include "base/format_version.h"

#include <string>

namespace deltawire {

Status check_format_version(std::string_view what, std::uint64_t found, FormatVersions read) {
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
