// randomk: as many elements as a share says, drawn by chance, with error feedback or scaled without bias.
// Bytes: spec.md.

#include <limits>

#include "codecs/part_checks.h"
#include "codecs/randomk/randomk_ops.h"
#include "codecs/registration.h"
#include "codecs/share.h"

namespace deltawire::randomk {

namespace {

constexpr std::uint64_t kChunkValues = 16384;

constexpr ParameterInfo kParameters[] = {
    {"k", "0.000001 <= k < 1, or in percent", "0.01", "share of the elements that is sent"},
    {"unbiased", "on or off", "off",
     "on: values are scaled up instead of what is not sent being kept for later"},
};

constexpr std::string_view kExamples[] = {"randomk:k=0.1", "randomk:k=0.5,unbiased=on"};

constexpr CodecInfo info_with(bool unbiased) noexcept {
  return {
      .id = 8,
      .name = "randomk",
      .summary = "values at places drawn by chance, which need no bytes, with error feedback: 100x at k=1%",
      .source = "Stich, Cordonnier, Jaggi: Sparsified SGD with Memory (NeurIPS 2018), definition 2.1",
      .parameters = kParameters,
      .examples = kExamples,
      .default_pattern = "gather",
      .error_feedback = !unbiased,
      .finite_only = true,
      .sparse = true,
      .scalars = 1,
  };
}

constexpr CodecInfo kInfo = info_with(false);
constexpr CodecInfo kUnbiasedInfo = info_with(true);

class Randomk final : public Codec {
 public:
  Randomk(float k, bool unbiased, const Kernels& kernels) noexcept
      : Codec(unbiased ? kUnbiasedInfo : kInfo), k_(k), unbiased_(unbiased), kernels_(kernels) {}

  std::string spec() const override {
    return "randomk:k=" + canonical_number(k_) + ",unbiased=" + (unbiased_ ? "on" : "off");
  }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    if (part.count == 0) return {};
    if (part.count > kMaxSharedElements) return {.payload_bytes = std::numeric_limits<std::uint64_t>::max()};
    return fixed_sizes(kept_of(k_, part.count), kChunkValues, kValueBytes);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    // Where the new residual lies apart, the sums go there at once.
    const bool apart = part.left != part.residual;
    Addends x{part.in, part.residual, apart ? part.left : nullptr, part.count};
    if (!kernels_.sum_up(x)) return not_finite();
    if (apart) x = {part.left, nullptr, nullptr, part.count};
    const auto seed = static_cast<std::uint32_t>(CounterRng(exec.stream).at(0));
    const Draw draw = draw_of(seed, part.count);
    if (!kernels_.write(x, draw, unbiased_, out.payload.data())) {
      return fail(
          ErrorCode::kRange,
          "a value is beyond float32 once it is scaled up: scale the tensor down or use unbiased=off");
    }
    if (part.residual != nullptr) {
      x.left = part.left;
      if (!apart) kernels_.sum_up(x);
      kernels_.take_sent(part.left, draw, out.payload.data());
    }
    EncodedPart encoded = write_fixed_ends(draw.kept, kChunkValues, kValueBytes, out.chunk_ends);
    encoded.scalar = seed;
    return encoded;
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    if (auto ok = check_part(in, out.count); !ok || out.count == 0) return ok;
    kernels_.read(in.payload.data(), draw_of(in.scalar, out.count), {out.slot, out.scale, out.accumulate});
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (auto ok = check_part(in, count); !ok) return ok;
    add_section(sections, "fp32 values", in.payload.size() * 8);
    return {};
  }

  Draw draw_of(std::uint32_t seed, std::uint64_t count) const noexcept {
    return {CounterRng(seed), count, kept_of(k_, count)};
  }

  Status check_part(const PartView& in, std::uint64_t count) const {
    if (count == 0) return {};
    if (count > kMaxSharedElements) {
      return fail(ErrorCode::kCorrupt,
                  "randomk: a part has fewer than 2^32 elements, not " + std::to_string(count));
    }
    const std::uint64_t kept = kept_of(k_, count);
    if (auto ok = check_chunks(in, kept, kChunkValues); !ok) return ok;
    if (auto ok = check_fixed_ends(in, kept, kChunkValues, kValueBytes); !ok) return ok;
    const std::uint64_t bad = kernels_.find_not_finite(in.payload.data(), kept);
    if (bad == kept) return {};
    return fail(ErrorCode::kCorrupt, "randomk: value " + std::to_string(bad) + " is not finite");
  }

  float k_;
  bool unbiased_;
  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  constexpr std::string_view kSwitch[] = {"off", "on"};
  const auto k = fraction_parameter(spec, "k", {.low = 1e-6F, .high = 1, .default_value = 0.01F});
  if (!k) return forward_error(k);
  const auto unbiased = choice_parameter(spec, "unbiased", kSwitch, 0);
  if (!unbiased) return forward_error(unbiased);
  return std::make_unique<const Randomk>(*k, *unbiased == 1, kernels_for(target));
}

}  // namespace

Registration registration() noexcept {
  return {&kInfo, make};
}

}  // namespace deltawire::randomk
