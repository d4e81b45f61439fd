// Errors of the core as Python exceptions (deltawire/errors.py), and Python callables on foreign threads.
#pragma once

#include <exception>
#include <string_view>
#include <utility>

#include <nanobind/nanobind.h>

#include "deltawire/result.h"

namespace deltawire::python {

// The exception object for `error`: a subclass of deltawire.DeltawireError. REQUIRES: the GIL.
nanobind::object make_exception(const Error& error);

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

// A Python callable that C++ threads may call and drop. Once the interpreter is gone both do nothing.
class Callback {
 public:
  explicit Callback(nanobind::callable function) : function_(std::move(function)) {}
  ~Callback();
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;

  // Takes the GIL and calls function(error or None, value or None). What the function raises has nobody
  // to go to: it is shown as unraisable.
  template <class T>
  void operator()(const Result<T>& result) const {
    if (!interpreter_is_up()) return;
    const nanobind::gil_scoped_acquire gil;
    try {
      if (result) {
        function_(nanobind::none(), nanobind::cast(*result));
      } else {
        function_(make_exception(result.error()), nanobind::none());
      }
    } catch (nanobind::python_error& error) {
      error.discard_as_unraisable("the completion callback of a deltawire bucket");
    } catch (const std::exception& error) {  // past this thread's end it would end the program
      PyErr_SetString(PyExc_RuntimeError, error.what());
      PyErr_WriteUnraisable(nullptr);
    }
  }

 private:
  static bool interpreter_is_up() noexcept;

  nanobind::callable function_;
};

}  // namespace deltawire::python
