// A .npy file from anywhere, at once and value by value. What is accepted has as many values as the file's
// bytes, and is accepted again behind a header of our own.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "cli/arrays/array_reader.h"

namespace deltawire::cli {
namespace {

void expect(bool holds) {
  if (!holds) std::abort();
}

struct Parsed {
  std::vector<std::uint64_t> shape;
  std::vector<float> values;
};

Parsed parsed(Bytes file) {
  const auto array = open_npy(std::make_unique<MemorySource>(file), "input.npy");
  return {array->info().shape, read_floats(*array, "input.npy")};
}

void parse(Bytes data) {
  const auto first = parsed(data);
  const Bytes values = std::as_bytes(std::span(first.values));
  expect(values.size() <= 2 * data.size());
  const std::string header = npy_header({first.shape, ValueType::kF32, first.values.size()});
  std::vector<std::byte> again(header.size() + values.size());
  std::memcpy(again.data(), header.data(), header.size());
  std::copy(values.begin(), values.end(), again.begin() + static_cast<std::ptrdiff_t>(header.size()));
  const auto second = parsed(again);
  expect(second.shape == first.shape);
  expect(std::ranges::equal(std::as_bytes(std::span(second.values)), values));
}

// Reads an array of any type and order, value by value.
void stream(Bytes data) {
  const auto array = open_npy(std::make_unique<MemorySource>(data), "input.npy");
  const ArrayInfo& info = array->info();
  if (info.bytes() > data.size()) return;
  std::vector<std::byte> values(info.bytes());
  std::uint64_t done = 0;
  while (done < info.count) {
    const std::uint64_t count = std::min<std::uint64_t>(info.count - done, 7);
    array->read(values.data() + done * value_bytes(info.type), count);
    done += count;
  }
}

}  // namespace
}  // namespace deltawire::cli

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace deltawire::cli;
  for (const auto use : {parse, stream}) {
    try {
      use(std::as_bytes(std::span(data, size)));
    } catch (const Failure& failure) {
      expect(failure.message.starts_with("input.npy: "));
    }
  }
  return 0;
}
