// truncate: the upper bits of each value, as many of all. spec.md in this folder defines the bytes.
#include <string>

#include "codecs/baselines/truncate/truncate_ops.h"
#include "codecs/fixed_codec.h"
#include "codecs/registration.h"

namespace deltawire::truncate {

namespace {

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

class Truncate final : public ElementwiseCodec<unsigned> {
 public:
  Truncate(unsigned bits, const Kernels& kernels) noexcept
      : ElementwiseCodec(kInfo, kernels, Field{"signs and exponents", 9}, Field{"mantissas", bits - 9}, bits),
        bits_(bits) {}

  std::string spec() const override { return "truncate:bits=" + std::to_string(bits_); }

 private:
  Status check_codes(const PartView& in, std::uint64_t count) const override {
    if (!has_padding(in, count)) return {};
    return fail(ErrorCode::kCorrupt, "truncate: bits follow the last element");
  }

  unsigned bits_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  const auto bits = choice_parameter(spec, "bits", kBits, kDefaultBits - kFewestBits);
  if (!bits) return forward_error(bits);
  return std::make_unique<const Truncate>(kFewestBits + static_cast<unsigned>(*bits), kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::truncate
