// The codecs that give the bytes of values to a general compressor: all but the compressor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "codecs/kernels/chunk_bytes.h"
#include "codecs/spec_string.h"
#include "deltawire/codec.h"

namespace deltawire::planes {

inline constexpr std::uint64_t kChunkElements = 65536;
inline constexpr std::uint64_t kChunkValueBytes = kChunkElements * sizeof(float);

// What is wrong with a chunk that a decoder refuses.
namespace faults {

using deltawire::faults::kTruncated;
inline constexpr ChunkFault kMode = {"the first byte is of no known mode"};
inline constexpr ChunkFault kLength = {"more bytes than its values have"};  // compressed ones: or as many
inline constexpr ChunkFault kHeader = {"the compressed stream has no valid header"};
inline constexpr ChunkFault kSize = {"the compressed stream holds another number of bytes"};
inline constexpr ChunkFault kStream = {"the compressed stream is damaged"};  // so the library says
inline constexpr ChunkFault kTrailing = {"bytes follow the compressed stream"};

}  // namespace faults

// A general compressor, and what the registry says of the codec that it makes. Its functions take their
// memory from `scratch`, aligned to kScratchAlignment.
struct Compressor {
  CodecInfo info;
  std::span<const std::string_view> levels;  // from 1 on
  int default_level = 1;

  // Bytes of scratch for a chunk of at most kChunkValueBytes.
  std::uint64_t (*compress_scratch)(int level) noexcept = nullptr;
  std::uint64_t (*decompress_scratch)() noexcept = nullptr;

  // Writes all of `in` compressed and returns the bytes written; 0 where there is no room for them.
  std::uint64_t (*compress)(int level, Bytes in, MutBytes out, MutBytes scratch) noexcept = nullptr;

  // Fills `out` with what all of `in` is decompressed to. None where it is one stream of so many bytes.
  Fault (*decompress)(Bytes in, MutBytes out, MutBytes scratch) noexcept = nullptr;
};

inline constexpr ParameterInfo kPlanesParameter = {"planes", "on or off", "on",
                                                   "on: bytes of equal significance lie together"};

// A chunk is a byte that names its mode, and behind it the bytes of its values as they are,
// or compressed where that is shorter. Reads `level` and `planes`. Errors: kInvalidArgument.
Result<std::unique_ptr<const Codec>> make_plane_codec(const Compressor& compressor, const ParsedSpec& spec);

}  // namespace deltawire::planes
