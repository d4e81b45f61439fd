// fp8: floats of 8 bits, with a power of two for each block. spec.md in this folder defines the bytes.
#include <string>

#include "codecs/block_codec.h"
#include "codecs/fp8/fp8_ops.h"
#include "codecs/registration.h"

namespace deltawire::fp8 {

namespace {

constexpr ParameterInfo kParameters[] = {
    {"format", "e4m3 or e5m2", "e4m3", "bits of exponent and mantissa"},
    {"block", "32, 64, 128, 256, 512 or 1024", "32", "elements that share a power of two"},
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

constexpr std::string_view kFormats[] = {"e4m3", "e5m2"};
constexpr std::string_view kBlocks[] = {"32", "64", "128", "256", "512", "1024"};
constexpr std::uint32_t kFirstBlock = 32;

class Fp8 final : public BlockCodec<Shape> {
 public:
  Fp8(std::size_t format, std::uint32_t block, const Kernels& kernels) noexcept
      : BlockCodec(kInfo, Shape{format == 0 ? kE4M3 : kE5M2, block}, kernels, {"scales", 1}, 8),
        format_(format) {}

  std::string spec() const override {
    return "fp8:format=" + std::string(kFormats[format_]) + ",block=" + std::to_string(shape().block);
  }

 private:
  Status check_chunk(const ChunkBytes& chunk, std::size_t number, std::uint32_t count) const override {
    const auto corrupt = [number](const std::string& text) {
      return chunk_error("fp8", ErrorCode::kCorrupt, number, text);
    };
    const std::uint64_t block = kernels().find_bad_scale(chunk.at, count, shape());
    if (block < shape().blocks(count)) {
      return corrupt("the scale of block " + std::to_string(block) + " is " +
                     std::to_string(std::to_integer<unsigned>(chunk.at[block])) + ", above " +
                     std::to_string(shape().largest_scale()));
    }
    const std::uint64_t bad = kernels().find_bad_code(chunk.at, count, shape());
    if (bad < count) return corrupt("the code of element " + std::to_string(bad) + " is not finite");
    return {};
  }

  std::size_t format_;  // in kFormats
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  const auto format = choice_parameter(spec, "format", kFormats, 0);
  if (!format) return forward_error(format);
  const auto block = choice_parameter(spec, "block", kBlocks, 0);
  if (!block) return forward_error(block);
  return std::make_unique<const Fp8>(*format, kFirstBlock << *block, kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::fp8
