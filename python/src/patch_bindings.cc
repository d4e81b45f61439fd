// Patches, on bytes and in files: deltawire/patches.py has the functions for users.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "byte_arrays.h"
#include "deltawire/patch.h"
#include "deltawire/patch_file.h"
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
  return given(run_without_gil(
      [&] { return make_patch(bytes_of(from), bytes_of(to), type, Workers::of_process().get()); }));
}

void apply(const BytesIn& patch, const BytesIn& from, std::string_view type_name, const BytesInPlace& out) {
  const WeightType type = type_called(type_name);
  run_without_gil([&] {
    return apply_patch(bytes_of(patch), bytes_of(from), type, bytes_of(out), Workers::of_process().get());
  });
}

void verify(const BytesIn& patch, const BytesIn& from, std::string_view type_name) {
  const WeightType type = type_called(type_name);
  run_without_gil(
      [&] { return verify_patch(bytes_of(patch), bytes_of(from), type, Workers::of_process().get()); });
}

std::uint64_t digest(const BytesIn& weights, std::string_view type_name) {
  return value_or_raise(weights_digest(bytes_of(weights), type_called(type_name)));
}

struct Versions {
  std::string from;
  std::string to;
};

// Runs call(options) without the GIL; Ctrl-C ends it as it would end a loop in Python.
void run_on_files(bool replace, const Versions& versions, const auto& call) {
  Status done;
  bool raised = false;
  {
    const nb::gil_scoped_release no_gil;
    const auto workers = Workers::of_process();
    PatchFileOptions options;
    options.replace = replace;
    options.from = versions.from;
    options.to = versions.to;
    options.workers = workers.get();
    options.progress = [&raised](std::uint64_t, std::uint64_t) {
      const nb::gil_scoped_acquire gil;
      raised = PyErr_CheckSignals() != 0;
      return !raised;
    };
    done = call(options);
  }
  if (raised) throw nb::python_error();
  value_or_raise(std::move(done));
}

void make_one_file(const std::string& from, const std::string& to, const std::string& patch, bool replace,
                   const std::string& from_version, const std::string& to_version) {
  run_on_files(replace, {from_version, to_version},
               [&](const PatchFileOptions& options) { return make_patch_file(from, to, patch, options); });
}

void apply_one_file(const std::string& from, const std::string& patch, const std::string& to, bool replace) {
  run_on_files(replace, {},
               [&](const PatchFileOptions& options) { return apply_patch_file(from, patch, to, options); });
}

void verify_one_file(const std::string& from, const std::string& patch) {
  run_on_files(false, {},
               [&](const PatchFileOptions& options) { return verify_patch_file(from, patch, options); });
}

void merge_files(const std::string& from, const std::vector<std::string>& patches, const std::string& merged,
                 bool replace, const std::string& from_version, const std::string& to_version) {
  run_on_files(replace, {from_version, to_version}, [&](const PatchFileOptions& options) {
    return merge_patch_files(from, patches, merged, options);
  });
}

PatchFileInfo inspect_one_file(const std::string& patch) {
  return run_without_gil([&] { return inspect_patch_file(patch); });
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

void bind_patch_files(nb::module_& module) {
  nb::class_<PatchFileTensor>(module, "PatchFileTensor", "What a patch file has for a tensor.")
      .def_ro("name", &PatchFileTensor::name, "Its name in the new model.")
      .def_ro("full", &PatchFileTensor::full,
              "Whether it is there as it is, since the old model has none of its dtype and shape.")
      .def_ro("bytes", &PatchFileTensor::bytes, "Bytes of its entry in the file.")
      .def_ro("new_bytes", &PatchFileTensor::new_bytes, "Bytes of the new weights.")
      .def_prop_ro(
          "patch",
          [](const PatchFileTensor& tensor) {
            return tensor.full ? nb::object(nb::none()) : nb::cast(tensor.patch);
          },
          nb::sig("def patch(self) -> PatchInfo | None"),
          "What its patch says; None if it is there in full.");
  nb::class_<PatchFileInfo>(module, "PatchFileInfo", "What a patch file says about itself.")
      .def_ro("old_digest", &PatchFileInfo::old_digest, "Digest of the model that it was made from.")
      .def_ro("new_digest", &PatchFileInfo::new_digest, "Digest of the model that it makes.")
      .def_ro("file_digest", &PatchFileInfo::file_digest,
              "Digest of the whole new file; None in patches of deltawire 0.1 and of stores.")
      .def_ro("from_version", &PatchFileInfo::from, "The old version's name, or an empty text.")
      .def_ro("to_version", &PatchFileInfo::to, "The new version's name, or an empty text.")
      .def_ro("leaves_out_unchanged", &PatchFileInfo::leaves_out_unchanged,
              "Whether a tensor without an entry is the same in both models.")
      .def_ro("has_header", &PatchFileInfo::has_header,
              "Whether it brings the new file's header, because that is not the old one's.")
      .def_ro("file_bytes", &PatchFileInfo::file_bytes, "Bytes of the patch file.")
      .def_ro("tensors", &PatchFileInfo::tensors, "Of the new model, in the order of the file.");
  module.def("make_patch_file", &make_one_file, "old"_a, "new"_a, "patch"_a, "replace"_a, "from_version"_a,
             "to_version"_a);
  module.def("apply_patch_file", &apply_one_file, "old"_a, "patch"_a, "new"_a, "replace"_a);
  module.def("verify_patch_file", &verify_one_file, "old"_a, "patch"_a);
  module.def("merge_patch_files", &merge_files, "old"_a, "patches"_a, "merged"_a, "replace"_a,
             "from_version"_a, "to_version"_a);
  module.def("inspect_patch_file", &inspect_one_file, "patch"_a);
}

}  // namespace deltawire::python
