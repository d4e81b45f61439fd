// Small models for tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/temporary_folder_testing.h"

namespace deltawire::testing {

struct TestTensor {
  std::string name;
  std::string dtype;
  std::string shape;  // "2,3"
  std::string bytes;
};

// The bytes of a safetensors file. `more` is put behind the tensors in the JSON.
inline std::string model_bytes(const std::vector<TestTensor>& tensors, const std::string& more = "") {
  std::string json = "{";
  std::string data;
  for (const TestTensor& tensor : tensors) {
    json += (json == "{" ? "\"" : ",\"") + tensor.name + "\":{\"dtype\":\"" + tensor.dtype +
            "\",\"shape\":[" + tensor.shape + "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
            std::to_string(data.size() + tensor.bytes.size()) + "]}";
    data += tensor.bytes;
  }
  json += more + "}";
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return length + json + data;
}

inline std::string random_bytes(std::uint64_t count, std::uint64_t seed) {
  CounterRng random(seed, count);
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.next() & 0xFF);
  return bytes;
}

// Every `step`-th byte is another one.
inline std::string changed_bytes(std::string bytes, std::size_t step) {
  for (std::size_t i = 0; i < bytes.size(); i += step) bytes[i] = static_cast<char>(bytes[i] ^ 1);
  return bytes;
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace deltawire::testing
