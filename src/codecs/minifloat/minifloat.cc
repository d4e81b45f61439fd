// fp8 and fp4: floats of 8 and of 4 bits, with a power of two for each block. spec.md in their folders define
// the bytes.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "codecs/block_codec.h"
#include "codecs/minifloat/minifloat_ops.h"
#include "codecs/registration.h"

namespace deltawire::minifloat {

namespace {

struct Shape {
  Format format{};
  std::uint32_t block = 0;
  unsigned bits = 0;  // of a code
  const Kernels* kernels = nullptr;

  const Minifloat& own() const noexcept { return kFormats[index()]; }
  std::size_t index() const noexcept { return static_cast<std::size_t>(format); }

  void encode(const Addends& x, std::byte* chunk) const {
    kernels->encode[index()](x, block, chunk, chunk + blocks_of(x.count, block));
  }

  void decode(const std::byte* chunk, std::uint64_t count, const PartTarget& out, float* slot) const {
    const auto& by_format = out.accumulate ? kernels->accumulate : kernels->overwrite;
    by_format[index()](chunk, chunk + blocks_of(count, block), count, block, out.scale, slot);
  }

  // The first block whose scale no encoder writes, or the number of blocks.
  std::uint64_t find_bad_scale(const std::byte* chunk, std::uint64_t count) const noexcept {
    const std::uint64_t blocks = blocks_of(count, block);
    std::uint64_t at = 0;
    while (at < blocks && static_cast<unsigned>(chunk[at]) <= own().largest_scale()) ++at;
    return at;
  }

  // The first element whose code no encoder writes, or `count`. Every code of 4 bits is a finite number.
  std::uint64_t find_bad_code(const std::byte* chunk, std::uint64_t count) const noexcept {
    if (bits == 4) return count;
    const std::byte* const codes = chunk + blocks_of(count, block);
    const auto magnitude = [&](std::uint64_t i) {
      return static_cast<std::uint8_t>(codes[i] & std::byte{0x7F});
    };
    std::uint64_t i = 0;
    for (constexpr std::uint64_t kStep = 64; i + kStep <= count; i += kStep) {
      std::uint8_t most = 0;  // without a branch for each code, so that it vectorizes
      for (std::uint64_t k = i; k < i + kStep; ++k) most = std::max(most, magnitude(k));
      if (most > own().largest) break;
    }
    while (i < count && magnitude(i) <= own().largest) ++i;
    return i;
  }
};

constexpr std::string_view kBlocks[] = {"32", "64", "128", "256", "512", "1024"};
constexpr std::uint32_t kFirstBlock = 32;
constexpr ParameterInfo kBlockParameter = {"block", "32, 64, 128, 256, 512 or 1024", "32",
                                           "elements that share a power of two"};

// A codec of two formats, of which the first is the default.
struct Family {
  CodecInfo info;
  std::string_view names[2];  // of the formats, in specs
  Format formats[2];
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
    .formats = {Format::kE4M3, Format::kE5M2},
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
    .formats = {Format::kE2M1, Format::kE3M0},
};

class MinifloatCodec final : public BlockCodec<Shape> {
 public:
  MinifloatCodec(const CodecInfo& info, std::string_view format, const Shape& shape, TargetId target) noexcept
      : BlockCodec(info, shape, {"scales", 1}, target), format_(format) {}

  std::string spec() const override {
    return std::string(info().name) + ":format=" + std::string(format_) +
           ",block=" + std::to_string(shape().block);
  }

 private:
  Status check_chunk(const ChunkBytes& chunk, std::size_t number, std::uint32_t count) const override {
    const auto corrupt = [&](const std::string& text) {
      return chunk_error(info().name, ErrorCode::kCorrupt, number, text);
    };
    const std::uint64_t block = shape().find_bad_scale(chunk.at, count);
    if (block < blocks_of(count, shape().block)) {
      return corrupt("the scale of block " + std::to_string(block) + " is " +
                     std::to_string(std::to_integer<unsigned>(chunk.at[block])) + ", above " +
                     std::to_string(shape().own().largest_scale()));
    }
    const std::uint64_t bad = shape().find_bad_code(chunk.at, count);
    if (bad < count) return corrupt("the code of element " + std::to_string(bad) + " is not finite");
    return {};
  }

  std::string_view format_;  // its name
};

template <const Family& kFamily>
Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  ASSIGN_OR_RETURN(const auto format, choice_parameter(spec, "format", kFamily.names, 0));
  ASSIGN_OR_RETURN(const auto block, choice_parameter(spec, "block", kBlocks, 0));
  const Format own = kFamily.formats[format];
  const Shape shape{own, kFirstBlock << block, kFormats[static_cast<std::size_t>(own)].bits,
                    &kernels_for(target)};
  return std::make_unique<const MinifloatCodec>(kFamily.info, kFamily.names[format], shape, target);
}

}  // namespace

DELTAWIRE_KERNELS(reference, avx2)

}  // namespace deltawire::minifloat

namespace deltawire::fp8 {

extern constinit const Registration kRegistration = {&minifloat::kFp8.info, minifloat::make<minifloat::kFp8>,
                                                     own_kernels<minifloat::kernels_for>};

}  // namespace deltawire::fp8

namespace deltawire::fp4 {

extern constinit const Registration kRegistration = {&minifloat::kFp4.info, minifloat::make<minifloat::kFp4>,
                                                     own_kernels<minifloat::kernels_for>};

}  // namespace deltawire::fp4
