// Small traces for tests: trace.json as text, and the files next to it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "cli/arrays/array_reader.h"
#include "cli/outcome_testing.h"

namespace deltawire::cli::testing {

// A dense tensor, a scalar and one of pairs, of which the dense ones have no gradient in step 20.
inline constexpr std::string_view kTraceJson = R"({
  "format": 1, "model": "toy", "optimizer": "SGD, lr=1", "command": "python toy.py", "later": [1],
  "tensors": [
    {"name": "w", "shape": [2, 3]},
    {"name": "s", "shape": [], "pairs": false},
    {"name": "e", "shape": [5, 2], "pairs": true}
  ],
  "steps": [
    {"step": 10, "tensors": [
      {"values": "10/w.npy", "significance": "10/w.significance.npy"},
      {"values": "10/s.npy"},
      {"values": "10/e.npy", "keys": "10/e.keys.npy"}]},
    {"step": 20, "tensors": [null, null, {"values": "20/e.npy", "keys": "20/e.keys.npy"}]}
  ]
})";

// The text with its first `old` replaced: there must be one.
inline std::string changed(std::string_view text, std::string_view old, std::string_view by) {
  std::string copy(text);
  const std::size_t at = copy.find(old);
  if (at == std::string::npos) std::abort();
  return copy.replace(at, old.size(), by);
}

inline std::vector<std::byte> npy_file(const ArrayInfo& info, Bytes values) {
  const std::string header = npy_header(info);
  std::vector<std::byte> file(header.size() + values.size());
  std::memcpy(file.data(), header.data(), header.size());
  std::copy(values.begin(), values.end(), file.begin() + static_cast<std::ptrdiff_t>(header.size()));
  return file;
}

inline std::vector<std::byte> npy_of(const std::vector<float>& values,
                                     const std::vector<std::uint64_t>& shape) {
  return npy_file({shape, ValueType::kF32, 0}, std::as_bytes(std::span(values)));
}

inline std::vector<std::byte> npy_of_keys(const std::vector<std::int64_t>& keys) {
  return npy_file({{keys.size()}, ValueType::kI64, 0}, std::as_bytes(std::span(keys)));
}

class TraceFolder : public deltawire::testing::TemporaryFolder {
 public:
  // The trace of kTraceJson, whole.
  void fill() const {
    write("trace.json", kTraceJson);
    write("10/w.npy", npy_of({1, -2, 0, 4, 0, 6}, {2, 3}));
    write("10/w.significance.npy", npy_of({1, 2, 3, 4, 5, 6}, {2, 3}));
    write("10/s.npy", npy_of({-7}, {}));
    write("10/e.npy", npy_of({0.5F, 1.5F}, {2}));
    write("10/e.keys.npy", npy_of_keys({0, 9}));
    write("20/e.npy", npy_of({}, {0}));
    write("20/e.keys.npy", npy_of_keys({}));
  }

  void write(const std::string& name, std::string_view text) const {
    const std::filesystem::path file = path(name);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
  void write(const std::string& name, const std::vector<std::byte>& bytes) const {
    write(name, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
};

}  // namespace deltawire::cli::testing
