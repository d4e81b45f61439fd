// One chunk of gcomp: head, table, index of blocks, blocks (spec.md, sections 1 to 4). Written and read block
// by block with a target's kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codecs/gcomp/gcomp_ops.h"
#include "codecs/kernels/chunk_bytes.h"
#include "deltawire/codec.h"

namespace deltawire::gcomp {

// The most that a chunk of `count` elements may take.
std::uint64_t chunk_bound(std::uint64_t count) noexcept;

// The scratch memory that encoding a part of `count` elements needs, and where that of halves_bound(), or of
// encode_chunk()'s `room`, begins behind it.
std::uint64_t scratch_bound(std::uint64_t count) noexcept;
float* room_place(const Exec& exec, std::uint64_t count) noexcept;

// The scratch memory for the values of a chunk as 16 bits hold them and, where there is a residual, for what
// is left of these; behind scratch_bound().
std::uint64_t halves_bound(std::uint64_t count) noexcept;

// Where a chunk goes.
struct ChunkPlace {
  std::byte* at = nullptr;       // chunk_bound() bytes
  std::uint32_t* sum = nullptr;  // its checksum, by parts while they are in the cache; null: not wanted
};

// Encodes a chunk, whose values have the rule's precision; returns the bytes written. `room`: for
// by_low_zeros(), or null where that isn't for this chunk.
std::uint32_t encode_chunk(const Kernels& kernels, const Values& given, const ChunkPlace& out,
                           const Exec& exec, float* room);

// As encode_chunk, for values of any precision. `halves`: of halves_bound().
std::uint32_t encode_halved(const Kernels& kernels, const Values& chunk, const ChunkPlace& out,
                            const Exec& exec, float* halves);

// halves[i] = in + residual as the chunk's precision of 16 bits holds it: the nearest, ties to even; of what
// is beyond the largest finite number, that.
void round_to_halves(const Values& chunk, float* halves) noexcept;

// The residual = in + residual - halves + left, where `left` is what coding the halves left. 0 for NaN and
// Inf.
void keep_left_over(const Values& chunk, const float* halves, const float* left) noexcept;

// Decodes a chunk into target.count values, on all threads that there are. On a fault the slot's content is
// unspecified.
Fault decode_chunk(const Kernels& kernels, const ChunkBytes& chunk, const Target& target, Workers* workers);

// The sections of a chunk that decode_chunk has accepted for `count` elements.
void describe_chunk(const ChunkBytes& chunk, std::uint32_t count, std::vector<Section>& sections);

}  // namespace deltawire::gcomp
