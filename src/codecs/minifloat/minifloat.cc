// fp8 and fp4: floats of 8 and of 4 bits, with a power of two for each block. spec.md in their folders define
// the bytes.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "codecs/block_codec.h"
#include "codecs/minifloat/minifloat_ops.h"
#include "codecs/registration.h"

namespace deltawire::minifloat {

namespace {

constexpr std::string_view kBlocks[] = {"32", "64", "128", "256", "512", "1024"};
constexpr std::uint32_t kFirstBlock = 32;
constexpr ParameterInfo kBlockParameter = {"block", "32, 64, 128, 256, 512 or 1024", "32",
                                           "elements that share a power of two"};

// A codec of two formats, of which the first is the default.
struct Family {
  CodecInfo info;
  std::string_view names[2];  // of the formats, in specs
  Minifloat formats[2];
  unsigned bits = 0;  // of a code
};

constexpr CodecInfo info_of(const CodecInfo& own) noexcept {
  CodecInfo info = own;
  info.error_feedback = true;
  info.finite_only = true;
  info.chunk_elements = kBlockChunkElements;
  return info;
}

constexpr ParameterInfo kFp8Parameters[] = {
    {"format", "e4m3 or e5m2", "e4m3", "bits of exponent and mantissa"},
    kBlockParameter,
};
constexpr std::string_view kFp8Examples[] = {"fp8:format=e5m2", "fp8:block=256"};
constexpr Family kFp8 = {
    .info = info_of({
        .id = 18,
        .name = "fp8",
        .summary =
            "floats of 8 bits, with a power of two for each block and error feedback: a quarter of the bytes",
        .source =
            "Micikevicius et al.: FP8 Formats for Deep Learning (2022); OCP, Microscaling Formats 1.0 (2023)",
        .parameters = kFp8Parameters,
        .examples = kFp8Examples,
        .default_pattern = "direct",
    }),
    .names = {"e4m3", "e5m2"},
    // OCP's OFP8.
    .formats = {{.mantissa = 3, .bias = 7, .largest = 0x7E, .largest_exponent = 8, .reach = 0x600000},
                {.mantissa = 2, .bias = 15, .largest = 0x7B, .largest_exponent = 15, .reach = 0x600000}},
    .bits = 8,
};

constexpr ParameterInfo kFp4Parameters[] = {
    {"format", "e2m1 or e3m0", "e2m1", "bits of exponent and mantissa"},
    kBlockParameter,
};
constexpr std::string_view kFp4Examples[] = {"fp4:format=e3m0", "fp4:block=256"};
constexpr Family kFp4 = {
    .info = info_of({
        .id = 26,
        .name = "fp4",
        .summary =
            "floats of 4 bits, with a power of two for each block and error feedback: 7.5 times fewer bytes",
        .source = "OCP, Microscaling Formats 1.0 (2023); Douillard et al.: Streaming DiLoCo with overlapping "
                  "communication (2025)",
        .parameters = kFp4Parameters,
        .examples = kFp4Examples,
        .default_pattern = "direct",
    }),
    .names = {"e2m1", "e3m0"},
    .formats = {{.mantissa = 1, .bias = 1, .largest = 7, .largest_exponent = 2, .reach = 0x600000},
                {.mantissa = 0, .bias = 3, .largest = 7, .largest_exponent = 4, .reach = 0x400000}},
    .bits = 4,
};

class MinifloatCodec final : public BlockCodec<Shape> {
 public:
  MinifloatCodec(const CodecInfo& info, std::string_view format, const Shape& shape,
                 const Kernels& kernels) noexcept
      : BlockCodec(info, shape, kernels, {"scales", 1}), format_(format) {}

  std::string spec() const override {
    return std::string(info().name) + ":format=" + std::string(format_) +
           ",block=" + std::to_string(shape().block);
  }

 private:
  Status check_chunk(const ChunkBytes& chunk, std::size_t number, std::uint32_t count) const override {
    const auto corrupt = [&](const std::string& text) {
      return chunk_error(info().name, ErrorCode::kCorrupt, number, text);
    };
    const std::uint64_t block = kernels().find_bad_scale(chunk.at, count, shape());
    if (block < blocks_of(count, shape().block)) {
      return corrupt("the scale of block " + std::to_string(block) + " is " +
                     std::to_string(std::to_integer<unsigned>(chunk.at[block])) + ", above " +
                     std::to_string(shape().largest_scale()));
    }
    const std::uint64_t bad = kernels().find_bad_code(chunk.at, count, shape());
    if (bad < count) return corrupt("the code of element " + std::to_string(bad) + " is not finite");
    return {};
  }

  std::string_view format_;  // its name
};

template <const Family& kFamily>
Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  const auto format = choice_parameter(spec, "format", kFamily.names, 0);
  if (!format) return forward_error(format);
  const auto block = choice_parameter(spec, "block", kBlocks, 0);
  if (!block) return forward_error(block);
  return std::make_unique<const MinifloatCodec>(
      kFamily.info, kFamily.names[*format],
      Shape{kFamily.formats[*format], kFirstBlock << *block, kFamily.bits}, kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference)

}  // namespace deltawire::minifloat

namespace deltawire::fp8 {

extern constinit const Registration kRegistration = {&minifloat::kFp8.info, minifloat::make<minifloat::kFp8>,
                                                     own_kernels<minifloat::kernels_for>};

}  // namespace deltawire::fp8

namespace deltawire::fp4 {

extern constinit const Registration kRegistration = {&minifloat::kFp4.info, minifloat::make<minifloat::kFp4>,
                                                     own_kernels<minifloat::kernels_for>};

}  // namespace deltawire::fp4
