// Patches, on bytes: deltawire/patches.py knows about arrays.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include "bindings.h"
#include "byte_arrays.h"
#include "deltawire/patch.h"
#include "python_error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

WeightType type_called(std::string_view name) {
  for (unsigned number = 1; number < 256; ++number) {
    const auto type = static_cast<WeightType>(number);
    if (weight_bytes(type) != 0 && weight_type_name(type) == name) return type;
  }
  raise({ErrorCode::kUnsupportedDType, "patches know no weights of type '" + printable_line(name) + "'"});
}

nb::bytes make(const BytesIn& from, const BytesIn& to, std::string_view type_name) {
  const WeightType type = type_called(type_name);
  Result<std::vector<std::byte>> patch;
  {
    const nb::gil_scoped_release no_gil;
    patch = make_patch(bytes_of(from), bytes_of(to), type, Workers::of_process().get());
  }
  return given(value_or_raise(std::move(patch)));
}

void apply(const BytesIn& patch, const BytesIn& from, std::string_view type_name, const BytesInPlace& out) {
  const WeightType type = type_called(type_name);
  Status applied;
  {
    const nb::gil_scoped_release no_gil;
    applied = apply_patch(bytes_of(patch), bytes_of(from), type, bytes_of(out), Workers::of_process().get());
  }
  raise_if_failed(applied);
}

void verify(const BytesIn& patch, const BytesIn& from, std::string_view type_name) {
  const WeightType type = type_called(type_name);
  Status sound;
  {
    const nb::gil_scoped_release no_gil;
    sound = verify_patch(bytes_of(patch), bytes_of(from), type, Workers::of_process().get());
  }
  raise_if_failed(sound);
}

std::uint64_t digest(const BytesIn& weights, std::string_view type_name) {
  return value_or_raise(weights_digest(bytes_of(weights), type_called(type_name)));
}

}  // namespace

void bind_patches(nb::module_& module) {
  nb::class_<PatchInfo>(module, "PatchInfo", "What a patch says about itself.")
      .def_prop_ro(
          "type", [](const PatchInfo& info) { return weight_type_name(info.type); }, "E.g. 'bfloat16'.")
      .def_ro("elements", &PatchInfo::elements, "Elements of the tensor.")
      .def_ro("chunk_elements", &PatchInfo::chunk_elements, "Elements of every chunk but the last.")
      .def_ro("chunks", &PatchInfo::chunks, "Chunks of the tensor.")
      .def_ro("changed_chunks", &PatchInfo::changed_chunks, "Chunks in which a weight changes.")
      .def_ro("full_chunks", &PatchInfo::full_chunks,
              "Changed chunks that hold their new weights as they are.")
      .def_ro("changes", &PatchInfo::changes, "Elements that change, full chunks not counted.")
      .def_ro("old_digest", &PatchInfo::old_digest, "Digest of the weights that it was made from.")
      .def_ro("new_digest", &PatchInfo::new_digest, "Digest of the weights that it makes.");
  module.def("make_patch", &make, "old"_a, "new"_a, "type"_a);
  module.def("apply_patch", &apply, "patch"_a, "old"_a, "type"_a, "out"_a);
  module.def("verify_patch", &verify, "patch"_a, "old"_a, "type"_a);
  module.def("weights_digest", &digest, "weights"_a, "type"_a);
  module.def(
      "inspect_patch", [](const BytesIn& patch) { return value_or_raise(inspect_patch(bytes_of(patch))); },
      "patch"_a);
}

}  // namespace deltawire::python
