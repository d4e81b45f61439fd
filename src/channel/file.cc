// .dw files: a file header in words before the frames of one channel message.
#include "deltawire/file.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/byte_writer.h"
#include "base/checked.h"
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "deltawire/channel.h"

namespace deltawire {
namespace {

constexpr std::string_view kFileMagic = "DWFILE\r\n";  // \r\n: a text-mode copy breaks it at once
constexpr std::uint16_t kFileVersion = 0;
constexpr std::uint64_t kFixedBytes = 32;
constexpr std::uint64_t kMaxDimensions = 8;
constexpr std::uint64_t kMaxSpecBytes = 1024;
constexpr std::string_view kTensorName = "tensor";  // the one part of a file has a name, for its spec_hash

// The element count. A 0 among the dimensions does not excuse the others, or the order would decide.
Result<std::uint64_t> product(std::span<const std::uint64_t> shape) {
  std::uint64_t count = 1;
  bool empty = false;
  for (const std::uint64_t extent : shape) {
    empty = empty || extent == 0;
    const auto next = checked_mul(count, extent == 0 ? 1 : extent);
    if (!next || *next >= (std::uint64_t{1} << 32)) {
      return fail(ErrorCode::kLimit, "the shape has 2^32 elements or more; split the tensor");
    }
    count = *next;
  }
  return empty ? 0 : count;
}

std::vector<std::byte> header_bytes_of(const FileHeader& header) {
  const std::uint64_t bytes = kFixedBytes + 8 * header.shape.size() + header.codec_spec.size() + 4;
  std::vector<std::byte> out(bytes);
  ByteWriter writer(out.data());
  writer.text(kFileMagic);
  writer.number<std::uint16_t>(kFileVersion);
  writer.number(static_cast<std::uint8_t>(header.dtype));
  writer.number(static_cast<std::uint8_t>(header.shape.size()));
  writer.number(static_cast<std::uint32_t>(bytes));
  writer.number<std::uint64_t>(header.policy.min_elements);
  writer.number(static_cast<std::uint32_t>(header.codec_spec.size()));
  writer.number<std::uint32_t>(0);
  for (const std::uint64_t extent : header.shape) writer.number<std::uint64_t>(extent);
  writer.text(header.codec_spec);
  writer.number<std::uint32_t>(crc32c(Bytes(out).first(bytes - 4)));
  return out;
}

// A file holds one tensor, so it has one codec, and no rules.
Result<std::string> canonical_codec(std::string_view spec) {
  const Result<std::unique_ptr<const Codec>> codec = make_codec(spec);
  if (!codec) return forward_error(codec);
  return (*codec)->spec();
}

Status check_fixed(Bytes file) {
  if (file.size() < kFixedBytes) {
    return fail(ErrorCode::kTruncated,
                "the file has " + std::to_string(file.size()) + " bytes, fewer than a .dw header");
  }
  if (std::memcmp(file.data(), kFileMagic.data(), kFileMagic.size()) != 0) {
    return fail(ErrorCode::kCorrupt, "wrong magic: this is no .dw file");
  }
  const auto version = load_le<std::uint16_t>(file.data() + 8);
  if (version != kFileVersion) {
    return fail(ErrorCode::kUnsupportedVersion, "the file has format " + std::to_string(version) +
                                                    ", newer than this deltawire reads; use a newer one");
  }
  return {};
}

}  // namespace

std::uint64_t FileHeader::count() const noexcept {
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : shape) elements *= extent;
  return elements;
}

Result<std::vector<std::byte>> encode_file(const TensorView& tensor, std::span<const std::uint64_t> shape,
                                           std::string_view codec_spec, const Policy& policy) {
  if (tensor.has_keys()) {
    return fail(ErrorCode::kInvalidArgument, "files hold dense tensors, and this one has keys; expand it");
  }
  const Result<std::uint64_t> count = product(shape);
  if (!count) return forward_error(count);
  if (*count != tensor.count || shape.size() > kMaxDimensions) {
    return fail(ErrorCode::kInvalidArgument,
                "the shape must have " + std::to_string(tensor.count) + " elements in at most 8 dimensions");
  }
  const Result<std::string> canonical = canonical_codec(codec_spec);
  if (!canonical) return forward_error(canonical);
  Result<std::unique_ptr<Channel>> channel =
      make_channel(*canonical, ChannelOptions{policy, Revert::kFold, false});
  if (!channel) return forward_error(channel);
  FileHeader header;
  header.codec_spec = *canonical;
  header.policy = policy;
  header.dtype = tensor.dtype;
  header.shape.assign(shape.begin(), shape.end());
  std::vector<std::byte> out = header_bytes_of(header);
  // encode only reads the values; Named serves both directions.
  const Named part{kTensorName, TensorSlot{const_cast<void*>(tensor.values), tensor.count, tensor.dtype,
                                           nullptr, 0, tensor.significance, shape}};
  const auto pieces = (*channel)->encode(std::span(&part, 1), MessageId{});
  if (!pieces) return forward_error(pieces);
  for (const Bytes piece : *pieces) out.insert(out.end(), piece.begin(), piece.end());
  return out;
}

Result<FileHeader> read_file_header(Bytes file) {
  if (Status fixed = check_fixed(file); !fixed) return forward_error(fixed);
  const std::byte* at = file.data();
  const std::uint64_t dimensions = std::to_integer<std::uint64_t>(at[11]);
  const std::uint64_t bytes = load_le<std::uint32_t>(at + 12);
  const std::uint64_t spec_bytes = load_le<std::uint32_t>(at + 24);
  if (dimensions > kMaxDimensions || spec_bytes > kMaxSpecBytes) {
    return fail(ErrorCode::kLimit, "the file header claims more than 8 dimensions or 1,024 bytes of spec");
  }
  if (bytes != kFixedBytes + 8 * dimensions + spec_bytes + 4) {
    return fail(ErrorCode::kCorrupt, "the file header's length does not match its content");
  }
  if (bytes > file.size()) return fail(ErrorCode::kTruncated, "the file ends within its header");
  if (crc32c(file.first(bytes - 4)) != load_le<std::uint32_t>(at + bytes - 4)) {
    return fail(ErrorCode::kCorrupt, "the file header's checksum is wrong; the file was changed");
  }
  FileHeader header;
  header.dtype = static_cast<DType>(at[10]);
  header.policy.min_elements = load_le<std::uint64_t>(at + 16);
  if (dtype_bytes(header.dtype) == 0 || load_le<std::uint32_t>(at + 28) != 0) {
    return fail(ErrorCode::kCorrupt, "the file header has an unknown dtype or a reserved field that is set");
  }
  for (std::uint64_t i = 0; i < dimensions; ++i) {
    header.shape.push_back(load_le<std::uint64_t>(at + kFixedBytes + 8 * i));
  }
  if (const auto count = product(header.shape); !count) return forward_error(count);
  header.codec_spec.assign(reinterpret_cast<const char*>(at + kFixedBytes + 8 * dimensions), spec_bytes);
  // It goes into messages: bytes that are no printable ASCII end here.
  if (!std::ranges::all_of(header.codec_spec, [](char c) { return c >= 0x20 && c <= 0x7E; })) {
    return fail(ErrorCode::kCorrupt, "the codec spec in the file header is not printable ASCII");
  }
  header.header_bytes = bytes;
  return header;
}

Status decode_file(Bytes file, const TensorSlot& out) {
  const Result<FileHeader> header = read_file_header(file);
  if (!header) return forward_error(header);
  if (out.count != header->count() || out.dtype != header->dtype) {
    return fail(ErrorCode::kMismatch, "the output must have " + std::to_string(header->count()) +
                                          " elements of " + std::string(dtype_name(header->dtype)));
  }
  const Result<std::string> canonical = canonical_codec(header->codec_spec);
  if (!canonical) return forward_error(canonical);
  if (*canonical != header->codec_spec) {
    return fail(ErrorCode::kCorrupt, "the file names its codec as '" + header->codec_spec +
                                         "', which is not the canonical form '" + *canonical +
                                         "'; encode it again");
  }
  Result<std::unique_ptr<Channel>> channel =
      make_channel(*canonical, ChannelOptions{header->policy, Revert::kFold, false});
  if (!channel) return forward_error(channel);
  Named part{kTensorName, out};
  part.tensor.dims = header->shape;
  return (*channel)->decode(file.subspan(header->header_bytes), std::span(&part, 1), MessageId{},
                            Into::kOverwrite, 1.0F);
}

}  // namespace deltawire
