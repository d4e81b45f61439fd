// twobit: a threshold with error feedback, two bits an element. spec.md in this folder defines the bytes.
#include <limits>

#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/spec_string.h"
#include "codecs/twobit/twobit_ops.h"

namespace deltawire::twobit {

namespace {

// Their codes fill bytes: a part has those of all its chunks one after another.
constexpr std::uint64_t kChunkElements = 65536;
static_assert(kChunkElements % kPerByte == 0);

// A chunk as the helpers for a fixed number of bytes see it: whole bytes, each for four elements.
constexpr std::uint64_t kChunkBytes = packed_bytes(kChunkElements);

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
    .finite_only = true,
    .sparse = true,
    .chunk_elements = kChunkElements,
};

class Twobit final : public Codec {
 public:
  Twobit(const Kernels& kernels, float threshold) noexcept
      : Codec(kInfo), kernels_(kernels), threshold_(threshold) {}

  std::string spec() const override { return "twobit:t=" + canonical_number(threshold_); }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    return fixed_sizes(packed_bytes(part.count), kChunkBytes, 1);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out, const Exec&) const override {
    if (!kernels_.all_finite(part.in, part.residual, part.count)) return not_finite();
    kernels_.encode(part.in, part.residual, part.left, part.count, threshold_, out.payload.data());
    return write_fixed_ends(packed_bytes(part.count), kChunkBytes, 1, out.chunk_ends);
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    if (auto ok = check_part(in, out.count); !ok) return ok;
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    kernel(in.payload.data(), out.count, out.scale, threshold_, out.slot);
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (auto ok = check_part(in, count); !ok) return ok;
    add_section(sections, "codes", count * 2);
    add_section(sections, "padding", in.payload.size() * 8 - count * 2);
    return {};
  }

  Status check_part(const PartView& in, std::uint64_t count) const {
    const std::uint64_t bytes = packed_bytes(count);
    if (auto ok = check_fixed_ends(in, bytes, kChunkBytes, 1); !ok) return ok;
    const std::uint64_t bad = kernels_.find_refused(in.payload.data(), count);
    if (bad == bytes * kPerByte) return {};
    const std::string where = "twobit: element " + std::to_string(bad);
    return fail(ErrorCode::kCorrupt, where + (bad < count ? " has the code 01" : ", padding, is not 0"));
  }

  const Kernels& kernels_;
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
