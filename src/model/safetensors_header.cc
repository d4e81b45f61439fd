#include <algorithm>
#include <array>
#include <cassert>
#include <cstdio>
#include <numeric>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/errors.h"
#include "base/little_endian.h"
#include "deltawire/safetensors.h"
#include "model/model.h"
#include "wire/hashes.h"

namespace deltawire {

namespace {

using model::kShownBytes;
using model::shown;

// A dtype's type is in the patches of its tensors: a row, once released, stays, and so does a dtype without a
// row.
constexpr std::array kDTypes = {ModelDType{"F32", WeightType::kFloat32, 4},
                                ModelDType{"BF16", WeightType::kBFloat16, 2},
                                ModelDType{"F16", WeightType::kFloat16, 2},
                                ModelDType{"F8_E4M3", WeightType::kFloat8E4M3, 1},
                                ModelDType{"F8_E5M2", WeightType::kFloat8E5M2, 1},
                                ModelDType{"F8_E4M3FNUZ", WeightType::kFloat8E4M3, 1},
                                ModelDType{"F8_E5M2FNUZ", WeightType::kFloat8E5M2, 1},
                                ModelDType{"I8", WeightType::kInt8, 1},
                                ModelDType{"U8", WeightType::kInt8, 1},
                                ModelDType{"BOOL", WeightType::kInt8, 1},
                                ModelDType{"F8_E8M0", WeightType::kInt8, 1},
                                ModelDType{"I16", WeightType::kInt16, 2},
                                ModelDType{"U16", WeightType::kInt16, 2},
                                ModelDType{"I32", WeightType::kInt32, 4},
                                ModelDType{"U32", WeightType::kInt32, 4},
                                ModelDType{"I64", WeightType::kInt32, 8},
                                ModelDType{"U64", WeightType::kInt32, 8},
                                ModelDType{"F64", WeightType::kInt32, 8},
                                ModelDType{"C64", WeightType::kInt32, 8}};

constexpr std::string_view kMetadataKey = "__metadata__";

// Collects the tensors as the parser meets them; every function returns false to stop it. The parser is not
// recursive, and whatever is nested deeper than a header is refused here.
class HeaderEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<ModelTensor> tensors;
  std::map<std::string, std::string> metadata;
  Error error;

  // Some published files say null for no metadata.
  bool null() override {
    return at_ == At::kModel && key_ == kMetadataKey ? begin_metadata(At::kModel) : misplaced("null");
  }
  bool boolean(bool) override { return misplaced("true or false"); }
  bool number_integer(number_integer_t) override { return misplaced("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return misplaced("a number that is no integer of 64 bits");
  }
  bool binary(binary_t&) override { return misplaced("bytes"); }

  bool number_unsigned(number_unsigned_t number) override {
    if (at_ == At::kShape) {
      assert(!tensors.empty());
      tensors.back().shape.push_back(number);
      if (tensors.back().shape.size() <= kMostModelDims) return true;
      return stop(ErrorCode::kLimit,
                  where() + " has more than " + std::to_string(kMostModelDims) + " dimensions");
    }
    if (at_ != At::kOffsets || offsets_ == 2) return misplaced("a number");
    (offsets_++ == 0 ? tensors.back().begin : end_) = number;
    return true;
  }

  bool string(string_t& text) override {
    if (at_ == At::kMetadata) {
      if (metadata.emplace(key_, text).second) return true;
      return stop(ErrorCode::kCorrupt, "the header's __metadata__ has the key " + shown_key() + " twice");
    }
    if (at_ != At::kTensor || key_ != "dtype") return misplaced("a text");
    tensors.back().dtype = text;
    return true;
  }

  bool key(string_t& text) override {
    key_ = text;
    if (at_ != At::kTensor) return true;
    const unsigned field = key_ == "dtype" ? 1 : key_ == "shape" ? 2 : key_ == "data_offsets" ? 4 : 0;
    if (field == 0) return stop(ErrorCode::kCorrupt, where() + " has an unknown field " + shown_key());
    if ((fields_ & field) != 0) return stop(ErrorCode::kCorrupt, where() + " has " + shown_key() + " twice");
    fields_ |= field;
    return true;
  }

  bool start_object(std::size_t) override {
    if (at_ == At::kStart) return enter(At::kModel);
    if (at_ != At::kModel) return misplaced("an object");
    if (key_ == kMetadataKey) return begin_metadata(At::kMetadata);
    if (tensors.size() == kMostModelTensors) {
      return stop(ErrorCode::kLimit,
                  "the header has more than " + std::to_string(kMostModelTensors) + " tensors");
    }
    tensors.emplace_back().name = key_;
    fields_ = 0;
    offsets_ = 0;
    return enter(At::kTensor);
  }

  bool end_object() override {
    if (at_ == At::kModel) return enter(At::kEnd);
    if (at_ == At::kMetadata) return enter(At::kModel);
    return fields_ == 7 ? take_end() && enter(At::kModel)
                        : stop(ErrorCode::kCorrupt, where() + " lacks dtype, shape or data_offsets");
  }

  bool start_array(std::size_t) override {
    if (at_ == At::kTensor && key_ == "shape") return enter(At::kShape);
    if (at_ == At::kTensor && key_ == "data_offsets") return enter(At::kOffsets);
    return misplaced("a list");
  }

  bool end_array() override {
    if (at_ == At::kShape || offsets_ == 2) return enter(At::kTensor);
    return stop(ErrorCode::kCorrupt, where() + " has data_offsets that are not two numbers");
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    return stop(ErrorCode::kCorrupt,
                "the header is no JSON from its byte " + std::to_string(position) + " on");
  }

 private:
  enum class At : std::uint8_t { kStart, kModel, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool enter(At next) noexcept {
    at_ = next;
    return true;
  }
  bool begin_metadata(At next) {
    if (!std::exchange(has_metadata_, true)) return enter(next);
    return stop(ErrorCode::kCorrupt, "the header has __metadata__ twice");
  }
  bool stop(ErrorCode code, std::string message) {
    error = {code, std::move(message)};
    return false;
  }
  bool misplaced(const char* what) {
    return stop(ErrorCode::kCorrupt, where() + " has " + what + " where none may be");
  }
  std::string where() const {
    return tensors.empty() || at_ <= At::kMetadata ? "the header" : shown(tensors.back().name);
  }
  std::string shown_key() const { return "'" + printable_line(key_, kShownBytes) + "'"; }
  bool take_end() {
    assert(fields_ == 7 && offsets_ == 2);
    ModelTensor& tensor = tensors.back();
    if (end_ < tensor.begin) return stop(ErrorCode::kCorrupt, where() + " ends before it begins");
    tensor.bytes = end_ - tensor.begin;
    return true;
  }

  At at_ = At::kStart;
  std::string key_;
  unsigned fields_ = 0;   // of the tensor: dtype 1, shape 2, data_offsets 4
  unsigned offsets_ = 0;  // how many of them were read
  std::uint64_t end_ = 0;
  bool has_metadata_ = false;
};

// Bytes of a tensor; 2^64 - 1 for more.
std::uint64_t bytes_of(const ModelDType& dtype, const std::vector<std::uint64_t>& shape) {
  if (std::ranges::find(shape, 0U) != shape.end()) return 0;
  std::uint64_t bytes = dtype.bytes;
  for (const std::uint64_t dim : shape) bytes = product_or_max(bytes, dim);
  return bytes;
}

// Sets the tensor's type; its bytes must be what dtype and shape say. Of other dtypes, some of which have
// less than a byte for an element, only the bytes count: one must not keep a whole model from being patched.
Status check_kind(ModelTensor& tensor) {
  const auto* const row = std::ranges::find(kDTypes, tensor.dtype, &ModelDType::name);
  if (row == kDTypes.end()) {
    tensor.type = WeightType::kInt8;
    return {};
  }
  tensor.type = row->type;
  if (bytes_of(*row, tensor.shape) == tensor.bytes) return {};
  return corrupt(shown(tensor.name) + " has " + std::to_string(tensor.bytes) +
                 " bytes, but its shape and dtype take another number");
}

Status index_names(ModelHeader& header) {
  header.by_name.resize(header.tensors.size());
  std::iota(header.by_name.begin(), header.by_name.end(), 0U);
  const auto name_of = [&](std::uint32_t i) -> const std::string& { return header.tensors[i].name; };
  std::ranges::sort(header.by_name, {}, name_of);
  const auto twice = std::ranges::adjacent_find(header.by_name, {}, name_of);
  if (twice == header.by_name.end()) return {};
  return corrupt(shown(name_of(*twice)) + " is in the header twice");
}

Status check_layout(ModelHeader& header) {
  assert(header.data_bytes == 0 && header.by_name.empty());
  std::ranges::sort(header.tensors, {},
                    [](const ModelTensor& each) { return std::tie(each.begin, each.bytes, each.name); });
  for (ModelTensor& tensor : header.tensors) {
    RETURN_IF_ERROR(check_kind(tensor));
    if (tensor.begin != header.data_bytes) {
      return corrupt(shown(tensor.name) + " begins at byte " + std::to_string(tensor.begin) +
                     " of the data, but the tensor before it ends at byte " +
                     std::to_string(header.data_bytes));
    }
    header.data_bytes += tensor.bytes;  // no overflow: it is the end that was read
  }
  return index_names(header);
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

const ModelTensor* ModelHeader::find(std::string_view name) const noexcept {
  const auto at = std::ranges::lower_bound(
      by_name, name, {}, [&](std::uint32_t i) { return std::string_view(tensors[i].name); });
  return at == by_name.end() || tensors[*at].name != name ? nullptr : &tensors[*at];
}

Result<ModelTensor> tensor_of_kind(std::string name, std::string dtype, std::vector<std::uint64_t> shape) {
  const auto* const row = std::ranges::find(kDTypes, dtype, &ModelDType::name);
  if (row == kDTypes.end()) {
    return fail(ErrorCode::kUnsupportedDType,
                shown(name) + " is " + printable_line(dtype, kShownBytes) + ", which patches don't know");
  }
  const std::uint64_t bytes = bytes_of(*row, shape);
  if (bytes > std::uint64_t{1} << 63) return fail(ErrorCode::kLimit, shown(name) + " is too large");
  return ModelTensor{std::move(name), std::move(dtype), row->type, std::move(shape), 0, bytes};
}

Result<ModelHeader> read_model_header(std::string_view json) {
  // The parser takes a zero byte for the end.
  if (json.find('\0') != std::string_view::npos) return corrupt("the header has a zero byte");
  HeaderEvents events;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &events)) {
    return tl::unexpected<Error>(std::move(events.error));
  }
  ModelHeader header;
  header.tensors = std::move(events.tensors);
  header.metadata = std::move(events.metadata);
  RETURN_IF_ERROR(check_layout(header));
  return header;
}

std::span<const ModelDType> model_dtypes() noexcept {
  return kDTypes;
}

std::string write_model_header(const std::vector<ModelTensor>& tensors, const ModelMetadata& metadata) {
  std::string json = "{\"__metadata__\":{";
  for (const auto& [key, text] : metadata) {
    json += (json.back() == '{' ? "" : ",") + quoted(key) + ":" + quoted(text);
  }
  json += "}";
  for (const ModelTensor& tensor : tensors) {
    json += "," + quoted(tensor.name) + ":{\"dtype\":" + quoted(tensor.dtype) + ",\"shape\":[";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      json += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    }
    json += "],\"data_offsets\":[" + std::to_string(tensor.begin) + "," +
            std::to_string(tensor.begin + tensor.bytes) + "]}";
  }
  return json + "}";
}

std::string digest_text(std::uint64_t digest) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(digest));
  return text;
}

std::uint64_t model_digest(const ModelHeader& header, const std::vector<std::uint64_t>& digests) {
  assert(digests.size() == header.tensors.size() && header.by_name.size() == header.tensors.size());
  std::vector<std::byte> hashed;
  const auto add_number = [&](auto number) {
    hashed.resize(hashed.size() + sizeof number);
    store_le(hashed.data() + hashed.size() - sizeof number, number);
  };
  const auto add_text = [&](const std::string& text) {
    add_number(static_cast<std::uint32_t>(text.size()));
    const auto bytes = std::as_bytes(std::span(text));
    hashed.insert(hashed.end(), bytes.begin(), bytes.end());
  };
  for (const std::uint32_t i : header.by_name) {
    const ModelTensor& tensor = header.tensors[i];
    add_text(tensor.name);
    add_text(tensor.dtype);
    add_number(static_cast<std::uint32_t>(tensor.shape.size()));
    for (const std::uint64_t dim : tensor.shape) add_number(dim);
    add_number(digests[i]);
  }
  return digest64(hashed, 0);
}

Result<std::uint64_t> model_digest(std::vector<ModelTensor> tensors,
                                   const std::vector<std::uint64_t>& digests) {
  ModelHeader header;
  header.tensors = std::move(tensors);
  RETURN_IF_ERROR(index_names(header));
  return model_digest(header, digests);
}

std::uint64_t file_digest(std::string_view header_json, std::uint64_t model_digest) {
  std::vector<std::byte> hashed(kModelLengthBytes + header_json.size() + sizeof model_digest);
  store_le(hashed.data(), std::uint64_t{header_json.size()});
  std::ranges::copy(std::as_bytes(std::span(header_json)), hashed.begin() + kModelLengthBytes);
  store_le(hashed.data() + kModelLengthBytes + header_json.size(), model_digest);
  return digest64(hashed, 0);
}

}  // namespace deltawire
