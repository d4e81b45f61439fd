#include "cli/trace/trace.h"

#include <set>
#include <utility>

#include <nlohmann/json.hpp>

namespace deltawire::cli {
namespace {

using TraceJson = nlohmann::json;

constexpr std::uint64_t kTraceFormat = 1;
constexpr std::size_t kTraceDimensions = 8;
constexpr std::uint64_t kTraceElements = std::uint64_t{1} << 32;  // a tensor has fewer
constexpr std::uint64_t kLastTraceStep = std::uint64_t{1} << 62;

// A place in the file, as in "steps[3].tensors[1].values".
std::string field_of(const std::string& place, std::string_view field) {
  return place.empty() ? std::string(field) : place + "." + std::string(field);
}

std::string item_of(const std::string& place, std::size_t index) {
  return place + "[" + std::to_string(index) + "]";
}

Failure bad_field(const std::string& place, std::string_view what) {
  return failed(place + " " + std::string(what));
}

// nullptr if it is missing or null.
const TraceJson* member(const TraceJson& object, const char* field) {
  const auto found = object.find(field);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

void take_text(const TraceJson& object, const std::string& place, const char* field, std::string& text) {
  const TraceJson* found = member(object, field);
  if (found == nullptr) return;
  if (!found->is_string()) throw bad_field(field_of(place, field), "must be a text");
  text = found->get<std::string>();
}

const TraceJson* list_of(const TraceJson& object, const std::string& place, const char* field) {
  const TraceJson* found = member(object, field);
  if (found == nullptr || !found->is_array()) throw bad_field(field_of(place, field), "must be a list");
  return found;
}

bool stays_inside(std::string_view path) {
  if (path.empty() || path.find('\0') != std::string_view::npos ||
      path.find('\\') != std::string_view::npos) {
    return false;
  }
  while (true) {
    const std::size_t end = path.find('/');
    const std::string_view step = path.substr(0, end);
    if (step.empty() || step == "." || step == "..") return false;
    if (end == std::string_view::npos) return true;
    path.remove_prefix(end + 1);
  }
}

void take_path(const TraceJson& object, const std::string& place, const char* field, std::string& path) {
  take_text(object, place, field, path);
  if (member(object, field) != nullptr && !stays_inside(path)) {
    throw bad_field(field_of(place, field),
                    "must be a path below the trace's folder, as in 000010/0.npy, but is \"" + path + "\"");
  }
}

void take_shape(const TraceJson& object, const std::string& place, TraceTensor& tensor) {
  const auto list = list_of(object, place, "shape");
  if (list->size() > kTraceDimensions) {
    throw bad_field(field_of(place, "shape"), "has more than 8 dimensions");
  }
  std::uint64_t product = 1;
  tensor.elements = 1;
  for (const TraceJson& extent : *list) {
    if (!extent.is_number_unsigned())
      throw bad_field(field_of(place, "shape"), "must be whole numbers from 0 on");
    const auto size = extent.get<std::uint64_t>();
    // Checks the other extents even after a 0, so that the order does not matter. Both factors are below
    // 2^32.
    const std::uint64_t factor = size == 0 ? 1 : size;
    if (factor >= kTraceElements || product * factor >= kTraceElements) {
      throw bad_field(field_of(place, "shape"), "has 2^32 elements or more");
    }
    product *= factor;
    if (size == 0) tensor.elements = 0;
    tensor.shape.push_back(size);
  }
  if (tensor.elements != 0) tensor.elements = product;
}

TraceTensor take_tensor(const TraceJson& object, const std::string& place) {
  if (!object.is_object()) throw bad_field(place, "must be an object with name and shape");
  TraceTensor tensor;
  take_text(object, place, "name", tensor.name);
  if (tensor.name.empty()) throw bad_field(field_of(place, "name"), "must be a text that is not empty");
  take_shape(object, place, tensor);
  if (const TraceJson* pairs = member(object, "pairs"); pairs != nullptr) {
    if (!pairs->is_boolean()) throw bad_field(field_of(place, "pairs"), "must be true or false");
    tensor.pairs = pairs->get<bool>();
  }
  return tensor;
}

void take_tensors(const TraceJson& whole, Trace& trace) {
  const auto list = list_of(whole, "", "tensors");
  std::set<std::string> names;
  for (std::size_t i = 0; i < list->size(); ++i) {
    auto tensor = take_tensor((*list)[i], item_of("tensors", i));
    if (!names.insert(tensor.name).second) {
      throw bad_field(field_of(item_of("tensors", i), "name"),
                      "\"" + tensor.name + "\" is that of an earlier tensor");
    }
    trace.tensors.push_back(std::move(tensor));
  }
}

TraceFiles take_files(const TraceJson& object, const std::string& place, const TraceTensor& tensor) {
  if (!object.is_object()) throw bad_field(place, "must be an object with values, or null");
  TraceFiles files;
  const std::pair<const char*, std::string*> paths[] = {
      {"values", &files.values}, {"significance", &files.significance}, {"keys", &files.keys}};
  for (const auto& [field, path] : paths) take_path(object, place, field, *path);
  if (files.values.empty()) throw bad_field(field_of(place, "values"), "must be there");
  if (tensor.pairs && files.keys.empty()) {
    throw bad_field(field_of(place, "keys"), "must be there: \"" + tensor.name + "\" has pairs");
  }
  if (!tensor.pairs && !files.keys.empty()) {
    throw bad_field(field_of(place, "keys"), "may not be there: \"" + tensor.name + "\" has no pairs");
  }
  return files;
}

TraceStep take_step(const TraceJson& object, const std::string& place, const Trace& trace) {
  if (!object.is_object()) throw bad_field(place, "must be an object with step and tensors");
  TraceStep step;
  const TraceJson* number = member(object, "step");
  if (number == nullptr || !number->is_number_unsigned()) {
    throw bad_field(field_of(place, "step"), "must be a whole number from 1 on");
  }
  step.step = number->get<std::uint64_t>();
  const std::uint64_t before = trace.steps.empty() ? 0 : trace.steps.back().step;
  if (step.step <= before || step.step > kLastTraceStep) {
    throw bad_field(field_of(place, "step"),
                    "must grow from 1 to 2^62 at most: " + std::to_string(step.step) + " comes after " +
                        std::to_string(before));
  }
  const auto list = list_of(object, place, "tensors");
  const std::string tensors = field_of(place, "tensors");
  if (list->size() != trace.tensors.size()) {
    throw bad_field(tensors, "has " + std::to_string(list->size()) + " entries for the trace's " +
                                 std::to_string(trace.tensors.size()) + " tensors");
  }
  for (std::size_t i = 0; i < trace.tensors.size(); ++i) {
    std::optional<TraceFiles>& entry = step.tensors.emplace_back();
    if (!(*list)[i].is_null()) entry = take_files((*list)[i], item_of(tensors, i), trace.tensors[i]);
  }
  return step;
}

Trace take_trace(const TraceJson& whole) {
  if (!whole.is_object()) throw failed("must be an object");
  const TraceJson* format = member(whole, "format");
  if (format == nullptr || !format->is_number_unsigned()) throw bad_field("format", "must be a number");
  if (*format != kTraceFormat) {
    throw bad_field("format", "is " + format->dump() + ", and this deltawire reads 1; use a newer one");
  }
  Trace trace;
  const std::pair<const char*, std::string*> words[] = {
      {"model", &trace.model}, {"optimizer", &trace.optimizer}, {"command", &trace.command}};
  for (const auto& [field, text] : words) take_text(whole, "", field, *text);
  take_tensors(whole, trace);
  const auto list = list_of(whole, "", "steps");
  for (std::size_t i = 0; i < list->size(); ++i) {
    trace.steps.push_back(take_step((*list)[i], item_of("steps", i), trace));
  }
  return trace;
}

}  // namespace

Trace parse_trace(std::string_view text, const std::string& name) {
  TraceJson whole;
  try {
    whole = TraceJson::parse(text);
  } catch (const TraceJson::exception& error) {
    throw failed(name + ": is not JSON; the trace is incomplete or damaged: " + error.what());
  }
  return within(name + ": ", [&] { return take_trace(whole); });
}

}  // namespace deltawire::cli
