// What fastsgd tells people: errors about bytes, and what a chunk's bits are spent on.
#pragma once

#include <cstdint>

#include "codecs/fastsgd/fastsgd_ops.h"
#include "deltawire/codec.h"

namespace deltawire::fastsgd {

// The fault of chunk number `chunk` as an error; a Status without one for kNone.
Status fault_status(Fault fault, std::uint64_t chunk);

struct ChunkSections {
  std::uint64_t head = 0;
  std::uint64_t values = 0;
  std::uint64_t keys = 0;
};

// The bits of a chunk that a decoder has accepted.
ChunkSections chunk_sections(const ChunkBytes& chunk) noexcept;

}  // namespace deltawire::fastsgd
