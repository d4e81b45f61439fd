// The outcome of a command: success, or one line on standard error and an exit status.
#pragma once

#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include "deltawire/result.h"

namespace deltawire::cli {

inline constexpr int kExitFailure = 1;  // the request is valid but failed: files, values, corrupt bytes
inline constexpr int kExitUsage = 2;    // the request itself is invalid

struct Failure {
  int exit_status = kExitFailure;
  std::string message;  // what, where, what to do
};

template <class T>
using Outcome = tl::expected<T, Failure>;

inline tl::unexpected<Failure> failed(std::string message) {
  return tl::unexpected<Failure>(Failure{kExitFailure, std::move(message)});
}

inline tl::unexpected<Failure> misused(std::string message) {
  return tl::unexpected<Failure>(Failure{kExitUsage, std::move(message)});
}

inline Outcome<void> outcome_of(const Status& done) {
  return done ? Outcome<void>() : failed(done.error().message);
}

// "<path>: <what went wrong>", with the reason of a failed system call: "<path>: <what>: <strerror>".
tl::unexpected<Failure> failed_system_call(std::string_view path, std::string_view what, int error_number);

// An error in the contents of the .dw file `path`, with advice for its kind.
tl::unexpected<Failure> failed_reading(std::string_view path, const Error& error);

// "standard input" or "standard output" for "-", else the path.
std::string input_name(std::string_view path);
std::string output_name(std::string_view path);

// Prints one line. Control characters become '?', since names may contain line breaks and escape sequences.
void print_failure(std::string_view message);

}  // namespace deltawire::cli
