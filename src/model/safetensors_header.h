// The header of a safetensors file: which tensors a model has, and where their bytes are.
// https://huggingface.co/docs/safetensors describes the format; docs/reference/patch-files.md has our limits.
//
// Thread rule: values; no call keeps state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/patch.h"
#include "deltawire/result.h"

namespace deltawire::model {

inline constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // as the safetensors library has it
inline constexpr std::size_t kMostTensors = std::size_t{1} << 20;
inline constexpr std::size_t kMostDims = 64;

// Bytes before the JSON: its length.
inline constexpr std::uint64_t kLengthBytes = 8;

struct TensorEntry {
  std::string name;
  std::string dtype;  // as safetensors spells it: "BF16"
  WeightType type = WeightType::kInt8;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // in the data, which follows the header
  std::uint64_t bytes = 0;

  bool same_kind(const TensorEntry& other) const { return dtype == other.dtype && shape == other.shape; }
};

struct ModelHeader {
  std::vector<TensorEntry> tensors;    // in the order of their bytes
  std::vector<std::uint32_t> by_name;  // indices of `tensors`, in ascending order of the names' bytes
  std::map<std::string, std::string> metadata;
  std::uint64_t data_bytes = 0;

  const TensorEntry* find(std::string_view name) const noexcept;
};

// The tensor's name, short enough and safe for a message: "tensor 'layers.0.weight'".
std::string shown(std::string_view tensor_name);

// Reads a header without the 8 bytes of its length. Tensors must cover the data without gaps or overlaps.
// Errors, without the file's name: kCorrupt, kLimit. Throws std::bad_alloc.
Result<ModelHeader> read_header(std::string_view json);

// The JSON of a header; names and texts that are not UTF-8 are repaired. Throws std::bad_alloc.
std::string write_header(const std::vector<TensorEntry>& tensors,
                         const std::map<std::string, std::string>& metadata);

// 16 hexadecimal digits, as patch files have digests.
std::string digest_text(std::uint64_t digest);

// XXH64 of names, dtypes, shapes and `digests` of the tensors, which are in the order of header.tensors.
std::uint64_t model_digest(const ModelHeader& header, const std::vector<std::uint64_t>& digests);

// XXH64 of a file's bytes before its data and of its model's digest: together they determine every byte.
std::uint64_t file_digest(std::string_view header_json, std::uint64_t model_digest);

}  // namespace deltawire::model
