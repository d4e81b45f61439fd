#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "cli/arrays/array_reader.h"
#include "cli/arrays/byte_source.h"
#include "cli/number_text.h"
#include "cli/trace/trace.h"
#include "deltawire/codec.h"

namespace deltawire::cli {
namespace {

// Reads a file inside the folder. Links must not lead out of it, and only regular files are read, as others
// may never end.
std::vector<std::byte> read_below(const std::string& folder, const std::string& path) {
  const std::filesystem::path whole = std::filesystem::path(folder) / path;
  std::error_code error;
  const std::filesystem::path home = std::filesystem::canonical(folder, error);
  if (error) throw failed_system_call(folder, "cannot be opened", error.value());
  const std::filesystem::path real = std::filesystem::canonical(whole, error);
  if (error) {
    if (error == std::errc::no_such_file_or_directory) {
      throw failed(whole.string() + ": no such file; the trace is not whole, copy or record it again");
    }
    throw failed_system_call(whole.string(), "cannot be opened", error.value());
  }
  if (std::mismatch(home.begin(), home.end(), real.begin(), real.end()).first != home.end()) {
    throw failed(whole.string() + ": a link leads out of the trace's folder; copy the file into it");
  }
  if (!std::filesystem::is_regular_file(real, error)) {
    throw failed(whole.string() + ": is not a regular file; record the trace again");
  }
  return read_input(whole.string());
}

Failure not_plain(const std::string& name, const std::string& type) {
  return failed(name + ": holds other numbers than little-endian " + type +
                " in C order; record the trace again");
}

std::vector<float> read_values(const Trace& trace, const std::string& path,
                               const std::vector<std::uint64_t>& shape) {
  return parse_values(read_below(trace.folder, path), trace.folder + "/" + path, shape);
}

Gradient read_gradient(const Trace& trace, const TraceTensor& tensor, const TraceFiles& files) {
  Gradient gradient;
  std::vector<std::uint64_t> shape = tensor.shape;
  if (tensor.pairs) {
    gradient.keys =
        parse_keys(read_below(trace.folder, files.keys), trace.folder + "/" + files.keys, tensor.elements);
    shape = {gradient.keys.size()};
  }
  gradient.values = read_values(trace, files.values, shape);
  if (files.significance.empty()) return gradient;
  gradient.significance = read_values(trace, files.significance, shape);
  return gradient;
}

}  // namespace

Trace open_trace(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    throw failed(folder +
                 ": is not a folder; a trace is a folder with a trace.json (docs/reference/traces.md)");
  }
  if (!std::filesystem::exists(std::filesystem::path(folder) / kTraceContents, error)) {
    throw failed(folder + ": has no trace.json; it is not a trace, or its recording was not finished");
  }
  const auto file = read_below(folder, kTraceContents);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  auto trace = parse_trace(text, (std::filesystem::path(folder) / kTraceContents).string());
  trace.folder = folder;
  return trace;
}

StepGradients read_step(const Trace& trace, std::size_t index) {
  const TraceStep& step = trace.steps[index];
  StepGradients gradients(trace.tensors.size());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (step.tensors[i]) gradients[i] = read_gradient(trace, trace.tensors[i], *step.tensors[i]);
  }
  return gradients;
}

std::vector<float> parse_values(Bytes file, const std::string& name,
                                const std::vector<std::uint64_t>& shape) {
  const bool is_npy = name.ends_with(".npy");
  if (!is_npy && !name.ends_with(".dw")) throw failed(name + ": a trace's files end in .npy or .dw");
  auto source = std::make_unique<MemorySource>(file);
  const auto array = is_npy ? open_npy(std::move(source), name) : open_dw(std::move(source), name);
  const ArrayInfo& info = array->info();
  if (info.type != ValueType::kF32 || !info.is_plain) throw not_plain(name, "float32");
  if (info.shape != shape) {
    throw failed(name + ": has the shape " + shape_text(info.shape) + ", but by trace.json it is " +
                 shape_text(shape));
  }
  if (!info.codec.empty()) {
    const auto codec = make_codec(info.codec);
    if (!codec) throw failed_reading(name, codec.error());
    if (!(*codec)->info().lossless) {
      throw failed(name + ": was encoded by " + info.codec +
                   ", which loses something; traces hold gradients as they were");
    }
  }
  return read_floats(*array, name);
}

std::vector<std::uint32_t> parse_keys(Bytes file, const std::string& name, std::uint64_t elements) {
  const auto array = open_npy(std::make_unique<MemorySource>(file), name, true);
  const ArrayInfo& info = array->info();
  if (!info.is_plain) throw not_plain(name, "int64");
  if (info.shape.size() != 1) {
    throw failed(name + ": has the shape " + shape_text(info.shape) + ", and keys have one dimension");
  }
  std::vector<std::int64_t> numbers(info.count);  // as many as the file has
  array->read(numbers.data(), info.count);
  std::vector<std::uint32_t> keys;
  keys.reserve(numbers.size());
  std::int64_t before = -1;
  for (const std::int64_t key : numbers) {
    if (key <= before || static_cast<std::uint64_t>(key) >= elements) {
      throw failed(name + ": key " + std::to_string(key) + " at " + std::to_string(keys.size()) +
                   " does not grow from " + std::to_string(before) + ", or is not below the tensor's " +
                   grouped(elements) + " elements");
    }
    keys.push_back(static_cast<std::uint32_t>(key));
    before = key;
  }
  return keys;
}

}  // namespace deltawire::cli
