// The head of .dw files: in words, before the frames.
#include "channel/file_header.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>

#include "base/byte_writer.h"
#include "base/checked.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "base/format_version.h"
#include "base/little_endian.h"

namespace deltawire {
namespace {

constexpr std::string_view kFileMagic = "DWFILE\r\n";  // \r\n: a text-mode copy breaks it at once
constexpr std::uint16_t kFileVersion = 1;
constexpr std::uint64_t kFixedBytes = 32;
constexpr std::uint64_t kMaxSpecBytes = 1024;

}  // namespace

// A 0 among the dimensions does not excuse the others, or the order would decide.
Result<std::uint64_t> file_elements(std::span<const std::uint64_t> shape) {
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

std::vector<std::byte> file_header_bytes(const FileHeader& header) {
  const std::uint64_t bytes = kFixedBytes + 8 * header.shape.size() + header.codec_spec.size() + 4;
  assert(header.shape.size() <= kMaxFileDimensions && header.codec_spec.size() <= kMaxSpecBytes);
  std::vector<std::byte> out(bytes);
  ByteWriter writer(out);
  writer.text(kFileMagic);
  writer.number<std::uint16_t>(kFileVersion);
  writer.number(static_cast<std::uint8_t>(header.dtype));
  writer.number(static_cast<std::uint8_t>(header.shape.size()));
  writer.number(static_cast<std::uint32_t>(bytes));
  writer.number<std::uint64_t>(header.policy.min_elements);
  writer.number(static_cast<std::uint32_t>(header.codec_spec.size()));
  writer.number(static_cast<std::uint32_t>(header.part_elements));
  for (const std::uint64_t extent : header.shape) writer.number<std::uint64_t>(extent);
  writer.text(header.codec_spec);
  writer.number<std::uint32_t>(crc32c(Bytes(out).first(bytes - 4)));
  return out;
}

namespace {

Status check_fixed(Bytes file) {
  if (file.size() < kFixedBytes) {
    return truncated("the file has " + std::to_string(file.size()) + " bytes, fewer than a .dw header");
  }
  if (std::memcmp(file.data(), kFileMagic.data(), kFileMagic.size()) != 0) {
    return corrupt("wrong magic: this is no .dw file");
  }
  return check_format_version("the file", load_le<std::uint16_t>(file.data() + 8), kFileVersion);
}

}  // namespace

std::uint64_t FileHeader::count() const noexcept {
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : shape) elements *= extent;
  return elements;
}

Result<FileHeader> read_file_header(Bytes file) {
  RETURN_IF_ERROR(check_fixed(file));
  const std::byte* at = file.data();
  const std::uint64_t dimensions = std::to_integer<std::uint64_t>(at[11]);
  const std::uint64_t bytes = load_le<std::uint32_t>(at + 12);
  const std::uint64_t spec_bytes = load_le<std::uint32_t>(at + 24);
  if (dimensions > kMaxFileDimensions || spec_bytes > kMaxSpecBytes) {
    return fail(ErrorCode::kLimit, "the file header claims more than 8 dimensions or 1,024 bytes of spec");
  }
  if (bytes != kFixedBytes + 8 * dimensions + spec_bytes + 4) {
    return corrupt("the file header's length does not match its content");
  }
  if (bytes > file.size()) return truncated("the file ends within its header");
  if (crc32c(file.first(bytes - 4)) != load_le<std::uint32_t>(at + bytes - 4)) {
    return corrupt("the file header's checksum is wrong; the file was changed");
  }
  FileHeader header;
  header.dtype = static_cast<DType>(at[10]);
  header.policy.min_elements = load_le<std::uint64_t>(at + 16);
  header.part_elements = load_le<std::uint32_t>(at + 28);
  if (dtype_bytes(header.dtype) == 0) {
    return corrupt("the file header has an unknown dtype");
  }
  for (std::uint64_t i = 0; i < dimensions; ++i) {
    header.shape.push_back(load_le<std::uint64_t>(at + kFixedBytes + 8 * i));
  }
  ASSIGN_OR_RETURN(const auto count, file_elements(header.shape));
  if (header.part_elements >= std::max<std::uint64_t>(count, 1)) {
    return corrupt("the file header cuts " + std::to_string(count) + " elements into parts of " +
                   std::to_string(header.part_elements));
  }
  header.codec_spec.assign(reinterpret_cast<const char*>(at + kFixedBytes + 8 * dimensions), spec_bytes);
  // It goes into messages: bytes that are no printable ASCII end here.
  if (!std::ranges::all_of(header.codec_spec, [](char c) { return c >= 0x20 && c <= 0x7E; })) {
    return corrupt("the codec spec in the file header is not printable ASCII");
  }
  header.header_bytes = bytes;
  return header;
}

Result<FileHeader> read_file_header(const ReadBytes& read) {
  constexpr std::uint64_t kMostBytes = kFixedBytes + 8 * kMaxFileDimensions + kMaxSpecBytes + 4;
  std::vector<std::byte> bytes(kFixedBytes);
  Result<std::size_t> got = read(bytes);
  if (!got) return forward_error(got);
  if (*got == kFixedBytes) {
    const std::uint64_t stated = load_le<std::uint32_t>(bytes.data() + 12);
    bytes.resize(std::clamp(stated, kFixedBytes, kMostBytes));
    got = read(MutBytes(bytes).subspan(kFixedBytes));
    if (!got) return forward_error(got);
    *got += kFixedBytes;
  }
  return read_file_header(Bytes(bytes).first(*got));
}

}  // namespace deltawire
