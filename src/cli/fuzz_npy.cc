// A .npy file from anywhere. What is accepted lies inside the file's bytes, has the shape's count of
// elements, and is accepted again behind a header of our own.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cli/npy.h"

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
  const std::string header = npy_float32_header(array->shape);
  std::vector<std::byte> again(header.size() + bytes);
  std::memcpy(again.data(), header.data(), header.size());
  if (bytes > 0) std::memcpy(again.data() + header.size(), values, bytes);
  const auto second = parse_npy(again, "again.npy");
  expect(second.has_value() && second->shape == array->shape);
  expect(bytes == 0 || std::memcmp(second->tensor.values, values, bytes) == 0);
}

}  // namespace
}  // namespace deltawire::cli

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  deltawire::cli::parse(std::as_bytes(std::span(data, size)));
  return 0;
}
