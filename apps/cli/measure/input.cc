#include "cli/measure/input.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "cli/arrays/array_reader.h"
#include "cli/arrays/byte_source.h"
#include "cli/number_text.h"

namespace deltawire::cli {
namespace {

constexpr std::uint64_t kMostExpanded = std::uint64_t{1} << 28;  // elements of a tensor of pairs

InputTensor input_tensor(const TraceTensor& tensor, Gradient&& gradient) {
  InputTensor made;
  made.name = tensor.name;
  made.shape = tensor.shape;
  made.pairs = tensor.pairs;
  if (!tensor.pairs) {
    made.values = std::move(gradient.values);
    made.significance = std::move(gradient.significance);
    return made;
  }
  if (tensor.elements > kMostExpanded) {
    throw failed("\"" + tensor.name + "\" has " + grouped(tensor.elements) +
                 " elements, and tensors of pairs can be measured up to " + grouped(kMostExpanded));
  }
  made.values.resize(tensor.elements);
  for (std::size_t i = 0; i < gradient.keys.size(); ++i) {
    made.values[gradient.keys[i]] = gradient.values[i];
  }
  made.keys = std::move(gradient.keys);
  made.pair_values = std::move(gradient.values);
  return made;
}

Input load_trace(const std::string& folder) {
  const auto trace = open_trace(folder);
  Input input;
  input.about = "a trace";
  for (const std::string& words : {trace.model, trace.optimizer}) {
    if (!words.empty()) input.about += ", " + words;
  }
  for (std::size_t i = 0; i < trace.steps.size(); ++i) input.steps.push_back(input_step(trace, i));
  return input;
}

InputTensor parse_tensor(Bytes file, const std::string& name) {
  const bool is_dw =
      file.size() >= kDwMagic.size() && std::memcmp(file.data(), kDwMagic.data(), kDwMagic.size()) == 0;
  auto source = std::make_unique<MemorySource>(file);
  const auto array = is_dw ? open_dw(std::move(source), name) : open_npy(std::move(source), name);
  InputTensor tensor;
  tensor.shape = array->info().shape;
  tensor.values = read_floats(*array, name);
  return tensor;
}

Input load_file(const std::string& path) {
  auto tensor = parse_tensor(read_input(path), input_name(path));
  tensor.name = path == "-" ? "values" : std::filesystem::path(path).stem().string();
  Input input;
  input.about = "an array of shape " + shape_text(tensor.shape);
  input.steps.emplace_back().tensors.push_back(std::move(tensor));
  return input;
}

Input load(const std::string& text, bool small) {
  if (text.starts_with(kSyntheticPrefix)) return synthetic_input(text, small);
  std::error_code error;
  if (text != "-" && std::filesystem::is_directory(text, error)) return load_trace(text);
  return load_file(text);
}

std::vector<std::vector<float>> room_for(const InputStep& step) {
  std::vector<std::vector<float>> room;
  room.reserve(step.tensors.size());
  for (const InputTensor& tensor : step.tensors) room.emplace_back(tensor.values.size());
  return room;
}

Named pairs_part(const InputTensor& tensor) {
  Named part = dense_part(tensor);
  part.tensor.values = const_cast<float*>(tensor.pair_values.data());
  part.tensor.count = tensor.pair_values.size();
  part.tensor.keys = const_cast<std::uint32_t*>(tensor.keys.data());
  part.tensor.dimension = tensor.values.size();
  return part;
}

// The key-value form has no residual, so what would keep one gets all elements.
bool goes_as_pairs(const InputTensor& tensor, const Channel& channel, std::uint64_t number) {
  if (!tensor.pairs || tensor.values.empty()) return false;
  return channel.takes_pairs(pairs_part(tensor), number);
}

std::vector<Named> sent_parts(const InputStep& step, const Channel& channel, std::uint64_t number) {
  std::vector<Named> parts;
  parts.reserve(step.tensors.size());
  for (const InputTensor& tensor : step.tensors) {
    parts.push_back(goes_as_pairs(tensor, channel, number) ? pairs_part(tensor) : dense_part(tensor));
  }
  return parts;
}

std::vector<Named> slot_parts(const InputStep& step, std::vector<std::vector<float>>& room) {
  std::vector<Named> parts;
  for (std::size_t i = 0; i < room.size(); ++i) {
    Named part = dense_part(step.tensors[i]);
    part.tensor.values = room[i].data();
    part.tensor.significance = nullptr;
    parts.push_back(part);
  }
  return parts;
}

}  // namespace

Named dense_part(const InputTensor& tensor) {
  // Encoding only reads the values; Named serves both directions.
  Named part{tensor.name, TensorSlot{const_cast<float*>(tensor.values.data()), tensor.values.size()}};
  part.tensor.dims = tensor.shape;
  if (!tensor.significance.empty()) part.tensor.significance = tensor.significance.data();
  return part;
}

std::uint64_t InputStep::values() const noexcept {
  std::uint64_t sum = 0;
  for (const InputTensor& tensor : tensors) sum += tensor.values.size();
  return sum;
}

std::uint64_t Input::values() const noexcept {
  std::uint64_t sum = 0;
  for (const InputStep& step : steps) sum += step.values();
  return sum;
}

InputFacts facts_of(const Input& input) {
  InputFacts facts;
  double squares = 0;
  for (const InputStep& step : input.steps) {
    facts.tensors = std::max<std::uint64_t>(facts.tensors, step.tensors.size());
    for (const InputTensor& tensor : step.tensors) {
      facts.values += tensor.values.size();
      facts.pairs += tensor.keys.size();
      for (const double value : tensor.values) {
        if (!std::isfinite(value)) {
          ++facts.not_finite;
          continue;
        }
        facts.zeros += value == 0 ? 1 : 0;
        facts.largest = std::max(facts.largest, std::abs(value));
        squares += value * value;
      }
    }
  }
  facts.norm = std::sqrt(squares);
  return facts;
}

InputStep input_step(const Trace& trace, std::size_t index) {
  auto gradients = read_step(trace, index);
  InputStep step;
  step.step = trace.steps[index].step;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i]) continue;
    step.tensors.push_back(within(trace.folder + ": ",
                                  [&] { return input_tensor(trace.tensors[i], *std::move(gradients[i])); }));
  }
  return step;
}

Input load_input(const std::string& text, bool small) {
  auto input = load(text, small);
  input.name = input_name(text);
  // Steps without a value say nothing.
  std::erase_if(input.steps, [](const InputStep& step) { return step.values() == 0; });
  if (input.steps.empty()) throw failed(input.name + ": holds no values; give one that has some");
  return input;
}

Parts::Parts(const InputStep& step, const Channel& channel, std::uint64_t number)
    : decoded_(room_for(step)),
      sent_(sent_parts(step, channel, number)),
      slots_(slot_parts(step, decoded_)),
      sent_layout_(sent_),
      slot_layout_(slots_) {}

std::uint64_t bytes_of(std::span<const Bytes> pieces) noexcept {
  std::uint64_t sum = 0;
  for (const Bytes piece : pieces) sum += piece.size();
  return sum;
}

}  // namespace deltawire::cli
