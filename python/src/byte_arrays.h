// Bytes that Python gives, as arrays, and gets.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "deltawire/huge_pages.h"
#include "deltawire/tensor.h"

namespace deltawire::python {

using BytesIn =
    nanobind::ndarray<const std::uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using BytesInPlace =
    nanobind::ndarray<std::uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

inline Bytes bytes_of(const BytesIn& array) {
  return std::as_bytes(std::span(array.data(), array.size()));
}

inline MutBytes bytes_of(const BytesInPlace& array) {
  return std::as_writable_bytes(std::span(array.data(), array.size()));
}

inline Bytes bytes_of(const nanobind::bytes& bytes) {
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}

// Of bytes, or of a text.
inline nanobind::bytes given(const auto& bytes) {
  static_assert(sizeof *bytes.data() == 1);
  return nanobind::bytes(bytes.data(), bytes.size());
}

// A `bytes` object that is written before anybody sees it, and is as long as what was written. Its pages take
// memory as they are written; long ones are huge where the system has such for who asks.
class NewBytes {
 public:
  // Room for so many bytes. REQUIRES, here and below: the GIL.
  explicit NewBytes(std::uint64_t most);

  MutBytes room() const noexcept { return room_; }

  nanobind::bytes cut(std::uint64_t written) &&;

 private:
  nanobind::object object_;
  MutBytes room_;
};

inline NewBytes::NewBytes(std::uint64_t most) {
  object_ = nanobind::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(most)));
  if (!object_.is_valid()) nanobind::raise_python_error();
  room_ = {reinterpret_cast<std::byte*>(PyBytes_AsString(object_.ptr())), most};
  ask_for_huge_pages(room_);
}

inline nanobind::bytes NewBytes::cut(std::uint64_t written) && {
  assert(written <= room_.size());
#ifdef Py_LIMITED_API  // which can't shorten
  return written < room_.size() ? nanobind::bytes(room_.data(), written)
                                : nanobind::borrow<nanobind::bytes>(object_);
#else
  PyObject* bytes = object_.release().ptr();
  if (_PyBytes_Resize(&bytes, static_cast<Py_ssize_t>(written)) != 0) nanobind::raise_python_error();
  return nanobind::steal<nanobind::bytes>(bytes);
#endif
}

}  // namespace deltawire::python
