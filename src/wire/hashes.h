// The two hashes by which sender and receiver know that they mean the same thing (docs/reference/format.md,
// "Hashes").
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "deltawire/policy.h"
#include "deltawire/tensor.h"

namespace deltawire {

// XXH64 (seed 0) of the text "<canonical codec spec or rules>;min=<min_elements>", with ";nonfinite=pass"
// after it where non-finite steps pass. Frames carry its lowest 32 bits.
std::uint64_t params_hash(std::string_view canonical_codec_spec, const Policy& policy);

// The lowest 32 bits of XXH64 (seed 0) over the parts in order, each as: u32 length of the name, the name's
// bytes, u64 first, u64 count, u8 dtype, u64 elements and u8 dims of the whole tensor, the part's own dims,
// u64 each (one, its count, where none are given); numbers little-endian.
std::uint32_t layout_hash(std::span<const Named> parts);

// XXH64 (seed 0) of the part's name, if it does not bring it along.
std::uint64_t name_hash(const Named& part) noexcept;

// XXH64 of bytes; the digest by which replicas are compared.
std::uint64_t digest64(Bytes bytes, std::uint64_t seed) noexcept;

// XXH3 (64 bits) of bytes, twice as fast: for what builds of one version compare within a step, and nobody
// keeps.
std::uint64_t fast_digest64(Bytes bytes, std::uint64_t seed) noexcept;

}  // namespace deltawire
