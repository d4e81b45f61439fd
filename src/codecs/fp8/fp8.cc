// fp8: floats of 8 bits, with a power of two for each block. spec.md in this folder defines the bytes.
#include <string>

#include "base/checked.h"
#include "codecs/fp8/fp8_ops.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/two_passes.h"

namespace deltawire::fp8 {

namespace {

constexpr std::uint64_t kChunkElements = 65536;

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
    .chunk_elements = kChunkElements,
};

constexpr std::string_view kFormats[] = {"e4m3", "e5m2"};
constexpr std::string_view kBlocks[] = {"32", "64", "128", "256", "512", "1024"};
constexpr std::uint32_t kFirstBlock = 32;

class Fp8 final : public Codec {
 public:
  Fp8(std::size_t format, std::uint32_t block, const Kernels& kernels) noexcept
      : Codec(kInfo), format_(format), shape_{format == 0 ? kE4M3 : kE5M2, block}, kernels_(kernels) {}

  std::string spec() const override {
    return "fp8:format=" + std::string(kFormats[format_]) + ",block=" + std::to_string(shape_.block);
  }

 private:
  // The same for a chunk and for a part, as a whole chunk's blocks are whole.
  std::uint64_t bytes_of(std::uint64_t count) const noexcept {
    return sum_or_max(shape_.blocks(count), count);
  }
  std::uint64_t chunk_bytes() const noexcept { return bytes_of(kChunkElements); }

  Sizes do_sizes(const TensorView& part) const noexcept override {
    return fixed_sizes(bytes_of(part.count), chunk_bytes(), 1);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out, const Exec&) const override {
    const auto [first, second] = two_passes(part);
    if (kernels_.sum_up(first) >= kInfinityBits) return not_finite();
    for (std::uint64_t at = 0; at < part.count; at += kChunkElements) {
      const Addends chunk = some_of(second, at, std::min(part.count - at, kChunkElements));
      kernels_.encode(chunk, shape_, out.payload.data() + at / kChunkElements * chunk_bytes());
    }
    return write_fixed_ends(bytes_of(part.count), chunk_bytes(), 1, out.chunk_ends);
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    if (auto ok = check_part(in, out.count); !ok) return ok;
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const std::uint32_t count = elements_of_chunk(out.count, i, kChunkElements);
      kernel(chunk_of(in, i).at, count, shape_, out.scale, out.slot + i * kChunkElements);
    }
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (auto ok = check_part(in, count); !ok) return ok;
    add_section(sections, "scales", shape_.blocks(count) * 8);
    add_section(sections, "codes", count * 8);
    return {};
  }

  Status check_part(const PartView& in, std::uint64_t count) const {
    if (auto ok = check_fixed_ends(in, bytes_of(count), chunk_bytes(), 1); !ok) return ok;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      if (auto ok = check_chunk(chunk_of(in, i), i, elements_of_chunk(count, i, kChunkElements)); !ok)
        return ok;
    }
    return {};
  }

  Status check_chunk(const ChunkBytes& chunk, std::size_t number, std::uint32_t count) const {
    const auto corrupt = [number](const std::string& text) {
      return chunk_error("fp8", ErrorCode::kCorrupt, number, text);
    };
    const std::uint64_t block = kernels_.find_bad_scale(chunk.at, count, shape_);
    if (block < shape_.blocks(count)) {
      return corrupt("the scale of block " + std::to_string(block) + " is " +
                     std::to_string(std::to_integer<unsigned>(chunk.at[block])) + ", above " +
                     std::to_string(shape_.largest_scale()));
    }
    const std::uint64_t bad = kernels_.find_bad_code(chunk.at, count, shape_);
    if (bad < count) return corrupt("the code of element " + std::to_string(bad) + " is not finite");
    return {};
  }

  std::size_t format_;  // in kFormats
  Shape shape_;
  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  const auto format = choice_parameter(spec, "format", kFormats, 0);
  if (!format) return forward_error(format);
  const auto block = choice_parameter(spec, "block", kBlocks, 0);
  if (!block) return forward_error(block);
  return std::make_unique<const Fp8>(*format, kFirstBlock << *block, kernels_for(target));
}

}  // namespace

Registration registration() noexcept {
  return {&kInfo, make};
}

}  // namespace deltawire::fp8
