#include "python_error.h"

#include <nanobind/stl/string_view.h>

namespace nb = nanobind;

namespace deltawire::python {

nb::object make_exception(const Error& error) {
  nb::object suspect = nb::none();
  if (error.suspect != kNoSuspect) suspect = nb::int_(error.suspect);
  nb::object standing_step = nb::none();
  if (error.standing_step != kNoStep) standing_step = nb::int_(error.standing_step);
  return nb::module_::import_("deltawire.errors")
      .attr("make_error")(error_code_name(error.code), nb::str(error.message.c_str()), suspect,
                          standing_step);
}

void raise(const Error& error) {
  const nb::object exception = make_exception(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

Callback::~Callback() {
  if (!interpreter_is_up()) {
    function_.release();
    return;
  }
  const nb::gil_scoped_acquire gil;
  function_.reset();
}

bool Callback::interpreter_is_up() noexcept {
  return Py_IsInitialized() != 0 && nb::is_alive();
}

}  // namespace deltawire::python
