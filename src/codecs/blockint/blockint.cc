// blockint: evenly spaced values, with a step for each block. spec.md in this folder defines the bytes.
#include <bit>
#include <string>

#include "base/bit_functions.h"
#include "base/errors.h"
#include "base/little_endian.h"
#include "codecs/block_codec.h"
#include "codecs/kernels/steps.h"
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

constexpr std::uint64_t kStepBytes = 4;

// The code of element i, in two's complement; `codes` is where a chunk's codes begin.
int code_at(const std::byte* codes, std::uint64_t i, unsigned bits) noexcept {
  if (bits == 8) return static_cast<std::int8_t>(codes[i]);
  const auto both = static_cast<unsigned>(codes[i / 2]);
  const unsigned code = i % 2 == 0 ? both & 0xF : both >> 4;
  return static_cast<int>(code ^ 8) - 8;
}

// The bits of a block's step; `chunk` is where its steps begin.
std::uint32_t step_bits(const std::byte* chunk, std::uint64_t block) noexcept {
  return load_le<std::uint32_t>(chunk + block * kStepBytes);
}

std::byte low_bits(std::int32_t code, std::int32_t bits) noexcept {
  return static_cast<std::byte>(code & bits);
}

// One block, whose codes begin at a whole byte.
void encode_block(const Addends& x, float step, unsigned bits, std::byte* codes) noexcept {
  // Where step is 0 all values are: 1 gives the code 0 without 0/0.
  const float divisor = step > 0 ? step : 1.0F;
  for (std::uint64_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    const std::int32_t code = nearest_multiple(sum, divisor);
    if (bits == 8) {
      codes[i] = low_bits(code, 0xFF);
    } else if (i % 2 == 0) {
      codes[i / 2] = low_bits(code, 0xF);
    } else {
      codes[i / 2] |= low_bits(code, 0xF) << 4;
    }
    if (x.left != nullptr) x.left[i] = sum - static_cast<float>(code) * step;
  }
}

// A chunk has the steps of all blocks, then all codes, none below the least, and 0 where the step is. A value
// is code * step, rounded.
struct Shape {
  std::uint32_t block = 0;  // elements that share a step: an even number
  unsigned bits = 8;        // of a code: 8 or 4

  LargestCode most() const noexcept { return bits == 8 ? kLargestOf8Bits : kLargestOf4Bits; }

  // Where a chunk's codes begin.
  std::uint64_t head(std::uint64_t count) const noexcept { return blocks_of(count, block) * kStepBytes; }

  void encode(const Addends& x, std::byte* chunk) const noexcept {
    std::byte* codes = chunk + head(x.count);
    for (std::uint64_t at = 0; at < x.count; at += block) {
      const Addends some = some_of(x, at, std::min<std::uint64_t>(x.count - at, block));
      const std::uint32_t largest = largest_magnitude(some.in, some.residual, some.count);
      const float step = smallest_step(bit_cast<float>(largest), most());
      store_le(chunk + at / block * kStepBytes, bit_cast<std::uint32_t>(step));
      encode_block(some, step, bits, codes + at * bits / 8);
    }
  }

  void decode(const std::byte* chunk, std::uint64_t count, const PartTarget& out,
              float* slot) const noexcept {
    const std::byte* codes = chunk + head(count);
    for (std::uint64_t at = 0; at < count; at += block) {
      const float step = bit_cast<float>(step_bits(chunk, at / block));
      const std::uint64_t end = std::min<std::uint64_t>(count, at + block);
      for (std::uint64_t i = at; i < end; ++i) {
        const float value = out.scale * (static_cast<float>(code_at(codes, i, bits)) * step);
        slot[i] = out.accumulate ? slot[i] + value : value;
      }
    }
  }

  // The first block whose step no encoder writes, or the number of blocks.
  std::uint64_t find_bad_step(const std::byte* chunk, std::uint64_t count) const noexcept {
    const std::uint64_t blocks = blocks_of(count, block);
    std::uint64_t at = 0;
    while (at < blocks && step_bits(chunk, at) <= most().step) ++at;
    return at;
  }

  // The first element whose code no encoder writes, or `count`.
  std::uint64_t find_bad_code(const std::byte* chunk, std::uint64_t count) const noexcept {
    const std::byte* codes = chunk + head(count);
    for (std::uint64_t at = 0; at < count; at += block) {
      const bool zeros_only = step_bits(chunk, at / block) == 0;
      const std::uint64_t end = std::min<std::uint64_t>(count, at + block);
      for (std::uint64_t i = at; i < end; ++i) {
        const int code = code_at(codes, i, bits);
        if (code < -most().code || (zeros_only && code != 0)) return i;
      }
    }
    return count;
  }
};

class Blockint final : public BlockCodec<Shape> {
 public:
  Blockint(const Shape& shape, TargetId target) noexcept
      : BlockCodec(kInfo, shape, {"steps", kStepBytes}, target) {}

  std::string spec() const override {
    return "blockint:bits=" + std::to_string(shape().bits) + ",block=" + std::to_string(shape().block);
  }

 private:
  Status check_chunk(const ChunkBytes& chunk, std::size_t number, std::uint32_t count) const override {
    const auto corrupt = [number](const std::string& text) {
      return chunk_error("blockint", ErrorCode::kCorrupt, number, text);
    };
    const std::uint64_t block = shape().find_bad_step(chunk.at, count);
    if (block < blocks_of(count, shape().block)) {
      const auto step = std::bit_cast<float>(step_bits(chunk.at, block));
      return corrupt("the step of block " + std::to_string(block) + " is " + number_text(step) +
                     ", not a number >= 0 with a finite " + std::to_string(shape().most().code) + "-fold");
    }
    const std::uint64_t bad = shape().find_bad_code(chunk.at, count);
    if (bad < count) {
      return corrupt("the code of element " + std::to_string(bad) +
                     (step_bits(chunk.at, bad / shape().block) == 0 ? " isn't 0 although its step is"
                                                                    : " is the unused one"));
    }
    return {};
  }
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  ASSIGN_OR_RETURN(const auto bits, choice_parameter(spec, "bits", kBits, 0));
  ASSIGN_OR_RETURN(const auto block, choice_parameter(spec, "block", kBlocks, 2));
  return std::make_unique<const Blockint>(Shape{kFirstBlock << block, bits == 0 ? 8U : 4U}, target);
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make, own_kernels<addends::kernels_for>};

}  // namespace deltawire::blockint
