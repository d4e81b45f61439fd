// truncate: the upper bits of each value, as many of all. spec.md in this folder defines the bytes.
#include <cstring>
#include <string>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "codecs/fixed_codec.h"
#include "codecs/registration.h"

namespace deltawire::truncate {

namespace {

constexpr unsigned kFewestBits = 10;  // sign, exponent, and a bit by which NaN differs from Inf
constexpr unsigned kMostBits = 31;

constexpr std::string_view kBits[] = {"10", "11", "12", "13", "14", "15", "16", "17", "18", "19", "20",
                                      "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31"};
static_assert(std::size(kBits) == kMostBits - kFewestBits + 1);
constexpr unsigned kDefaultBits = 14;

constexpr ParameterInfo kParameters[] = {
    {"bits", "10 to 31", "14",
     "kept of each float32: the sign, 8 of exponent, and the upper of the mantissa"},
};

constexpr std::string_view kExamples[] = {"truncate:bits=18", "truncate:bits=29"};

constexpr CodecInfo kInfo = {
    .id = 20,
    .name = "truncate",
    .summary = "mantissas of one length, the rest cut off: the baseline of gcomp's paper",
    .source =
        "Li et al.: Near-Lossless Gradient Compression (SoCC 2024), sections 7.4 and 7.6 (Single-Quant)",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "direct",
    .chunk_elements = kFixedChunkElements,
};

// One NaN for all: which one a machine makes of Inf - Inf differs, and a cut one could be Inf.
constexpr std::uint32_t kNan = 0x7FC00000;

std::uint64_t bytes_for(std::uint64_t count, unsigned bits) noexcept {
  return (count * bits + 7) / 8;
}

void encode(const float* in, const float* residual, float* left, std::uint64_t count, unsigned bits,
            std::byte* payload) {
  BitWriter writer(payload, bytes_for(count, bits));
  const unsigned cut = 32 - bits;
  for (std::uint64_t i = 0; i < count; ++i) {
    const float x = residual != nullptr ? in[i] + residual[i] : in[i];
    auto whole = bit_cast<std::uint32_t>(x);
    if ((whole & kMagnitudeMask) > kInfinityBits) whole = kNan;
    writer.put(whole >> cut, bits);
    if (left == nullptr) continue;
    // What is NaN or Inf can't be corrected later: a residual of NaN would poison every step after it.
    const bool finite = (whole & kMagnitudeMask) < kInfinityBits;
    left[i] = finite ? x - bit_cast<float>(whole >> cut << cut) : 0.0F;
  }
  writer.finish();
}

template <bool kAdds>
void decode(const std::byte* payload, std::uint64_t count, unsigned bits, float scale, float* slot) {
  BitReader reader(payload, bytes_for(count, bits));
  const unsigned cut = 32 - bits;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto whole = static_cast<std::uint32_t>(reader.get(bits) << cut);
    if (kAdds) {
      slot[i] += scale * bit_cast<float>(whole);
    } else if (scale == 1.0F) {
      // As an integer: a float on its way through a register may lose a NaN's bits.
      std::memcpy(slot + i, &whole, sizeof whole);
    } else {
      slot[i] = scale * bit_cast<float>(whole);
    }
  }
}

constexpr ElementKernels<unsigned> kKernels = {
    .encode = encode, .decode_overwrite = decode<false>, .decode_accumulate = decode<true>};

class Truncate final : public ElementwiseCodec<unsigned> {
 public:
  Truncate(unsigned bits, TargetId target) noexcept
      : ElementwiseCodec(kInfo, kKernels, target, Field{"signs and exponents", 9},
                         Field{"mantissas", bits - 9}, bits) {}

  std::string spec() const override { return "truncate:bits=" + std::to_string(std::get<0>(shape())); }
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  ASSIGN_OR_RETURN(const auto bits, choice_parameter(spec, "bits", kBits, kDefaultBits - kFewestBits));
  return std::make_unique<const Truncate>(kFewestBits + static_cast<unsigned>(bits), target);
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make};

}  // namespace deltawire::truncate
