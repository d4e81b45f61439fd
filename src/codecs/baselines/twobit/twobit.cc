// twobit: a threshold with error feedback, two bits an element. spec.md in this folder defines the bytes.
#include <limits>

#include "codecs/baselines/twobit/twobit_ops.h"
#include "codecs/fixed_codec.h"
#include "codecs/registration.h"
#include "codecs/spec_string.h"

namespace deltawire::twobit {

namespace {

constexpr ParameterInfo kParameters[] = {
    {.name = "t",
     .range = "0 < t, finite",
     .default_value = "0.5",
     .meaning = "the threshold, and what an element sent is worth"},
};

constexpr FloatRange kThresholds = {.low = std::numeric_limits<float>::denorm_min(),
                                    .high = std::numeric_limits<float>::infinity(),
                                    .default_value = 0.5F};

constexpr std::string_view kExamples[] = {"twobit:t=2"};

constexpr CodecInfo kInfo = {
    .id = 25,
    .name = "twobit",
    .summary = "+t, -t or 0 by a threshold t, with error feedback: 2 bits an element, as MXNet's 2bit",
    .source = "Strom, Interspeech 2015; Apache MXNet, gradient_compression-inl.h",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "direct",
    .error_feedback = true,
    .late = true,
    .finite_only = true,
    .sparse = true,
    .chunk_elements = kFixedChunkElements,
};

class Twobit final : public ElementwiseCodec<float> {
 public:
  Twobit(const Kernels& kernels, float threshold) noexcept
      : ElementwiseCodec(kInfo, kernels, Field{"codes", kBits}, {}, threshold), threshold_(threshold) {}

  std::string spec() const override { return "twobit:t=" + canonical_number(threshold_); }

 private:
  Status check_codes(const PartView& in, std::uint64_t count) const override {
    const std::uint64_t bad = kernels().find_refused(in.payload.data(), count);
    if (bad == bytes_of(count) * kPerByte) return {};
    const std::string where = "twobit: element " + std::to_string(bad);
    return fail(ErrorCode::kCorrupt, where + (bad < count ? " has the code 01" : ", padding, is not 0"));
  }

  float threshold_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  const auto threshold = float_parameter(spec, "t", kThresholds);
  if (!threshold) return tl::unexpected(threshold.error());
  return std::make_unique<const Twobit>(kernels_for(target), *threshold);
}

}  // namespace

DELTAWIRE_KERNELS(reference)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::twobit
