// Chunks whose keys are coded as the sparse codecs code positions (spec.md, section 3.1): keys=auto, which is
// not the paper's.
#pragma once

#include <cstdint>
#include <vector>

#include "codecs/fastsgd/fastsgd_faults.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/sparse/sparse_ops.h"
#include "deltawire/codec.h"

namespace deltawire::fastsgd {

// By which kernels such chunks are coded.
struct PositionKeys {
  const Kernels& kernels;
  const sparse::Kernels& positions;
};

// Bytes that the chunks of up to `pairs` pairs can take in addition to their values; more than there can be
// where such a part has no form. REQUIRES: pairs <= elements, elements > 0.
std::uint64_t position_bytes_bound(std::uint64_t pairs, std::uint64_t elements) noexcept;

// Writes a chunk; returns its bytes. REQUIRES: the room that position_bytes_bound() and the values ask for.
std::uint32_t write_position_chunk(const PositionKeys& form, const ChunkPairs& chunk, MutBytes out);

// What can be said of a chunk without a look at its keys.
struct PositionChunk {
  Head head;  // its pairs, base and code bits
  ChunkBytes positions;
  BitWindow values;
};
Fault read_position_chunk(const ChunkBytes& chunk, bool is_first, bool is_last, PositionChunk& read) noexcept;

// Decodes all chunks of a part, whose heads have been looked at.
Status decode_position_chunks(const PositionKeys& form, const PartView& in, const DecodeRules& rules,
                              DecodeTarget& target);

// The bits of a chunk that a decoder has accepted.
ChunkSections position_sections(const PositionKeys& form, const ChunkBytes& chunk);

}  // namespace deltawire::fastsgd
