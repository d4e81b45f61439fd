// The operating system's texts for error numbers, for messages.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "deltawire/result.h"

namespace deltawire {

// Made printable, because the text is in the locale's encoding, which need not be UTF-8.
inline std::string os_error_text(int error_number) {
  return printable_line(std::generic_category().message(error_number));
}

// A failed system call on a file: kIo, "<what>: <text of errno>".
inline tl::unexpected<Error> io_error(const std::string& what) {
  return fail(ErrorCode::kIo, what + ": " + os_error_text(errno));
}

// A thread that could not be started: kSystem.
inline tl::unexpected<Error> no_thread(const std::string& whose, const std::system_error& error) {
  return fail(ErrorCode::kSystem, "no thread for " + whose + ": " + os_error_text(error.code().value()) +
                                      "; allow more (ulimit -u, a container's pids limit)");
}

}  // namespace deltawire
