// A .npy file from anywhere, in memory and as a stream. What is accepted lies inside the file's bytes, has
// the shape's count of elements, and is accepted again behind a header of our own.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "cli/arrays/array_reader.h"
#include "cli/arrays/npy.h"

namespace deltawire::cli {
namespace {

void expect(bool holds) {
  if (!holds) std::abort();
}

void parse(Bytes data) {
  std::vector<std::byte> file(data.begin(), data.end());
  const auto array = parse_npy(file, "input.npy");
  if (!array) {
    expect(!array.error().message.empty());
    return;
  }
  const auto* values = static_cast<const std::byte*>(array->tensor.values);
  const std::uint64_t bytes = 4 * array->tensor.count;
  expect(values >= file.data() && values + bytes <= file.data() + file.size());
  expect(reinterpret_cast<std::uintptr_t>(values) % alignof(float) == 0);
  const std::string header = npy_header({array->shape, ValueType::kF32, array->tensor.count});
  std::vector<std::byte> again(header.size() + bytes);
  std::memcpy(again.data(), header.data(), header.size());
  if (bytes > 0) std::memcpy(again.data() + header.size(), values, bytes);
  const auto second = parse_npy(again, "again.npy");
  expect(second.has_value() && second->shape == array->shape);
  expect(bytes == 0 || std::memcmp(second->tensor.values, values, bytes) == 0);
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
