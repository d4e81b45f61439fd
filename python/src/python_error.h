// Errors of the core as Python exceptions (deltawire/errors.py).
#pragma once

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

// The value of a result, or its error raised. REQUIRES: the GIL.
template <class T>
T value_or_raise(Result<T>&& result) {
  if (!result) raise(result.error());
  return *std::move(result);
}

inline void raise_if_failed(const Status& status) {
  if (!status) raise(status.error());
}

}  // namespace deltawire::python
