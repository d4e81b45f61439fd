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

Outcome<Parsed> parsed(Bytes file) {
  const auto array = open_npy(std::make_unique<MemorySource>(file), "input.npy");
  if (!array) return tl::unexpected<Failure>(array.error());
  auto values = read_floats(**array, "input.npy");
  if (!values) return tl::unexpected<Failure>(values.error());
  return Parsed{(*array)->info().shape, *std::move(values)};
}

void parse(Bytes data) {
  const auto first = parsed(data);
  if (!first) {
    expect(first.error().message.starts_with("input.npy: "));
    return;
  }
  const Bytes values = std::as_bytes(std::span(first->values));
  expect(values.size() <= 2 * data.size());
  const std::string header = npy_header({first->shape, ValueType::kF32, first->values.size()});
  std::vector<std::byte> again(header.size() + values.size());
  std::memcpy(again.data(), header.data(), header.size());
  std::copy(values.begin(), values.end(), again.begin() + static_cast<std::ptrdiff_t>(header.size()));
  const auto second = parsed(again);
  expect(second.has_value() && second->shape == first->shape);
  expect(std::ranges::equal(std::as_bytes(std::span(second->values)), values));
}

// Reads an array of any type and order, value by value.
void stream(Bytes data) {
  const auto array = open_npy(std::make_unique<MemorySource>(data), "input.npy");
  if (!array || (*array)->info().bytes() > data.size()) return;
  const ArrayInfo& info = (*array)->info();
  std::vector<std::byte> values(info.bytes());
  std::uint64_t done = 0;
  while (done < info.count) {
    const std::uint64_t count = std::min<std::uint64_t>(info.count - done, 7);
    if (!(*array)->read(values.data() + done * value_bytes(info.type), count)) return;
    done += count;
  }
}

}  // namespace
}  // namespace deltawire::cli

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  deltawire::cli::parse(std::as_bytes(std::span(data, size)));
  deltawire::cli::stream(std::as_bytes(std::span(data, size)));
  return 0;
}
