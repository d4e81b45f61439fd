#include "base/format_version.h"

#include <string>

namespace deltawire {

Status check_format_version(std::string_view what, std::uint64_t found, std::uint64_t read) {
  if (found == read) return {};
  std::string message = std::string(what) + ": format " + std::to_string(found) +
                        ", but this build reads format " + std::to_string(read) + "; ";
  message += found > read ? "use a newer deltawire"
                          : "take the deltawire that wrote it, or write it again with this one";
  return fail(ErrorCode::kUnsupportedVersion, std::move(message));
}

}  // namespace deltawire
