#include "byte_arrays.h"

#include <cassert>

#include <nanobind/nanobind.h>
#include <sys/mman.h>

namespace nb = nanobind;

namespace deltawire::python {
namespace {

// Fresh memory is made page by page as it is written, which takes as long as writing it; of huge pages there
// are 512 times fewer. Those at the ends, which aren't whole, stay as they are. An advice: it may fail.
void ask_for_huge_pages(MutBytes memory) noexcept {
#ifdef MADV_HUGEPAGE
  constexpr std::uintptr_t kHuge = std::uintptr_t{1} << 21;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t first = (begin + kHuge - 1) / kHuge * kHuge;
  const std::uintptr_t last = (begin + memory.size()) / kHuge * kHuge;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
}

}  // namespace

NewBytes::NewBytes(std::uint64_t most) {
  object_ = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(most)));
  if (!object_.is_valid()) nb::raise_python_error();
  room_ = {reinterpret_cast<std::byte*>(PyBytes_AsString(object_.ptr())), most};
  ask_for_huge_pages(room_);
}

nb::bytes NewBytes::cut(std::uint64_t written) && {
  assert(written <= room_.size());
  PyObject* bytes = object_.release().ptr();
  if (_PyBytes_Resize(&bytes, static_cast<Py_ssize_t>(written)) != 0) nb::raise_python_error();
  return nb::steal<nb::bytes>(bytes);
}

}  // namespace deltawire::python
