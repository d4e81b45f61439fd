// What the operating system says of an error number, for messages.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "deltawire/result.h"

namespace deltawire {

// In the language and the encoding of the process's locale, which need not be UTF-8: made printable.
inline std::string os_error_text(int error_number) {
  return printable_line(std::generic_category().message(error_number));
}

// A failed system call on a file: kIo, "<what>: <what the system says of errno>".
inline tl::unexpected<Error> io_error(const std::string& what) {
  return fail(ErrorCode::kIo, what + ": " + os_error_text(errno));
}

}  // namespace deltawire
