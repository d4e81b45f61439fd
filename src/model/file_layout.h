// Where the parts of a safetensors file are, for readers of files and of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "deltawire/safetensors.h"

namespace deltawire::model {

inline constexpr std::uint64_t kDataAlignment = 8;  // as the safetensors library writes it

// `bytes`, and as many more as the header is filled up with.
constexpr std::uint64_t aligned(std::uint64_t bytes) noexcept {
  return (bytes + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
}

// Bytes of the header, by a file's first bytes, of which there are as many as it has, up to 8. Errors,
// without the file's name: kTruncated, kLimit.
Result<std::uint64_t> header_length(std::span<const std::byte> first, std::uint64_t file_bytes);

// Whether the data that `header` describes end where the file does. Errors: kTruncated, kCorrupt.
Status check_file_bytes(std::uint64_t file_bytes, std::uint64_t header_bytes, const ModelHeader& header);

}  // namespace deltawire::model
