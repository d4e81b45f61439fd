// Errors of the core as Python exceptions (deltawire/errors.py).
#pragma once

#include <type_traits>
#include <utility>

#include <nanobind/nanobind.h>

#include "deltawire/result.h"

namespace deltawire::python {

// The exception object for `error`: a subclass of deltawire.DeltawireError. REQUIRES: the GIL.
nanobind::object make_exception(const Error& error);

// The other way round: of a DeltawireError, or of whatever else was raised. REQUIRES: the GIL.
Error error_of(nanobind::handle exception);
Error error_of(const nanobind::python_error& raised);

// Raises it. REQUIRES: the GIL.
[[noreturn]] void raise(const Error& error);

// The value of a result, none of a status, or its error raised. REQUIRES: the GIL.
template <class T>
T value_or_raise(Result<T>&& result) {
  if (!result) raise(result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

// What `call` returns; other Python threads run meanwhile.
auto without_gil(auto call) {
  const nanobind::gil_scoped_release no_gil;
  return call();
}

// The value of what `call` returns, a result or a status, or its error raised; other Python threads run
// meanwhile.
auto run_without_gil(auto call) {
  return value_or_raise(without_gil(std::move(call)));
}

}  // namespace deltawire::python
