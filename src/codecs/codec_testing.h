// What the codecs' tests share: encoding into guarded memory, decoding, and test data.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/codec.h"

namespace deltawire::testing {

using Floats = std::vector<float>;
using Ints = std::vector<int>;

inline constexpr float kMax = std::numeric_limits<float>::max();
inline constexpr float kTiniest = std::numeric_limits<float>::denorm_min();
inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// An encoded part in memory of its own.
struct Encoded {
  std::vector<std::byte> payload;
  std::vector<std::uint32_t> chunk_ends;
  std::uint32_t scalar = 0;
  std::uint32_t scalar2 = 0;

  PartView view() const { return {payload, chunk_ends, scalar, scalar2}; }
};

// The codec of a spec; fails the test and throws if there is none.
std::unique_ptr<const Codec> codec_of(std::string_view spec);

// Encodes `values` into buffers of exactly the size that sizes() asks for, between guard bytes which must
// stay. `residual` may be empty.
Result<Encoded> encode(const Codec& codec, std::span<const float> values, std::span<float> residual = {});
Result<Encoded> encode_view(const Codec& codec, const TensorView& part, std::span<float> residual = {},
                            std::uint64_t stream = 3);

// The same of a spec, whose codec must take the values; the bytes alone; and what they are decoded to.
Encoded coded(std::string_view spec, const Floats& values, std::uint64_t stream = 3);
Ints bytes_of(std::string_view spec, const Floats& values);
Floats round_trip(std::string_view spec, const Floats& values, std::uint64_t stream = 3);

// Decodes `count` values between guard bytes which must stay; `start` is what the slot holds before.
Result<std::vector<float>> decode(const Codec& codec, const PartView& in, std::uint64_t count,
                                  Into into = Into::kOverwrite, float scale = 1, float start = 0);

// What decoding `part` gives, kAccepted or its error's code; fails the test where accumulating or describing
// judge differently.
inline constexpr ErrorCode kAccepted{};
ErrorCode verdict_of(std::string_view spec, const Encoded& part, std::uint64_t count);

// One chunk of bytes as a part.
Encoded one_chunk(std::vector<int> bytes, std::uint32_t scalar);

std::vector<int> to_ints(std::span<const std::byte> bytes);
std::uint32_t bits_of(float value);
bool same_bits(std::span<const float> a, std::span<const float> b);

// Normally distributed values (Box-Muller on a counter-based generator).
std::vector<float> normal_values(std::uint64_t count, std::uint64_t seed);

// `share` of the values are +1 or -1, the others 0.
std::vector<float> sparse_values(std::uint64_t count, double share, std::uint64_t seed);
double largest_magnitude(std::span<const float> values);  // 0 of no values

// The sum of magnitudes in the order that onebit's and signsgd's spec.md state, once more: the lanes one
// after another.
double sum_by_lanes(std::span<const float> values);

// For models of codecs: bits one by one, from the lowest of a byte on.
class BitStream {
 public:
  void put(std::uint64_t number, int bits) {
    for (int i = 0; i < bits; ++i) bits_.push_back((number >> i & 1) != 0);
  }
  void append_to(std::vector<std::byte>& bytes) const {
    for (std::size_t i = 0; i < bits_.size(); ++i) {
      if (i % 8 == 0) bytes.push_back(std::byte{0});
      if (bits_[i]) bytes.back() |= std::byte{1} << (i % 8);
    }
  }

 private:
  std::vector<bool> bits_;
};

// One value of an encoded part, as the expectations below see it.
struct EncodedValue {
  const Codec& codec;
  const Encoded& part;
  std::span<const float> values;  // the whole input; without a residual before it
  std::uint64_t i = 0;            // the element in question
  double largest = 0;             // the largest magnitude of all values

  double x() const { return values[i]; }
  double scalar() const { return std::bit_cast<float>(part.scalar); }
};

// What a codec promises beyond its CodecInfo. Its tests say so once, at namespace scope:
//   const testing::Expects kExpects{{.codec = "int8", ...}};
struct Expectation {
  std::string_view codec;  // its name; or one of its specs, where that one promises something else
  // The farthest that decoded[i] may lie from x.
  double (*error_bound)(const EncodedValue&) = nullptr;
  // The farthest that decoded[i] + residual[i] may lie from x, both added in double; null: nothing is lost.
  double (*conservation_bound)(const EncodedValue&) = nullptr;
  // The signs to which 2^-133, -2^-133, -0 and +0, in one part of these four, are decoded.
  std::array<int, 4> tiny_signs = {1, -1, 0, 0};
  bool draws = false;        // whether the bytes depend on Exec::stream
  bool skips_zeros = false;  // whether decoding leaves a slot as it is, or +0, where it has nothing to say
  // Specs at the limits, which the tests of conformance and of hostile bytes run over besides CodecInfo's
  // examples.
  std::vector<std::string> limits = {};
  // Parameters, "clip=0.99" for instance, that make no codec of this name.
  std::vector<std::string> refused = {};
};

struct Expects {
  explicit Expects(Expectation expectation);
};

// That of a spec, or else of its codec; throws if tests state neither.
const Expectation& expectation_of(std::string_view spec);

// The bare names of all codecs and their examples, in the order of the ids.
inline std::vector<std::string> every_spec() {
  std::vector<std::string> specs;
  for (const CodecInfo* info : registered_codecs()) {
    specs.emplace_back(info->name);
    specs.insert(specs.end(), info->examples.begin(), info->examples.end());
  }
  return specs;
}

// These and the limits.
std::vector<std::string> conformance_specs();

// A spec as part of a test's name.
std::string test_name(std::string_view spec);

}  // namespace deltawire::testing
