// How calls make errors, and pass them on in one line, in a function that returns a Result:
//
//   if (count == 0) return invalid("count is 0; give 1 or more");
//   ASSIGN_OR_RETURN(const auto rules, CodecRules::parse(codecs));  // the value, if there is one
//   RETURN_IF_ERROR(check_gain(rules, codecs));
//
// The macros evaluate the call once. A debugger steps over all of it: a lambda of several statements, and an
// error that is looked at, deserve an `if` with forward_error(). A type with a comma in it needs an `auto`.
#pragma once

#include <cerrno>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "deltawire/result.h"

namespace deltawire {

// fail() with the code that most calls give for such a fault; other codes are spelled out.
inline tl::unexpected<Error> invalid(std::string_view message) {
  return fail(ErrorCode::kInvalidArgument, message);
}
inline tl::unexpected<Error> wrong_state(std::string_view message) {
  return fail(ErrorCode::kState, message);
}
inline tl::unexpected<Error> mismatch(std::string_view message, int suspect = kNoSuspect) {
  return fail(ErrorCode::kMismatch, message, suspect);
}
inline tl::unexpected<Error> corrupt(std::string_view message, int suspect = kNoSuspect) {
  return fail(ErrorCode::kCorrupt, message, suspect);
}
inline tl::unexpected<Error> truncated(std::string_view message) {
  return fail(ErrorCode::kTruncated, message);
}

// What name(item) says of each, in a row.
std::string list_of(const auto& items, std::string_view separator, auto name) {
  std::string text;
  for (const auto& item : items) {
    if (!text.empty()) text += separator;
    text += std::invoke(name, item);
  }
  return text;
}

// kNoMemory. If there is not even memory for the text, the error has none.
inline Error no_memory(std::string_view while_doing) noexcept {
  Error error;
  error.code = ErrorCode::kNoMemory;
  try {
    error.message = "out of memory while ";
    error.message += while_doing;
    error.message += "; docs/design/memory.md says what a step needs";
    // NOLINTNEXTLINE(bugprone-empty-catch): the error code is enough.
  } catch (const std::bad_alloc&) {
  }
  return error;
}

// What `call` returns, a Result; std::bad_alloc becomes kNoMemory.
template <class Call>
auto or_no_memory(std::string_view doing, Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return tl::unexpected<Error>(no_memory(doing));
  }
}

// The operating system's texts for error numbers.

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

// Sets `target`, a declaration or what can be assigned to, to the value of a Result; returns its error.
#define ASSIGN_OR_RETURN(target, ...) \
  DELTAWIRE_ASSIGN_OR_RETURN(DELTAWIRE_OF_LINE(result_, __LINE__), target, __VA_ARGS__)

// Returns the error of a Status, or of a Result whose value is not needed.
#define RETURN_IF_ERROR(...)                                                   \
  do {                                                                         \
    if (auto status_ = (__VA_ARGS__); !status_) {                              \
      return ::tl::unexpected<::deltawire::Error>(std::move(status_).error()); \
    }                                                                          \
  } while (false)

#define DELTAWIRE_ASSIGN_OR_RETURN(result, target, ...)                                \
  auto result = (__VA_ARGS__);                                                         \
  if (!result) return ::tl::unexpected<::deltawire::Error>(std::move(result).error()); \
  target = *std::move(result)

#define DELTAWIRE_OF_LINE(name, line) DELTAWIRE_JOIN(name, line)
#define DELTAWIRE_JOIN(a, b) a##b
