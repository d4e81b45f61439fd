// One chunk of gcomp: head, table, index of blocks, blocks. spec.md, sections 1 to 4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "codecs/gcomp/gcomp_table.h"
#include "codecs/kernels/chunk_bytes.h"
#include "deltawire/codec.h"

namespace deltawire::gcomp {

// The most that a chunk of `count` elements may take, and the scratch memory that encoding needs.
std::uint64_t chunk_bound(std::uint64_t count) noexcept;
std::uint64_t scratch_bound(std::uint64_t count) noexcept;

// Where a chunk goes.
struct ChunkPlace {
  std::byte* at = nullptr;       // chunk_bound() bytes
  std::uint32_t* sum = nullptr;  // its checksum, by parts while they are in the cache; null: not wanted
};

// Encodes a chunk; returns the bytes written.
std::uint32_t encode_chunk(const Kernels& kernels, const Values& chunk, const ChunkPlace& out,
                           const Exec& exec);

// Decodes a chunk into target.count values. On a fault the slot's content is unspecified.
Fault decode_chunk(const Kernels& kernels, const ChunkBytes& chunk, const Target& target, Workers* workers);

// The sections of a chunk that decode_chunk has accepted for `count` elements.
void describe_chunk(const ChunkBytes& chunk, std::uint32_t count, std::vector<Section>& sections);

}  // namespace deltawire::gcomp
