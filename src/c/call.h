// The frame of every function of the C interface: no exception leaves it, and errors become numbers and text.
// Within a call an error is a Failure that is thrown: what follows here, and what the interface's files
// share, give values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "deltawire/codec.h"
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

// What call() reports.
struct Failure {
  Error error;
};

// Runs the body of a function of the C interface.
std::int32_t call(deltawire_error* error, const auto& body) noexcept {
  try {
    body();
    return report_success(error);
  } catch (Failure& failure) {
    return report(error, std::move(failure.error));
  } catch (const std::bad_alloc&) {
    return report(error, ErrorCode::kNoMemory, "out of memory");
  } catch (const std::exception& failure) {
    return report(error, ErrorCode::kSystem, failure.what());
  } catch (...) {
    return report(error, ErrorCode::kSystem, "an exception of an unknown kind");
  }
}

[[noreturn]] void refuse(std::string_view message, ErrorCode code = ErrorCode::kInvalidArgument);

// The value of a result, none of a status; throws its error.
template <class T>
T value_of(Result<T>&& result) {
  if (!result) throw Failure{std::move(result.error())};
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

// Throws kInvalidArgument, naming the argument, where it is NULL.
void require(const void* argument, std::string_view name);
void check_abi_version(std::uint32_t version, std::string_view whose);

// What the _init of a struct of options begins with.
template <class Options>
void init(Options* options, std::uint32_t abi_version, std::string_view whose) {
  require(options, "options");
  check_abi_version(abi_version, whose);
  *options = {};
  options->abi_version = abi_version;
}

// An option that is 0 or 1. kInvalidArgument otherwise.
bool flag(std::int32_t value, std::string_view name);

// Checks tensors of the C interface, and converts them to the library's types.

// Views the caller's memory. Errors: kInvalidArgument, kUnsupportedDType, kLimit; they name the field and its
// valid values.
TensorSlot slot_of(const deltawire_tensor* tensor);

// The same for `count` tensors with names. An error's message names the tensor.
std::vector<Named> named_tensors(const deltawire_tensor* tensors, std::uint32_t count);

// kInvalidArgument for an undefined number.
Into into_of(std::int32_t into);

// Bytes; NULL is allowed if there are none.
Bytes bytes_at(const void* data, std::uint64_t count, std::string_view argument);

}  // namespace deltawire::c
