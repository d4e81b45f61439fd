// topk: the elements of largest magnitude, with error feedback. Bytes: spec.md.

#include <algorithm>
#include <bit>

#include "codecs/fraction.h"
#include "codecs/registration.h"
#include "codecs/sparse/sparse_ops.h"
#include "codecs/sparse/sparse_part.h"

namespace deltawire::topk {

namespace {

using sparse::Candidates;
using sparse::PartCoder;

constexpr ParameterInfo kParameters[] = {
    {"k", "0.000001 <= k < 1, or in percent", "0.01", "share of the elements that is sent"},
    sparse::kValuesParameter,
    sparse::kPositionsParameter,
};

constexpr std::string_view kExamples[] = {"topk:k=0.1,values=bf16", "topk:k=0.3,values=int8,positions=auto"};

constexpr CodecInfo kInfo = {
    .id = 14,
    .name = "topk",
    .summary = "the elements of largest magnitude, as positions and values, with error feedback: 79x at k=1%",
    .source = "Stich, Cordonnier, Jaggi: Sparsified SGD with Memory (NeurIPS 2018), definition 2.1",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "gather",
    .error_feedback = true,
    .finite_only = true,
    .sparse = true,
    .key_value = true,
    .scalars = 1,
};

// The encoder's scratch: candidates of both signs, then what was chosen of them. kLists arrays of `room`
// numbers; the last two pairs hold magnitudes of both signs together, and spare ones, until then.
struct Selection {
  static constexpr std::uint64_t kLists = 8;

  Selection(MutBytes scratch, std::uint64_t room) noexcept {
    auto* at = reinterpret_cast<std::uint32_t*>(scratch.data());
    positive = {at, at + room, 0};
    negative = {at + 2 * room, at + 3 * room, 0};
    positions = at + 4 * room;
    values = reinterpret_cast<float*>(at + 6 * room);
  }

  std::uint32_t* spare() const noexcept { return reinterpret_cast<std::uint32_t*>(values); }

  Candidates positive;
  Candidates negative;
  std::uint32_t* positions;
  float* values;
  std::uint64_t count = 0;
  std::uint32_t largest = 0;  // magnitude
};

// Takes candidates in the order of their positions, both signs together, as long as they are among the
// largest.
class Merge {
 public:
  Merge(Selection& to, const sparse::Threshold& threshold) noexcept : to_(to), threshold_(threshold) {}

  void run() noexcept {
    const Candidates& positive = to_.positive;
    const Candidates& negative = to_.negative;
    std::uint64_t i = 0;
    std::uint64_t j = 0;
    while (i < positive.count || j < negative.count) {
      const bool first =
          j == negative.count || (i < positive.count && positive.positions[i] < negative.positions[j]);
      if (first) {
        take(positive.positions[i], positive.magnitudes[i], 0);
        ++i;
      } else {
        take(negative.positions[j], negative.magnitudes[j], kSignBit);
        ++j;
      }
    }
  }

 private:
  void take(std::uint32_t position, std::uint32_t magnitude, std::uint32_t sign) noexcept {
    if (magnitude < threshold_.magnitude) return;
    if (magnitude == threshold_.magnitude) {
      if (threshold_.ties == 0) return;
      --threshold_.ties;
    }
    to_.positions[to_.count] = position;
    to_.values[to_.count++] = std::bit_cast<float>(magnitude | sign);
    to_.largest = std::max(to_.largest, magnitude);
  }

  Selection& to_;
  sparse::Threshold threshold_;
};

class Topk final : public sparse::PartCodec {
 public:
  Topk(float k, const PartCoder& coder) noexcept : PartCodec(kInfo, coder), k_(k) {}

  std::string spec() const override { return "topk:k=" + canonical_number(k_) + coder().spec(); }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    const std::uint64_t elements = part.elements();
    if (elements == 0) return {};
    if (elements > kMaxFractionElements) return coder().sizes(1, elements);
    const std::uint64_t kept = most_sent(part);
    Sizes sizes = coder().sizes(kept, elements);
    sizes.scratch_bytes = Selection::kLists * room(part, kept) * sizeof(std::uint32_t);
    return sizes;
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const std::uint64_t keep = most_sent(part.view);
    Selection chosen(exec.scratch, room(part.view, keep));
    if (keep > 0) choose(part, keep, chosen);
    // What isn't finite is larger than all else, so it was chosen.
    if (chosen.largest >= kInfinityBits) return not_finite();
    const ValueCode code = sparse::code_for(coder().values(), chosen.largest);
    if (part.view.has_keys()) {
      for (std::uint64_t i = 0; i < chosen.count; ++i) {
        chosen.positions[i] = part.view.keys[chosen.positions[i]];
      }
    }
    EncodedPart encoded{.scalar = std::bit_cast<std::uint32_t>(code.step)};
    std::uint64_t at = 0;
    do {
      const std::uint64_t count = std::min<std::uint64_t>(chosen.count - at, sparse::kChunkPositions);
      coder().append({chosen.positions + at, chosen.values + at, count}, code, out, encoded);
      at += count;
    } while (at < chosen.count);
    sparse::leave_unsent(coder().kernels(), part, {chosen.positions, chosen.values, chosen.count});
    return encoded;
  }

  // k of all elements, but no more than are given.
  std::uint64_t most_sent(const TensorView& part) const noexcept {
    return std::min(kept_of(k_, part.elements()), part.count);
  }

  static std::uint64_t room(const TensorView& part, std::uint64_t kept) noexcept {
    return sparse::candidate_room(part.count, kept);
  }

  // Of each sign the largest, then of both.
  void choose(const PartSource& part, std::uint64_t keep, Selection& chosen) const {
    const sparse::Kernels& kernels = coder().kernels();
    float* const left = part.left != part.residual ? part.left : nullptr;
    kernels.select({part.in, part.residual, left, part.count, keep}, chosen.positive, chosen.negative,
                   chosen.spare());
    sparse::Threshold threshold{0, 0};  // no candidate is a zero
    const Candidates& positive = chosen.positive;
    const Candidates& negative = chosen.negative;
    const std::uint64_t count = positive.count + negative.count;
    if (count > keep) {
      std::uint32_t* const both = chosen.positions;
      std::copy_n(positive.magnitudes, positive.count, both);
      std::copy_n(negative.magnitudes, negative.count, both + positive.count);
      threshold = kernels.find_threshold(both, count, keep, chosen.spare());
    }
    Merge(chosen, threshold).run();
  }

  float k_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  const auto k = fraction_parameter(spec, "k", {.low = 1e-6F, .high = 1, .default_value = 0.01F});
  if (!k) return forward_error(k);
  const auto coder = sparse::part_coder(kInfo.name, spec, target);
  if (!coder) return forward_error(coder);
  return std::make_unique<const Topk>(*k, *coder);
}

}  // namespace

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<sparse::kernels_for>};
}

}  // namespace deltawire::topk
