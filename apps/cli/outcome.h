// How a command fails: its functions throw, and the program prints one line on standard error.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "deltawire/result.h"

namespace deltawire::cli {

inline constexpr int kExitFailure = 1;  // the request is valid but failed: files, values, corrupt bytes
inline constexpr int kExitUsage = 2;    // the request itself is invalid

struct Failure {
  int exit_status = kExitFailure;
  std::string message;  // what, where, what to do
};

// To be thrown, as those below.
inline Failure failed(std::string message) {
  return {kExitFailure, std::move(message)};
}

inline Failure misused(std::string message) {
  return {kExitUsage, std::move(message)};
}

// What `call` returns; before the message of its failure these words, which say where.
auto within(const std::string& where, const auto& call) {
  try {
    return call();
  } catch (const Failure& failure) {
    throw failed(where + failure.message);
  }
}

// The value of a result; `where`: as above.
template <class Value>
Value value_or_failed(Result<Value> result, const std::string& where = "") {
  if (!result) throw failed(where + result.error().text());
  return *std::move(result);
}

// The same for what the user has asked for.
template <class Value>
Value value_or_misused(Result<Value> result, const std::string& where = "") {
  if (!result) throw misused(where + result.error().text());
  return *std::move(result);
}

inline void throw_if_failed(const Status& done) {
  if (!done) throw failed(done.error().text());
}

// "<path>: <what went wrong>", with the reason of a failed system call: "<path>: <what>: <strerror>".
Failure failed_system_call(std::string_view path, std::string_view what, int error_number);

// An error in the contents of the .dw file `path`, with advice for its kind.
Failure failed_reading(std::string_view path, const Error& error);

// "standard input" or "standard output" for "-", else the path.
std::string input_name(std::string_view path);
std::string output_name(std::string_view path);

// Prints one line. Control characters become '?', since names may contain line breaks and escape sequences.
void print_failure(std::string_view message);

}  // namespace deltawire::cli
