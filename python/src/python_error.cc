#include "python_error.h"

#include <string>

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

namespace nb = nanobind;

namespace deltawire::python {

nb::object make_exception(const Error& error) {
  nb::object suspect = nb::none();
  if (error.suspect != kNoSuspect) suspect = nb::int_(error.suspect);
  nb::object last_committed_step = nb::none();
  if (error.last_committed_step != kNoStep) last_committed_step = nb::int_(error.last_committed_step);
  // Names from the caller may have line breaks. Bytes that are no UTF-8 could not become a str, and an
  // exception that can't be made would end the program.
  const std::string message = printable_line(error.message);
  return nb::module_::import_("deltawire.errors")
      .attr("make_error")(error_code_name(error.code), message, suspect, last_committed_step);
}

Error error_of(nb::handle exception) {
  Error error{ErrorCode::kSystem, nb::cast<std::string>(nb::str(exception))};
  const auto code = nb::getattr(exception, "code", nb::none());
  const std::string name = nb::isinstance<nb::str>(code) ? nb::cast<std::string>(code) : std::string();
  for (int i = 1; i <= static_cast<int>(kLastErrorCode); ++i) {
    if (error_code_name(static_cast<ErrorCode>(i)) != name) continue;
    error.code = static_cast<ErrorCode>(i);
    const auto suspect = nb::getattr(exception, "suspect", nb::none());
    if (!suspect.is_none()) error.suspect = nb::cast<int>(suspect);
    return error;
  }
  const auto type = nb::cast<std::string>(exception.type().attr("__name__"));
  if (type.ends_with("MemoryError")) error.code = ErrorCode::kNoMemory;
  error.message = printable_line("on the device: " + type + ": " + error.message, 1000);
  return error;
}

Error error_of(const nb::python_error& raised) {
  return error_of(raised.value());
}

void raise(const Error& error) {
  const nb::object exception = make_exception(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace deltawire::python
