#include "cli/outcome.h"

#include <cstdio>
#include <system_error>

namespace deltawire::cli {

Failure failed_system_call(std::string_view path, std::string_view what, int error_number) {
  return failed(std::string(path) + ": " + std::string(what) + ": " +
                std::generic_category().message(error_number));
}

Failure failed_reading(std::string_view path, const Error& error) {
  std::string message = input_name(path) + ": " + error.message;
  switch (error.code) {
    case ErrorCode::kTruncated: message += "; the file is incomplete, copy it again"; break;
    case ErrorCode::kCorrupt: message += "; copy the file again or encode it anew"; break;
    case ErrorCode::kMismatch: message += "; encode it anew"; break;
    case ErrorCode::kUnknownCodec: message += "; a newer version of deltawire may know it"; break;
    default: break;
  }
  return failed(std::move(message));
}

std::string input_name(std::string_view path) {
  return path == "-" ? "standard input" : std::string(path);
}

std::string output_name(std::string_view path) {
  return path == "-" ? "standard output" : std::string(path);
}

void print_failure(std::string_view message) {
  const std::string line = "deltawire: " + printable_line(message) + "\n";
  std::fputs(line.c_str(), stderr);
}

}  // namespace deltawire::cli
