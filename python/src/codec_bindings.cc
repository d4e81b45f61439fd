// The registry and .dw files.
#include <optional>
#include <string>
#include <vector>

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "byte_arrays.h"
#include "deltawire/codec.h"
#include "deltawire/file.h"
#include "python_error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deltawire::python {
namespace {

using FloatsIn = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using FloatsOut = nb::ndarray<float, nb::c_contig, nb::device::cpu>;

// Of one codec, as a .dw file names it.
bool is_lossless(std::string_view codec_spec) {
  return value_or_raise(make_codec(codec_spec))->info().lossless;
}

nb::bytes encode_array(const FloatsIn& values, const std::string& spec, std::uint64_t min_elements,
                       const std::optional<FloatsIn>& significance) {
  std::vector<std::uint64_t> shape(values.ndim());
  for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = values.shape(i);
  TensorView view{values.data(), values.size(), DType::kF32};
  if (significance) {
    if (significance->size() != values.size()) {
      raise({ErrorCode::kInvalidArgument, "significance has " + std::to_string(significance->size()) +
                                              " elements where the array has " +
                                              std::to_string(values.size())});
    }
    view.significance = significance->data();
  }
  FileEncoder encoder = value_or_raise(FileEncoder::make({spec, {min_elements}, DType::kF32, shape}));
  NewBytes file(encoder.bound());
  return std::move(file).cut(run_without_gil([&] { return encoder.encode_all(view, file.room()); }));
}

FileHeader file_header(const BytesIn& data) {
  return value_or_raise(read_file_header(bytes_of(data)));
}

void decode_array(const BytesIn& data, const FloatsOut& out) {
  run_without_gil(
      [&] { return decode_file(bytes_of(data), TensorSlot{out.data(), out.size(), DType::kF32}); });
}

std::string codec_repr(const CodecInfo& info) {
  std::string text = "<codec " + std::string(info.name);
  for (const ParameterInfo& p : info.parameters) {
    text += " " + std::string(p.name) + "=" + std::string(p.default_value);
  }
  return text + ": " + std::string(info.summary) + ">";
}

void bind_registry(nb::module_& module) {
  nb::class_<ParameterInfo>(module, "ParameterInfo", "A parameter of a codec, as its spec strings name it.")
      .def_ro("name", &ParameterInfo::name)
      .def_ro("range", &ParameterInfo::range, "Allowed values, in words.")
      .def_ro("default_value", &ParameterInfo::default_value)
      .def_ro("meaning", &ParameterInfo::meaning);
  nb::class_<CodecInfo>(module, "CodecInfo", "What the registry knows of a codec.")
      .def_ro("id", &CodecInfo::id, "Its number on the wire.")
      .def_ro("name", &CodecInfo::name, "Its name in spec strings.")
      .def_ro("summary", &CodecInfo::summary)
      .def_prop_ro(
          "takes_pairs", [](const CodecInfo& self) { return self.key_value && !self.error_feedback; },
          "With its defaults it codes tensors in key-value form, which have no residual.")
      .def_ro("source", &CodecInfo::source, "Paper, section, equation.")
      .def_prop_ro("parameters",
                   [](const CodecInfo& info) {
                     return std::vector<ParameterInfo>(info.parameters.begin(), info.parameters.end());
                   })
      .def_ro("default_pattern", &CodecInfo::default_pattern,
              "The exchange pattern used where a spec names none.")
      .def_ro("lossless", &CodecInfo::lossless)
      .def_ro("error_feedback", &CodecInfo::error_feedback, "Keeps a residual of what was not sent.")
      .def_ro("late", &CodecInfo::late,
              "Most of a gradient waits in the residual and is sent in later steps, by default.")
      .def_ro("finite_only", &CodecInfo::finite_only, "Refuses NaN and infinities.")
      .def_ro("bytes_follow_library", &CodecInfo::bytes_follow_library,
              "Its bytes are those of a library's version; the values that they are decoded to aren't.")
      .def_ro("significance", &CodecInfo::significance,
              "Saves more where it knows what the optimizer can see.")
      .def_ro("sparse", &CodecInfo::sparse,
              "Sends few elements of a tensor; momentum of what was sent can be masked.")
      .def_prop_ro("shares_parts", &CodecInfo::shares_parts, "Several threads can decode one part.")
      .def("__repr__", &codec_repr);
  module.def(
      "registered_codecs",
      [] {
        std::vector<const CodecInfo*> infos;
        for (const CodecInfo* info : registered_codecs()) infos.push_back(info);
        return infos;
      },
      nb::rv_policy::reference, "All codecs, in the order of their ids.");
}

}  // namespace

void bind_codecs(nb::module_& module) {
  bind_registry(module);
  module.def("is_lossless", &is_lossless, "codec_spec"_a,
             "Whether the codec, with its parameters, gives every bit back. Raises on a bad spec.");
  nb::class_<FileHeader>(module, "FileHeader", "The head of a .dw file.")
      .def_ro("spec", &FileHeader::codec_spec)
      .def_ro("shape", &FileHeader::shape)
      .def_prop_ro("dtype", [](const FileHeader& header) { return dtype_name(header.dtype); })
      .def_prop_ro("min_elements", [](const FileHeader& header) { return header.policy.min_elements; })
      .def_prop_ro("count", &FileHeader::count, "Elements.");
  module.def(
      "encode_file", &encode_array, "values"_a, "spec"_a, "min_elements"_a, "significance"_a = nb::none(),
      "The .dw file of a C-contiguous float32 array; significance: as many float32. Releases the GIL.");
  module.def("read_file_header", &file_header, "data"_a, "The header of a .dw file.");
  module.def("decode_file", &decode_array, "data"_a, "out"_a,
             "Decodes a .dw file into a float32 array of the header's element count. Releases the GIL.");
}

}  // namespace deltawire::python
