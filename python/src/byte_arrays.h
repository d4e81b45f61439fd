// Bytes that Python gives, as arrays, and gets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

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

inline nanobind::bytes given(Bytes bytes) {
  return nanobind::bytes(bytes.data(), bytes.size());
}
inline nanobind::bytes given(std::string_view bytes) {
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

}  // namespace deltawire::python
