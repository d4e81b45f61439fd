// What the codecs' tests share: encoding into guarded memory, decoding, and test data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/codec.h"

namespace deltawire::testing {

// An encoded part in memory of its own.
struct Encoded {
  std::vector<std::byte> payload;
  std::vector<std::uint32_t> chunk_ends;
  std::uint32_t scalar = 0;

  PartView view() const { return {payload, chunk_ends, scalar}; }
};

// The codec of a spec; fails the test and throws if there is none.
std::unique_ptr<const Codec> codec_of(std::string_view spec);

// Encodes `values` into buffers of exactly the size that sizes() asks for, between guard bytes which must
// stay. `residual` may be empty.
Result<Encoded> encode(const Codec& codec, std::span<const float> values, std::span<float> residual = {});

// Decodes `count` values between guard bytes which must stay; `start` is what the slot holds before.
Result<std::vector<float>> decode(const Codec& codec, const PartView& in, std::uint64_t count,
                                  Into into = Into::kOverwrite, float scale = 1, float start = 0);

// One chunk of bytes as a part.
Encoded one_chunk(std::vector<int> bytes, std::uint32_t scalar);

std::vector<int> to_ints(std::span<const std::byte> bytes);
std::uint32_t bits_of(float value);
bool same_bits(std::span<const float> a, std::span<const float> b);

// Normally distributed values (Box-Muller on a counter-based generator).
std::vector<float> normal_values(std::uint64_t count, std::uint64_t seed);

// `share` of the values are +1 or -1, the others 0.
std::vector<float> sparse_values(std::uint64_t count, double share, std::uint64_t seed);

// All registered codecs' specs that the conformance tests run over.
std::vector<std::string> conformance_specs();

}  // namespace deltawire::testing
