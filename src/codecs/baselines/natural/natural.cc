// natural: every value rounded by chance to a power of two, without bias: sign and exponent, 9 bits. spec.md
// in this folder defines the bytes.
#include <algorithm>
#include <cmath>

#include "base/bit_functions.h"
#include "base/errors.h"
#include "codecs/fixed_codec.h"
#include "codecs/kernels/addends.h"
#include "codecs/kernels/draws.h"
#include "codecs/kernels/element_bits.h"
#include "codecs/registration.h"
#include "codecs/two_passes.h"

namespace deltawire::natural {

namespace {

constexpr unsigned kMantissaBits = 23;
constexpr std::uint32_t kLargestExponent = 254;     // of 2^127
constexpr std::uint32_t kLargestBits = 0x7F000000;  // 2^127: what is above may be rounded up to Inf

constexpr CodecInfo kInfo = {
    .id = 12,
    .name = "natural",
    .summary = "powers of two, rounded by chance without bias: 9 bits a value",
    .source =
        "Horvath, Ho, Horvath, Sahu, Canini, Richtarik: Natural Compression for Distributed Deep Learning "
        "(MSML 2022; arXiv 2019), C_nat",
    .default_pattern = "direct",
    .finite_only = true,
    .chunk_elements = kFixedChunkElements,
};

// Bits of a magnitude are its exponent and, below, how far it lies on the way to the next power of two, in
// units of 2^-23 of that way. So a draw of 23 bits that is added carries into the exponent with exactly the
// chance that makes the mean right. Below 2^-126, where the way begins at 0, that is so, too.
std::uint32_t exponent_of(std::uint32_t magnitude, std::uint32_t draw) noexcept {
  return (magnitude + (draw >> (32 - kMantissaBits))) >> kMantissaBits;
}

float value_of(std::uint32_t exponent, bool negative) noexcept {
  return bit_cast<float>(exponent << kMantissaBits | (negative ? kSignBit : 0));
}

float value_at(const std::byte* chunk, std::uint64_t count, std::uint64_t i) noexcept {
  return value_of(static_cast<std::uint32_t>(chunk[i]), sign_bit(chunk + count, i));
}

// chunk = x, each rounded to a power of two by its draw; left, where that is wanted, = what that leaves.
// REQUIRES: no |x| is above 2^127. Inlined, its loop would test for x.left at each element, and take twice
// the time.
[[gnu::noinline]] void encode_chunk(const Addends& x, const Draws& draws, std::byte* chunk) {
  for (std::uint64_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    const std::uint32_t exponent = exponent_of(magnitude_bits(sum), draw_at(draws, i));
    const bool negative = sum < 0 && exponent != 0;
    chunk[i] = static_cast<std::byte>(exponent);
    put_sign_bit(chunk + x.count, i, negative);
    if (x.left != nullptr) x.left[i] = sum - value_of(exponent, negative);
  }
}

// The first element that no encoder writes, or `count`.
std::uint64_t find_bad_code(const std::byte* chunk, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto exponent = static_cast<std::uint32_t>(chunk[i]);
    if (exponent > kLargestExponent || (exponent == 0 && sign_bit(chunk + count, i))) return i;
  }
  return count;
}

// slot = scale * value; accumulating slot = slot + scale * value, two roundings, and a value of 0 leaves the
// slot as it is.
void decode_chunk(const std::byte* chunk, std::uint64_t count, const PartTarget& out, float* slot) {
  const float scale = out.scale;
  if (!out.accumulate) {
    for (std::uint64_t i = 0; i < count; ++i) slot[i] = scale * value_at(chunk, count, i);
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    if (chunk[i] != std::byte{0}) slot[i] += scale * value_at(chunk, count, i);
  }
}

class Natural final : public FixedCodec {
 public:
  explicit Natural(TargetId target) noexcept
      : FixedCodec(kInfo, Field{"exponents", 8}, Field{"signs", 1}), addends_(addends::kernels_for(target)) {}

  // By the paper's theorem 1, of its second moment: 9/8.
  double gain() const noexcept override { return std::sqrt(9.0 / 8); }

 private:
  Result<Scalars> encode_codes(const PartSource& part, const Exec& exec, std::byte* payload) const override {
    const auto [first, second] = two_passes(part);
    const std::uint32_t largest = addends_.add_up(first);
    if (largest >= kInfinityBits) return not_finite();
    if (largest > kLargestBits) {
      return fail(ErrorCode::kRange,
                  "natural: a value is beyond 2^127, above which float32 has no power of two to round up to: "
                  "scale the tensor down");
    }
    const CounterRng random(exec.stream);
    for (std::uint64_t at = 0; at < part.count; at += kFixedChunkElements) {
      const std::uint64_t count = std::min(part.count - at, kFixedChunkElements);
      encode_chunk(some_of(second, at, count), {random, at}, payload + bytes_of(at));
    }
    return Scalars{};
  }

  Status check_codes(const PartView& in, std::uint64_t count) const override {
    for (std::uint64_t at = 0; at < count; at += kFixedChunkElements) {
      const std::uint64_t elements = std::min(count - at, kFixedChunkElements);
      const std::byte* const chunk = in.payload.data() + bytes_of(at);
      const std::uint64_t bad = find_bad_code(chunk, elements);
      if (bad == elements) continue;
      return corrupt("natural: element " + std::to_string(at + bad) +
                     (chunk[bad] == std::byte{0} ? " is a negative 0" : " has the exponent 255"));
    }
    return check_padding(in, count);
  }

  Status decode_codes(const PartView& in, const PartTarget& out) const override {
    RETURN_IF_ERROR(check_codes(in, out.count));
    for (std::uint64_t at = 0; at < out.count; at += kFixedChunkElements) {
      const std::uint64_t count = std::min(out.count - at, kFixedChunkElements);
      decode_chunk(in.payload.data() + bytes_of(at), count, out, out.slot + at);
    }
    return {};
  }

  const addends::Kernels& addends_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec&, TargetId target) {
  return std::make_unique<const Natural>(target);
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make, own_kernels<addends::kernels_for>};

}  // namespace deltawire::natural
