// Models in safetensors files and patch files, in memory: what weights/store/ is built on.
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "byte_arrays.h"
#include "deltawire/patch_file.h"
#include "deltawire/safetensors.h"
#include "python_error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

using Described = std::tuple<std::string, std::string, std::vector<std::uint64_t>>;  // name, dtype, shape

// A tensor, or its patch, in a file.
struct StoredTensor {
  ModelTensor tensor;
  bool is_patch = false;
  std::uint64_t begin = 0;  // in the file
  std::uint64_t bytes = 0;
};

struct StoredPatchFile {
  PatchFileView view;
  std::vector<StoredTensor> tensors;
};

template <class T>
T value_of(const std::string& file, Result<T> result) {
  if (!result) result.error().message = printable_line(file) + ": " + result.error().message;
  return value_or_raise(std::move(result));
}

std::uint64_t place_in(Bytes file, Bytes part) {
  return static_cast<std::uint64_t>(part.data() - file.data());
}

std::vector<StoredTensor> stored_in(const std::string& name, const BytesIn& data) {
  const Bytes file = bytes_of(data);
  const ModelView view = value_of(name, read_model(file));
  std::vector<StoredTensor> tensors;
  for (const ModelTensor& tensor : view.header.tensors) {
    tensors.push_back({tensor, false, place_in(file, view.bytes_of(tensor)), tensor.bytes});
  }
  return tensors;
}

StoredPatchFile read_patches(const std::string& name, const BytesIn& data) {
  const Bytes file = bytes_of(data);
  StoredPatchFile read{value_of(name, read_patch_file(file)), {}};
  for (const PatchFilePart& part : read.view.parts) {
    read.tensors.push_back({part.tensor, !part.full, place_in(file, part.data), part.data.size()});
  }
  return read;
}

std::vector<ModelTensor> entries_of(const std::vector<Described>& tensors) {
  std::vector<ModelTensor> entries;
  for (const auto& [name, dtype, shape] : tensors) {
    entries.push_back(value_or_raise(tensor_of_kind(name, dtype, shape)));
  }
  return entries;
}

nb::bytes front_of(const std::vector<Described>& tensors, const ModelMetadata& metadata) {
  return given(model_front(entries_of(tensors), metadata));
}

std::string digest_of(const std::vector<Described>& tensors, const std::vector<std::uint64_t>& digests) {
  if (tensors.size() != digests.size()) raise({ErrorCode::kInvalidArgument, "give a digest for each tensor"});
  return digest_text(value_or_raise(model_digest(entries_of(tensors), digests)));
}

std::uint64_t number_of(const std::string& digest) {
  return std::stoull(digest, nullptr, 16);
}

// `patches`: of each tensor, or None if it is there in full. Returns the first bytes and, of the tensors
// whose data follow, the numbers.
std::pair<nb::bytes, std::vector<std::size_t>> begin_patches(
    const std::vector<Described>& tensors, const std::vector<std::optional<BytesIn>>& patches,
    const std::pair<std::string, std::string>& digests, const std::pair<std::string, std::string>& versions,
    const nb::bytes& header) {
  if (tensors.size() != patches.size())
    raise({ErrorCode::kInvalidArgument, "give a patch or None for each tensor"});
  std::vector<PatchFilePart> parts;
  for (ModelTensor& tensor : entries_of(tensors)) {
    const auto& patch = patches[parts.size()];
    parts.push_back({std::move(tensor), !patch, patch ? bytes_of(*patch) : Bytes()});
  }
  const NewPatchFile file{number_of(digests.first), number_of(digests.second), versions.first,
                          versions.second, std::string_view(header.c_str(), header.size())};
  const PatchFileFront front = value_or_raise(begin_patch_file(parts, file));
  return {given(front.bytes), front.order};
}

}  // namespace

void bind_models(nb::module_& module) {
  nb::class_<ModelDType>(module, "ModelDType", "A dtype of safetensors that patches know.")
      .def_ro("name", &ModelDType::name, "As safetensors spells it: \"BF16\".")
      .def_prop_ro(
          "kind", [](const ModelDType& self) { return weight_type_name(self.type); },
          "Of its weights in patches.")
      .def_ro("bytes", &ModelDType::bytes, "Of an element.");
  module.def("model_dtypes", [] {
    const auto dtypes = model_dtypes();
    return std::vector<ModelDType>(dtypes.begin(), dtypes.end());
  });
  nb::class_<StoredTensor>(module, "StoredTensor", "A tensor, or its patch, in a file.")
      .def_prop_ro("name", [](const StoredTensor& self) { return self.tensor.name; })
      .def_prop_ro("dtype", [](const StoredTensor& self) { return self.tensor.dtype; })
      .def_prop_ro("shape", [](const StoredTensor& self) { return nb::tuple(nb::cast(self.tensor.shape)); })
      .def_ro("is_patch", &StoredTensor::is_patch, "Then dtype and shape are those of the bytes.")
      .def_ro("begin", &StoredTensor::begin, "Of its bytes in the file.")
      .def_ro("bytes", &StoredTensor::bytes);
  nb::class_<StoredPatchFile>(module, "StoredPatchFile", "A patch file that was read.")
      .def_ro("tensors", &StoredPatchFile::tensors)
      .def_prop_ro(
          "leaves_out_unchanged", [](const StoredPatchFile& self) { return self.view.leaves_out_unchanged; },
          "Other tensors of the new model are those of the old one.")
      .def_prop_ro(
          "names", [](const StoredPatchFile& self) { return self.view.names; },
          "Of the new model's tensors, where they may be others than the old one's.");
  module.def("read_model", &stored_in, "name"_a, "data"_a, "The tensors of a whole file, by their places.");
  module.def("read_patches", &read_patches, "name"_a, "data"_a, "A whole patch file.");
  module.def("model_front", &front_of, "tensors"_a, "metadata"_a,
             "The first bytes of a file of these tensors, each (name, dtype, shape).");
  module.def("model_digest", &digest_of, "tensors"_a, "digests"_a,
             "16 hexadecimal digits, of tensors in any order and a digest of each.");
  module.def("begin_patches", &begin_patches, "tensors"_a, "patches"_a, "digests"_a, "versions"_a, "header"_a,
             "The first bytes of a patch file, and numbers of the tensors whose data follow.");
}

}  // namespace deltawire::python
