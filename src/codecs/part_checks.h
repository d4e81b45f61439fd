// Chunks: the checks of their index, the sizes of codecs with a fixed number of bytes for each element.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <span>
#include <string_view>

#include "codecs/kernels/chunk_bytes.h"
#include "deltawire/codec.h"

namespace deltawire {

// Checks a chunk index alone: ends that grow strictly and of which the last is the payload's length.
// kTruncated if the payload is shorter than its last end, kCorrupt for everything else.
Status check_chunk_ends(const PartView& in);

// Checks the chunk index of a part of `count` elements: ceil(count / chunk_elements) ends that grow strictly
// and of which the last is the payload's length. kTruncated if the payload is shorter than its last end,
// kCorrupt for everything else.
Status check_chunks(const PartView& in, std::uint64_t count, std::uint64_t chunk_elements);

// Checks the chunk ends of a codec that codes each element in `element_bytes` bytes, after check_chunks.
Status check_fixed_ends(const PartView& in, std::uint64_t count, std::uint64_t chunk_elements,
                        std::uint64_t element_bytes);

// Where the new residual goes, with the old one in it: for kernels that work in place. Null: none.
float* residual_in_place(const PartSource& part) noexcept;

// A number of chunks as Sizes has it: what 32 bits can't hold is their largest, and refused for its bytes.
std::uint32_t chunks_or_max(std::uint64_t chunks) noexcept;

// Sizes of a part coded at `element_bytes` a value. A count beyond what 64 bits can carry gives UINT64_MAX.
Sizes fixed_sizes(std::uint64_t count, std::uint64_t chunk_elements, std::uint64_t element_bytes) noexcept;

// Writes the chunk ends of such a part and returns what encode has to.
EncodedPart write_fixed_ends(std::uint64_t count, std::uint64_t chunk_elements, std::uint64_t element_bytes,
                             std::span<std::uint32_t> chunk_ends) noexcept;

// kCorrupt unless a scalar is the bits of a finite float32 >= 0; `what` names it: "the scale".
Status check_scalar(std::string_view codec, std::string_view what, std::uint32_t bits);

// The error of one chunk, "<codec> chunk <number>: <text>".
tl::unexpected<Error> chunk_error(std::string_view codec, ErrorCode code, std::uint64_t chunk,
                                  std::string_view text);

// The fault that a kernel found in a chunk as an error; a Status without one for none.
Status fault_status(std::string_view codec, std::uint64_t chunk, Fault fault);

// Of a part whose chunk index has been checked.
inline ChunkBytes chunk_of(const PartView& in, std::size_t chunk) noexcept {
  assert(chunk < in.chunk_ends.size());
  const std::uint32_t begin = chunk == 0 ? 0 : in.chunk_ends[chunk - 1];
  assert(begin < in.chunk_ends[chunk] && in.chunk_ends[chunk] <= in.payload.size());
  return {in.payload.data() + begin, in.chunk_ends[chunk] - begin};
}

// The elements of chunk number `chunk` of a part of `count`.
inline std::uint32_t elements_of_chunk(std::uint64_t count, std::uint64_t chunk,
                                       std::uint64_t chunk_elements) noexcept {
  assert(chunk * chunk_elements <= count);
  return static_cast<std::uint32_t>(std::min(count - chunk * chunk_elements, chunk_elements));
}

// Adds `bits` to the section `name`, which must live as long as the program; 0 bits add nothing.
void add_section(std::vector<Section>& sections, std::string_view name, std::uint64_t bits);

}  // namespace deltawire
