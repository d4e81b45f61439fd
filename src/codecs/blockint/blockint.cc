// blockint: evenly spaced values, with a step for each block. spec.md in this folder defines the bytes.
#include <bit>
#include <string>

#include "codecs/block_codec.h"
#include "codecs/blockint/blockint_ops.h"
#include "codecs/registration.h"

namespace deltawire::blockint {

namespace {

constexpr ParameterInfo kParameters[] = {
    {"bits", "8 or 4", "8", "of a code: 255 or 15 values"},
    {"block", "64, 128, 256, 512, 1024, 2048 or 4096", "256", "elements that share a step"},
};

constexpr std::string_view kExamples[] = {"blockint:bits=4", "blockint:block=2048"};

constexpr CodecInfo kInfo = {
    .id = 19,
    .name = "blockint",
    .summary = "evenly spaced values up to the largest of each block: a quarter or an eighth of the bytes",
    .source =
        "Dettmers, Lewis, Shleifer, Zettlemoyer: 8-bit Optimizers via Block-wise Quantization (ICLR 2022), "
        "section 2.1",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "direct",
    .error_feedback = true,
    .finite_only = true,
    .chunk_elements = kBlockChunkElements,
};

constexpr std::string_view kBits[] = {"8", "4"};
constexpr std::string_view kBlocks[] = {"64", "128", "256", "512", "1024", "2048", "4096"};
constexpr std::uint32_t kFirstBlock = 64;

class Blockint final : public BlockCodec<Shape> {
 public:
  Blockint(const Shape& shape, const Kernels& kernels) noexcept
      : BlockCodec(kInfo, shape, kernels, {"steps", kStepBytes}) {}

  std::string spec() const override {
    return "blockint:bits=" + std::to_string(shape().bits) + ",block=" + std::to_string(shape().block);
  }

 private:
  Status check_chunk(const ChunkBytes& chunk, std::size_t number, std::uint32_t count) const override {
    const auto corrupt = [number](const std::string& text) {
      return chunk_error("blockint", ErrorCode::kCorrupt, number, text);
    };
    const std::uint64_t block = kernels().find_bad_scale(chunk.at, count, shape());
    if (block < blocks_of(count, shape().block)) {
      const auto step = std::bit_cast<float>(step_bits(chunk.at, block));
      return corrupt("the step of block " + std::to_string(block) + " is " + number_text(step) +
                     ", not a number >= 0 with a finite " + std::to_string(shape().most().code) + "-fold");
    }
    const std::uint64_t bad = kernels().find_bad_code(chunk.at, count, shape());
    if (bad < count) {
      return corrupt("the code of element " + std::to_string(bad) +
                     (step_bits(chunk.at, bad / shape().block) == 0 ? " isn't 0 although its step is"
                                                                    : " is the unused one"));
    }
    return {};
  }
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  const auto bits = choice_parameter(spec, "bits", kBits, 0);
  if (!bits) return forward_error(bits);
  const auto block = choice_parameter(spec, "block", kBlocks, 2);
  if (!block) return forward_error(block);
  return std::make_unique<const Blockint>(Shape{kFirstBlock << *block, *bits == 0 ? 8U : 4U},
                                          kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference)

extern constinit const Registration kRegistration = {&kInfo, make, own_kernels<kernels_for>};

}  // namespace deltawire::blockint
