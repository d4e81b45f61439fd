#include "model/file_layout.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "base/little_endian.h"

namespace deltawire {
namespace model {

namespace {

tl::unexpected<Error> incomplete(std::uint64_t bytes, std::uint64_t wanted) {
  return truncated("the file has " + std::to_string(bytes) + " of " + std::to_string(wanted) +
                   " bytes: get it again");
}

// What a file is that has these bytes where safetensors has the length of a header, which is beyond all
// limits.
std::string no_safetensors(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("PK\x03\x04")) {
    return "is no safetensors file, but a zip archive, as torch.save writes: load it and save its tensors "
           "with "
           "safetensors.torch.save_file";
  }
  if (std::ranges::all_of(text,
                          [](unsigned char c) { return std::isprint(c) != 0 || std::isspace(c) != 0; })) {
    return std::string("is no safetensors file, but ") +
           (text.starts_with('{')
                ? "JSON: if it is a model's index, give the files that it names, one at a time"
                : "text");
  }
  return "is no safetensors file, or has a header of " +
         std::to_string(load_le<std::uint64_t>(bytes.data())) + " bytes; at most " +
         std::to_string(kMostModelHeaderBytes) + " are possible";
}

}  // namespace

Result<std::uint64_t> header_length(std::span<const std::byte> first, std::uint64_t file_bytes) {
  if (first.size() < kModelLengthBytes) {
    return truncated("is no safetensors file: it has " + std::to_string(first.size()) + " of " +
                     std::to_string(kModelLengthBytes) + " bytes before the header");
  }
  const auto length = load_le<std::uint64_t>(first.data());
  if (length > kMostModelHeaderBytes)
    return fail(ErrorCode::kLimit, no_safetensors(first.first(kModelLengthBytes)));
  if (length > file_bytes - kModelLengthBytes) return incomplete(file_bytes, kModelLengthBytes + length);
  return length;
}

Status check_file_bytes(std::uint64_t file_bytes, std::uint64_t header_bytes, const ModelHeader& header) {
  const std::uint64_t front = kModelLengthBytes + header_bytes;
  const std::uint64_t data_bytes = file_bytes - front;
  if (data_bytes < header.data_bytes) return incomplete(file_bytes, front + header.data_bytes);
  if (data_bytes == header.data_bytes) return {};
  return corrupt(std::to_string(data_bytes - header.data_bytes) +
                 " bytes follow the last tensor: get the file again");
}

}  // namespace model

Result<ModelView> read_model(Bytes file) {
  ASSIGN_OR_RETURN(
      const auto length,
      model::header_length(file.first(std::min<std::size_t>(file.size(), kModelLengthBytes)), file.size()));
  const Bytes json = file.subspan(kModelLengthBytes, length);
  ASSIGN_OR_RETURN(auto header, read_model_header({reinterpret_cast<const char*>(json.data()), json.size()}));
  RETURN_IF_ERROR(model::check_file_bytes(file.size(), length, header));
  return ModelView{std::move(header), file.subspan(kModelLengthBytes + length)};
}

std::string model_front(std::vector<ModelTensor> tensors, const ModelMetadata& metadata) {
  std::uint64_t end = 0;
  for (ModelTensor& tensor : tensors) {
    tensor.begin = end;
    end += tensor.bytes;
  }
  const std::string json = write_model_header(tensors, metadata);
  const std::uint64_t room = model::aligned(json.size());
  std::string front(kModelLengthBytes, '\0');
  store_le(std::as_writable_bytes(std::span(front)).data(), room);
  front += json;
  front.resize(kModelLengthBytes + room, ' ');
  return front;
}

}  // namespace deltawire
