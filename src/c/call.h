// The frame of every function of the C interface: no exception leaves it, and errors become numbers and text.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "deltawire/deltawire.h"
#include "deltawire/result.h"

namespace deltawire::c {

// Writes the error, if the caller wants it, and returns its number. Allocates nothing.
std::int32_t report(deltawire_error* into, ErrorCode code, std::string_view message, int suspect = kNoSuspect,
                    std::uint64_t last_committed_step = kNoStep) noexcept;
std::int32_t report_success(deltawire_error* into) noexcept;

// Runs the body of a function of the C interface, which returns a Status.
template <class Body>
std::int32_t call(deltawire_error* error, const Body& body) noexcept {
  try {
    const Status done = body();
    if (done) return report_success(error);
    const Error& why = done.error();
    return report(error, why.code, why.message, why.suspect, why.last_committed_step);
  } catch (const std::bad_alloc&) {
    return report(error, ErrorCode::kNoMemory, "out of memory");
  } catch (const std::exception& failure) {
    return report(error, ErrorCode::kSystem, failure.what());
  } catch (...) {
    return report(error, ErrorCode::kSystem, "an exception of an unknown kind");
  }
}

// kInvalidArgument naming the argument.
Status null_argument(std::string_view argument);
Status check_abi_version(std::uint32_t version, std::string_view whose);

// An option that is 0 or 1. kInvalidArgument otherwise.
Result<bool> flag(std::int32_t value, std::string_view name);

}  // namespace deltawire::c
