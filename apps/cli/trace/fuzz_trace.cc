// A trace from anywhere: trace.json, or behind the letter k a file of keys, behind d a .dw file of values,
// behind n a .npy. What is accepted keeps the format's promises: paths stay below the folder, keys grow,
// counts are shapes'.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cli/trace/trace.h"

namespace deltawire::cli {
namespace {

int traces_accepted = 0;
int keys_accepted = 0;
int values_accepted = 0;

void expect(bool holds) {
  if (!holds) std::abort();
}

void expect_below(const std::string& path, bool needed) {
  expect(!needed || !path.empty());
  expect(!path.starts_with('/') && ("/" + path + "/").find("/../") == std::string::npos);
}

void expect_promises(const Trace& trace) {
  std::set<std::string> names;
  for (const TraceTensor& tensor : trace.tensors) {
    expect(!tensor.name.empty() && names.insert(tensor.name).second);
    expect(tensor.shape.size() <= 8 && tensor.elements < std::uint64_t{1} << 32);
    std::uint64_t product = 1;
    for (const std::uint64_t extent : tensor.shape) product *= extent;
    expect(product == tensor.elements);
  }
  std::uint64_t before = 0;
  for (const TraceStep& step : trace.steps) {
    expect(step.step > before && step.tensors.size() == trace.tensors.size());
    before = step.step;
    for (std::size_t i = 0; i < step.tensors.size(); ++i) {
      if (!step.tensors[i]) continue;
      expect_below(step.tensors[i]->values, true);
      expect_below(step.tensors[i]->significance, false);
      expect_below(step.tensors[i]->keys, trace.tensors[i].pairs);
    }
  }
}

void parse_json(std::string_view text) {
  expect_promises(parse_trace(text, "trace.json"));
  ++traces_accepted;
}

void parse_file(char kind, std::vector<std::byte> file) {
  if (kind == 'k') {
    constexpr std::uint64_t kElements = 1000;
    const auto keys = parse_keys(file, "keys.npy", kElements);
    ++keys_accepted;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      expect(keys[i] < kElements && (i == 0 || keys[i] > keys[i - 1]));
    }
    return;
  }
  const auto values = parse_values(file, kind == 'd' ? "values.dw" : "values.npy", {2, 3});
  ++values_accepted;
  expect(values.size() == 6);
}

}  // namespace
}  // namespace deltawire::cli

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool is_file = size > 0 && (data[0] == 'k' || data[0] == 'd' || data[0] == 'n');
  try {
    if (is_file) {
      const auto bytes = std::as_bytes(std::span(data, size).subspan(1));
      deltawire::cli::parse_file(text[0], {bytes.begin(), bytes.end()});
    } else {
      deltawire::cli::parse_json(text);
    }
  } catch (const deltawire::cli::Failure& failure) {
    deltawire::cli::expect(is_file || failure.message.starts_with("trace.json: "));
  }
  return 0;
}

extern "C" void fuzz_after_seeds() {
  using namespace deltawire::cli;
  expect(traces_accepted > 0 && keys_accepted > 0 && values_accepted > 0);
}
