// gcomp: exponents by a length-limited Huffman code, mantissas cut by what the optimizer can still see, after
// X. Li, C. Guo, K. Qian, M. Zhang, M. Yang, M. Xu, "Near-Lossless Gradient Compression for Data-Parallel
// Distributed DNN Training" (SoCC 2024), sections 4 to 6.1. spec.md in this folder defines the bytes.

#include <algorithm>
#include <cassert>

#include "base/checked.h"
#include "base/errors.h"
#include "base/prefetch.h"
#include "codecs/gcomp/gcomp_chunk.h"
#include "codecs/gcomp/gcomp_heads.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"

namespace deltawire::gcomp {

namespace {

constexpr ParameterInfo kParameters[] = {
    {"cut", "auto, 0, 6, 12 or 18", "auto",
     "low mantissa bits rounded off every value; auto: of each as many as the optimizer can't see"},
    {"levels", "8 or 4", "8", "of cut=auto: 8 levels in steps of 3 bits, or the paper's 4 in steps of 6"},
    {"lossless", "on or off", "off", "on: every bit is kept, subnormals and signs of zeros too"},
    {"values", "fp32, bf16 or fp16", "fp32",
     "what values are rounded to first; a Channel chooses it by itself for tensors of 16 bits"},
};

constexpr std::string_view kExamples[] = {"gcomp:levels=4",
                                          "gcomp:cut=6",
                                          "gcomp:cut=18",
                                          "gcomp:lossless=on",
                                          "gcomp:values=bf16",
                                          "gcomp:cut=18,values=fp16",
                                          "gcomp:lossless=on,values=fp16"};

constexpr CodecInfo info_with(bool lossless, bool significance, bool halves) noexcept {
  return {
      .id = 5,
      .name = "gcomp",
      .summary = "Huffman-coded exponents, mantissas cut by what the optimizer can still see: near-lossless",
      .source = "Li et al.: Near-Lossless Gradient Compression (SoCC 2024), sections 4 to 6.1",
      .parameters = kParameters,
      .examples = kExamples,
      .default_pattern = "ring",
      .lossless = lossless,
      .significance = significance,
      .half_form = !halves,
      .chunk_elements = kChunkElements,
      .separate_chunks = true,
  };
}

constexpr std::string_view kCuts[] = {"auto", "0", "6", "12", "18"};
constexpr std::uint32_t kCutBits[] = {0, 0, 6, 12, 18};
// Sums go round a ring in shares of 1/N: of up to 16 ranks none from 2^15 / 16 on is rounded, so that their
// total, the mean, stays in float16's range.
constexpr std::uint32_t kSummandBits = 4;
constexpr std::string_view kLevelCounts[] = {"8", "4"};
constexpr std::string_view kSwitch[] = {"on", "off"};
constexpr std::string_view kValues[] = {"fp32", "bf16", "fp16"};
constexpr Precision kPrecisions[] = {kFloat32, kBFloat16, kFloat16};

struct Parameters {
  std::size_t cut = 0;     // index in kCuts
  std::size_t levels = 0;  // index in kLevelCounts
  bool lossless = false;
  std::size_t values = 0;  // index in kValues

  Precision precision() const noexcept { return kPrecisions[values]; }
  const CodecInfo& info() const noexcept;
};

constexpr CodecInfo kInfo = info_with(false, true, false);
constexpr CodecInfo kLosslessInfo = info_with(true, false, false);
constexpr CodecInfo kUniformCutInfo = info_with(false, false, false);
constexpr CodecInfo kHalfInfo = info_with(false, true, true);
constexpr CodecInfo kHalfUniformCutInfo = info_with(false, false, true);

const CodecInfo& Parameters::info() const noexcept {
  if (values == 0) return lossless ? kLosslessInfo : cut == 0 ? kInfo : kUniformCutInfo;
  return cut == 0 ? kHalfInfo : kHalfUniformCutInfo;
}
class Gcomp final : public Codec {
 public:
  Gcomp(const Parameters& parameters, const Kernels& kernels) noexcept
      : Codec(parameters.info()), parameters_(parameters), kernels_(kernels) {}

  std::string spec() const override {
    return "gcomp:cut=" + std::string(kCuts[parameters_.cut]) +
           ",levels=" + std::string(kLevelCounts[parameters_.levels]) +
           ",lossless=" + (parameters_.lossless ? "on" : "off") +
           (parameters_.values == 0 ? "" : ",values=" + std::string(kValues[parameters_.values]));
  }

  Sizes do_sizes(const TensorView& part) const noexcept override {
    const std::uint64_t full = part.count / kChunkElements;
    const std::uint64_t rest = chunk_bound(part.count % kChunkElements);
    const std::uint64_t bytes = product_or_max(full, chunk_bound(kChunkElements));
    return Sizes{.payload_bytes = sum_or_max(bytes, rest),
                 .chunks = chunks_or_max(ceil_div(part.count, kChunkElements)),
                 .scratch_bytes = scratch_bound(part.count) + room_bound(part.count)};
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const float* significance = part.view.significance;
    float* const residual = residual_in_place(part);
    const std::uint64_t chunks = ceil_div(part.count, kChunkElements);
    // A short part is still in the cache when the frame sums it.
    const bool sums = !out.chunk_sums.empty() && part.count > kBlockElements;
    float* const halves = needs_rounding(part) ? room_place(exec, part.count) : nullptr;
    const bool may_have_levels = parameters_.lossless && parameters_.values == 0 && part.residual == nullptr;
    float* const levels = may_have_levels ? room_place(exec, part.count) : nullptr;
    std::uint64_t written = 0;
    for (std::uint64_t i = 0; i < chunks; ++i) {
      const std::uint64_t at = i * kChunkElements;
      const Values chunk{.in = part.in + at,
                         .residual = residual != nullptr ? residual + at : nullptr,
                         .significance = significance != nullptr ? significance + at : nullptr,
                         .count = elements_of_chunk(part.count, i, kChunkElements),
                         .rule = rule(part.view),
                         .streamed = part.count * sizeof(float) >= kStreamedBytes};
      const ChunkPlace place{out.payload.data() + written, sums ? &out.chunk_sums[i] : nullptr};
      written += halves != nullptr ? encode_halved(kernels_, chunk, place, exec, halves)
                                   : encode_chunk(kernels_, chunk, place, exec, levels);
      assert(written <= out.payload.size());
      out.chunk_ends[i] = static_cast<std::uint32_t>(written);
    }
    return EncodedPart{
        .payload_bytes = written, .chunks = static_cast<std::uint32_t>(chunks), .has_sums = sums};
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec& exec) const override {
    Target target{.slot = out.slot,
                  .count = 0,
                  .scale = out.scale,
                  .accumulate = out.accumulate,
                  .streamed = out.count * sizeof(float) >= kStreamedBytes};
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      target.count = elements_of_chunk(out.count, i, kChunkElements);
      assert(target.count > 0 && target.count <= kChunkElements);
      RETURN_IF_ERROR(fault_status("gcomp", i, decode(chunk_of(in, i), target, exec.workers)));
      target.slot += target.count;
    }
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    std::vector<float> values(static_cast<std::size_t>(std::min<std::uint64_t>(count, kChunkElements)));
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const Target target{.slot = values.data(), .count = elements_of_chunk(count, i, kChunkElements)};
      const ChunkBytes chunk = chunk_of(in, i);
      RETURN_IF_ERROR(fault_status("gcomp", i, decode(chunk, target, nullptr)));
      describe_chunk(chunk, target.count, sections);
    }
    return {};
  }

 private:
  Fault decode(const ChunkBytes& chunk, const Target& target, Workers* workers) const {
    if (is_of_halves(chunk.at[0]) && !may_be_of_halves(mode_of(chunk.at[0]))) return &faults::kChunkMode;
    return decode_chunk(kernels_, chunk, target, workers);
  }

  // Of 16-bit values lossless=on has whole chunks alone, lossless=off cut ones.
  bool may_be_of_halves(ChunkMode mode) const noexcept {
    return parameters_.values != 0 && mode == (parameters_.lossless ? ChunkMode::kWhole : ChunkMode::kCut);
  }

  Rule rule(const TensorView& view) const noexcept {
    Precision precision = parameters_.precision();
    if (parameters_.lossless) return {.keep = Keep::kEverything, .precision = precision};
    if (view.dtype == DType::kF16) precision.highest_cut = kHighestCutOfFloat16;
    if (view.summed_dtype == DType::kF16) precision.highest_cut = kHighestCutOfFloat16 - kSummandBits;
    if (parameters_.cut == 0 && view.significance != nullptr) {
      const std::uint32_t step = parameters_.levels == 0 ? 1 : 2;
      return {.keep = Keep::kSignificance, .step = step, .precision = precision};
    }
    const std::uint32_t bits = kCutBits[parameters_.cut];
    const std::uint32_t level = bits > precision.unused ? (bits - precision.unused) / precision.step : 0;
    return {.keep = Keep::kLevel, .level = level, .precision = precision};
  }

  // For halves_bound(), or for the significances of by_low_zeros().
  std::uint64_t room_bound(std::uint64_t count) const noexcept {
    if (parameters_.values != 0) return halves_bound(count);
    return parameters_.lossless ? std::min<std::uint64_t>(count, kChunkElements) * sizeof(float) : 0;
  }

  // Whether a value may have more bits than the parameter `values` says.
  bool needs_rounding(const PartSource& part) const noexcept {
    constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
    return parameters_.values != 0 &&
           (part.residual != nullptr || part.view.dtype != kTypes[parameters_.values]);
  }

  Parameters parameters_;
  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  ASSIGN_OR_RETURN(const auto lossless, choice_parameter(spec, "lossless", kSwitch, 1));
  const bool keeps_all = lossless == 0;
  ASSIGN_OR_RETURN(const auto cut, choice_parameter(spec, "cut", kCuts, keeps_all ? 1 : 0));
  if (keeps_all && cut != 1) {
    return invalid("gcomp: cut=" + std::string(kCuts[cut]) +
                   " together with lossless=on: give cut=0, or leave it out");
  }
  ASSIGN_OR_RETURN(const auto values, choice_parameter(spec, "values", kValues, 0));
  ASSIGN_OR_RETURN(const auto levels, choice_parameter(spec, "levels", kLevelCounts, 0));
  if (levels != 0 && cut != 0) {
    return invalid("gcomp: levels=" + std::string(kLevelCounts[levels]) + " together with cut=" +
                   std::string(kCuts[cut]) + ": levels are those of cut=auto; leave one out");
  }
  return std::make_unique<const Gcomp>(Parameters{cut, levels, keeps_all, values}, kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference, avx2, avx512, avx512vbmi, neon)

extern constinit const Registration kRegistration = {&kInfo, make, own_kernels<kernels_for>};

}  // namespace deltawire::gcomp
