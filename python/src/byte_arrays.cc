#include "byte_arrays.h"

#include <cassert>

#include <nanobind/nanobind.h>

#include "deltawire/huge_pages.h"

namespace nb = nanobind;

namespace deltawire::python {

NewBytes::NewBytes(std::uint64_t most) {
  object_ = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(most)));
  if (!object_.is_valid()) nb::raise_python_error();
  room_ = {reinterpret_cast<std::byte*>(PyBytes_AsString(object_.ptr())), most};
  ask_for_huge_pages(room_);
}

nb::bytes NewBytes::cut(std::uint64_t written) && {
  assert(written <= room_.size());
#ifdef Py_LIMITED_API  // which can't shorten
  return written < room_.size() ? nb::bytes(room_.data(), written) : nb::borrow<nb::bytes>(object_);
#else
  PyObject* bytes = object_.release().ptr();
  if (_PyBytes_Resize(&bytes, static_cast<Py_ssize_t>(written)) != 0) nb::raise_python_error();
  return nb::steal<nb::bytes>(bytes);
#endif
}

}  // namespace deltawire::python
