// fp8: floats of 8 bits, with a power of two for each block. spec.md in this folder defines the bytes.
#include "codecs/fp8/fp8_ops.h"
#include "codecs/minifloat_codec.h"
#include "codecs/registration.h"

namespace deltawire::fp8 {

namespace {

constexpr ParameterInfo kParameters[] = {
    {"format", "e4m3 or e5m2", "e4m3", "bits of exponent and mantissa"},
    kMinifloatBlock,
};

constexpr std::string_view kExamples[] = {"fp8:format=e5m2", "fp8:block=256"};

constexpr CodecInfo kInfo = {
    .id = 18,
    .name = "fp8",
    .summary =
        "floats of 8 bits, with a power of two for each block and error feedback: a quarter of the bytes",
    .source =
        "Micikevicius et al.: FP8 Formats for Deep Learning (2022); OCP, Microscaling Formats 1.0 (2023)",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "direct",
    .error_feedback = true,
    .finite_only = true,
    .chunk_elements = kBlockChunkElements,
};

// OCP's OFP8.
constexpr NamedMinifloat kFormats[] = {
    {"e4m3", {.mantissa = 3, .bias = 7, .largest = 0x7E, .largest_exponent = 8, .reach = 0x600000}},
    {"e5m2", {.mantissa = 2, .bias = 15, .largest = 0x7B, .largest_exponent = 15, .reach = 0x600000}},
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  return make_minifloat(kInfo, spec, kFormats, 8, kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::fp8
