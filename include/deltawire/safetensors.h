// Models as safetensors files have them: which tensors, and where their bytes are.
// https://huggingface.co/docs/safetensors describes the format; docs/reference/patch-files.md has our limits.
//
// Thread rule: values; no call keeps state. Calls throw std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/patch.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

inline constexpr std::uint64_t kMostModelHeaderBytes = 100'000'000;  // as the safetensors library has it
inline constexpr std::size_t kMostModelTensors = std::size_t{1} << 20;
inline constexpr std::size_t kMostModelDims = 64;

// Bytes before the JSON: its length.
inline constexpr std::uint64_t kModelLengthBytes = 8;

// A dtype whose elements patches know.
struct ModelDType {
  std::string_view name;  // as safetensors spells it: "BF16"
  WeightType type;        // an element of 8 bytes is two of kInt32
  std::uint64_t bytes;    // of an element
};
DELTAWIRE_API std::span<const ModelDType> model_dtypes() noexcept;

struct ModelTensor {
  std::string name;
  std::string dtype;  // any: of one that isn't in model_dtypes() only the bytes count
  WeightType type = WeightType::kInt8;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // in the data, which follows the header
  std::uint64_t bytes = 0;

  bool same_kind(const ModelTensor& other) const { return dtype == other.dtype && shape == other.shape; }
};

// A tensor that has no place in a file yet. kUnsupportedDType for a dtype that isn't in model_dtypes(),
// kLimit for more than 2^63 bytes.
DELTAWIRE_API Result<ModelTensor> tensor_of_kind(std::string name, std::string dtype,
                                                 std::vector<std::uint64_t> shape);

struct DELTAWIRE_API ModelHeader {
  std::vector<ModelTensor> tensors;    // in the order of their bytes
  std::vector<std::uint32_t> by_name;  // indices of `tensors`, in ascending order of the names' bytes
  std::map<std::string, std::string> metadata;
  std::uint64_t data_bytes = 0;

  const ModelTensor* find(std::string_view name) const noexcept;
};

using ModelMetadata = std::vector<std::pair<std::string, std::string>>;

// Reads a header without the 8 bytes of its length. Tensors must cover the data without gaps or overlaps.
// Errors, without the file's name: kCorrupt, kLimit.
DELTAWIRE_API Result<ModelHeader> read_model_header(std::string_view json);

// A file that is in memory; `data` are the bytes behind the header.
struct ModelView {
  ModelHeader header;
  Bytes data;

  Bytes bytes_of(const ModelTensor& tensor) const { return data.subspan(tensor.begin, tensor.bytes); }
};

// Reads a whole file. Errors, without its name: kTruncated, and those of read_model_header().
DELTAWIRE_API Result<ModelView> read_model(Bytes file);

// The JSON of a header; names and texts that are not UTF-8 are repaired.
DELTAWIRE_API std::string write_model_header(const std::vector<ModelTensor>& tensors,
                                             const ModelMetadata& metadata);

// What stands before a file's data: the header's length and the header, with spaces up to 8 bytes. The
// tensors follow each other in this order, whatever `begin` they have.
DELTAWIRE_API std::string model_front(std::vector<ModelTensor> tensors, const ModelMetadata& metadata);

// 16 hexadecimal digits, as patch files have digests.
DELTAWIRE_API std::string digest_text(std::uint64_t digest);

// XXH64 of names, dtypes, shapes and `digests` of the tensors, which are in the order of header.tensors.
DELTAWIRE_API std::uint64_t model_digest(const ModelHeader& header,
                                         const std::vector<std::uint64_t>& digests);
// The same for tensors in any order. kCorrupt for a name that is there twice.
DELTAWIRE_API Result<std::uint64_t> model_digest(std::vector<ModelTensor> tensors,
                                                 const std::vector<std::uint64_t>& digests);

// XXH64 of a file's bytes before its data and of its model's digest: together they determine every byte.
DELTAWIRE_API std::uint64_t file_digest(std::string_view header_json, std::uint64_t model_digest);

}  // namespace deltawire
