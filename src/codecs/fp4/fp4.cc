// fp4: floats of 4 bits, with a power of two for each block. spec.md in this folder defines the bytes.
#include "codecs/fp4/fp4_ops.h"
#include "codecs/minifloat_codec.h"
#include "codecs/registration.h"

namespace deltawire::fp4 {

namespace {

constexpr ParameterInfo kParameters[] = {
    {"format", "e2m1 or e3m0", "e2m1", "bits of exponent and mantissa"},
    kMinifloatBlock,
};

constexpr std::string_view kExamples[] = {"fp4:format=e3m0", "fp4:block=256"};

constexpr CodecInfo kInfo = {
    .id = 26,
    .name = "fp4",
    .summary =
        "floats of 4 bits, with a power of two for each block and error feedback: 7.5 times fewer bytes",
    .source =
        "OCP, Microscaling Formats 1.0 (2023); Douillard et al.: Streaming DiLoCo with overlapping "
        "communication (2025)",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "direct",
    .error_feedback = true,
    .finite_only = true,
    .chunk_elements = kBlockChunkElements,
};

constexpr NamedMinifloat kFormats[] = {
    {"e2m1", {.mantissa = 1, .bias = 1, .largest = 7, .largest_exponent = 2, .reach = 0x600000}},
    {"e3m0", {.mantissa = 0, .bias = 3, .largest = 7, .largest_exponent = 4, .reach = 0x400000}},
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  return make_minifloat(kInfo, spec, kFormats, 4, kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::fp4
