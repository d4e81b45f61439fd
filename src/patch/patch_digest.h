// The digest of a tensor: of its chunks' digests, so that threads can share the work, and so that who keeps
// them need not read again what hasn't changed.
#pragma once

#include <cstdint>
#include <vector>

#include "base/little_endian.h"
#include "deltawire/tensor.h"
#include "wire/hashes.h"

namespace deltawire::patch {

inline std::uint64_t chunk_digest(Bytes chunk) noexcept {
  return digest64(chunk, 0);
}

// Of all chunks' digests in order, as little-endian bytes.
inline std::uint64_t root_digest(std::vector<std::uint64_t> digests) noexcept {
  for (std::uint64_t& digest : digests) digest = to_little_endian(digest);
  return digest64(std::as_bytes(std::span(digests)), 0);
}

}  // namespace deltawire::patch
