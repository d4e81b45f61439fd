// The frame of every function of the C interface: no exception leaves it, and errors become numbers and text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deltawire/deltawire.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

// Bytes that a call returns.
struct deltawire_bytes {
  std::vector<std::byte> bytes;
};

namespace deltawire::c {

// Writes the error, if the caller wants it, keeps it as this thread's last, and returns its number. Allocates
// nothing.
std::int32_t report(deltawire_error* into, Error&& error) noexcept;
std::int32_t report(deltawire_error* into, ErrorCode code, std::string_view message) noexcept;
// This thread's last one.
Error& last_error() noexcept;
std::int32_t report_success(deltawire_error* into) noexcept;

// Runs the body of a function of the C interface, which returns a Status.
template <class Body>
std::int32_t call(deltawire_error* error, const Body& body) noexcept {
  try {
    Status done = body();
    return done ? report_success(error) : report(error, std::move(done.error()));
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

// Checks tensors of the C interface, and converts them to the library's types.

// Views the caller's memory. Errors: kInvalidArgument, kUnsupportedDType, kLimit; they name the field and its
// valid values.
Result<TensorSlot> slot_of(const deltawire_tensor* tensor);

// The same for `count` tensors with names. An error's message names the tensor.
Result<std::vector<Named>> named_tensors(const deltawire_tensor* tensors, std::uint32_t count);

// kInvalidArgument for an undefined number.
Result<bool> accumulates(std::int32_t into);

// Bytes; NULL is allowed if there are none.
Result<Bytes> bytes_at(const void* data, std::uint64_t count, std::string_view argument);

}  // namespace deltawire::c
