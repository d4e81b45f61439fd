// threshold: every element from a given magnitude on, with error feedback. Bytes: spec.md.

#include <bit>
#include <cassert>

#include "base/errors.h"
#include "codecs/registration.h"
#include "codecs/sparse/sparse_ops.h"
#include "codecs/sparse/sparse_part.h"
#include "codecs/two_passes.h"

namespace deltawire::threshold {

namespace {

using sparse::kChunkPositions;
using sparse::PartCoder;

constexpr ParameterInfo kParameters[] = {
    {"t", "1e-12 <= t < 1e12", "0.01", "elements of at least this magnitude are sent"},
    sparse::kValuesParameter,
    sparse::kPositionsParameter,
};

constexpr std::string_view kExamples[] = {"threshold:t=1,values=int8",
                                          "threshold:t=0.5,values=bf16,positions=auto"};

constexpr CodecInfo kInfo = {
    .id = 15,
    .name = "threshold",
    .summary = "every element of at least a given magnitude, with error feedback: as many as there are",
    .source =
        "Strom: Scalable Distributed DNN Training Using Commodity GPU Cloud Computing (Interspeech 2015)",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "gather",
    .error_feedback = true,
    .finite_only = true,
    .sparse = true,
    .scalars = 1,
};

// The encoder's scratch: a chunk.
struct Staging {
  std::uint32_t positions[kChunkPositions];
  float values[kChunkPositions];
};

class ThresholdCodec final : public sparse::PartCodec {
 public:
  ThresholdCodec(float t, const PartCoder& coder, TargetId target) noexcept
      : PartCodec(kInfo, coder), t_(t), addends_(addends::kernels_for(target)) {}

  std::string spec() const override { return "threshold:t=" + canonical_number(t_) + coder().spec(); }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    if (part.count == 0) return {};
    Sizes sizes = coder().sizes_of_any(part.count);
    sizes.scratch_bytes = sizeof(Staging);
    return sizes;
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const auto [first, second] = two_passes(part);
    const std::uint32_t largest = addends_.add_up(first);
    if (largest >= kInfinityBits) return not_finite();
    assert(exec.scratch.size() >= sizeof(Staging));
    auto& staging = *reinterpret_cast<Staging*>(exec.scratch.data());
    const auto least = std::bit_cast<std::uint32_t>(t_);
    const ValueCode code = sparse::code_for(coder().values(), largest >= least ? largest : 0);
    EncodedPart encoded{.scalar = std::bit_cast<std::uint32_t>(code.step)};
    for (std::uint64_t at = 0; at < part.count;) {
      const sparse::Collected found =
          coder().kernels().collect(second, at, least, staging.positions, staging.values);
      const sparse::Elements sent{staging.positions, staging.values, found.count};
      if (found.count > 0 || at == 0) {
        coder().append({staging.positions, staging.values, found.count}, {code}, out, encoded);
      }
      sparse::leave_unsent(coder().kernels(), part, sent, at, found.next);
      at = found.next;
    }
    return encoded;
  }

  float t_;
  const addends::Kernels& addends_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  constexpr FloatRange kRange{.low = 1e-12F, .high = 1e12F, .default_value = 0.01F};
  ASSIGN_OR_RETURN(const auto t, float_parameter(spec, "t", kRange));
  ASSIGN_OR_RETURN(const auto coder, sparse::part_coder(kInfo.name, spec, target));
  return std::make_unique<const ThresholdCodec>(t, coder, target);
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make,
                                                     own_kernels<sparse::kernels_for, addends::kernels_for>};

}  // namespace deltawire::threshold
