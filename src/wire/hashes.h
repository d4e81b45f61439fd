// The two hashes by which sender and receiver know that they mean the same thing (docs/format.md, "Hashes").
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "deltawire/policy.h"
#include "deltawire/tensor.h"

namespace deltawire {

// XXH64 (seed 0) of the text "<canonical codec spec>;min=<min_elements>", with ";nonfinite=pass" after it
// where non-finite steps pass.
std::uint64_t params_hash(std::string_view canonical_codec_spec, const Policy& policy);

// XXH64 (seed 0) over the parts in order, each as: u32 length of the name, the name's bytes, u64 first,
// u64 count, u8 dtype; then, unless it is 1, the scale's fp32 bits as u32; numbers little-endian.
std::uint64_t spec_hash(std::span<const Named> parts, float scale = 1.0F);

// The power of two with which the parts have this hash, if there is one: to name the scale of a sender who
// has another one.
std::optional<float> scale_of_hash(std::span<const Named> parts, std::uint64_t hash);

// XXH64 of bytes; the digest by which replicas are compared.
std::uint64_t digest64(Bytes bytes, std::uint64_t seed) noexcept;

}  // namespace deltawire
