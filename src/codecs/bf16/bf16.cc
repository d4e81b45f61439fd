// bf16: the upper 16 bits of each value, rounded to nearest even. spec.md in this folder defines the bytes.

#include "codecs/bf16/bf16_ops.h"
#include "codecs/fixed_codec.h"
#include "codecs/registration.h"

namespace deltawire::bf16 {

namespace {

constexpr CodecInfo kInfo = {
    .id = 2,
    .name = "bf16",
    .summary = "upper half of each float32, rounded to nearest even: half the bytes",
    .source = "Intel, BFLOAT16 - Hardware Numerics Definition (2018), sections 1-2",
    .default_pattern = "direct",
    .chunk_elements = kFixedChunkElements,
    .separate_chunks = true,
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec&, TargetId target) {
  return std::make_unique<const ElementwiseCodec<>>(kInfo, kernels_for(target), Field{"bf16 values", 16});
}

}  // namespace

DELTAWIRE_KERNELS(reference, avx2)

extern constinit const Registration kRegistration = {&kInfo, make, own_kernels<kernels_for>};

}  // namespace deltawire::bf16
