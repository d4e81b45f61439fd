// topk: the elements of largest magnitude, with error feedback. Bytes: spec.md.

#include <algorithm>
#include <bit>
#include <cassert>
#include <optional>

#include "base/errors.h"
#include "codecs/registration.h"
#include "codecs/sparse/sparse_ops.h"
#include "codecs/sparse/sparse_part.h"
#include "codecs/spec_string.h"

namespace deltawire::topk {

namespace {

using sparse::Candidates;
using sparse::PartCoder;

constexpr ParameterInfo kParameters[] = {
    {"k", "0.000001 <= k < 1, or in percent", "0.01", "share of the elements that is sent"},
    sparse::kValuesOrBinsParameter,
    sparse::kPositionsParameter,
    {"chunk", "none, 64, 128, ..., 65536", "none", "elements of which each time the largest are sent"},
    {"pull", "k, or 0.000001 <= pull < 1, or in percent", "k", "the k of means, which owners send back"},
};
constexpr std::string_view kBlocks[] = {"none", "64",   "128",  "256",   "512",   "1024",
                                        "2048", "4096", "8192", "16384", "32768", "65536"};
constexpr std::uint64_t kLeastBlock = 64;

constexpr std::string_view kExamples[] = {"topk:k=0.1,values=bf16", "topk:k=0.3,values=int8,positions=auto",
                                          "topk:k=0.2,values=2bit", "topk:k=0.015625,values=2bit,chunk=4096"};

constexpr CodecInfo info_with(bool late) noexcept {
  return {
      .id = 14,
      .name = "topk",
      .summary =
          "the elements of largest magnitude, as positions and values, with error feedback: 79x at k=1%",
      .source = "Stich, Cordonnier, Jaggi: Sparsified SGD with Memory (NeurIPS 2018), definition 2.1",
      .parameters = kParameters,
      .examples = kExamples,
      .default_pattern = "gather",
      .error_feedback = true,
      .late = late,
      .finite_only = true,
      .sparse = true,
      .key_value = true,
      .scalars = 1,
  };
}

constexpr CodecInfo kInfo = info_with(true);
// Half of the elements and more, the largest, are most of a gradient.
constexpr float kMost = 0.5F;
constexpr CodecInfo kMostInfo = info_with(false);

// The encoder's scratch: candidates of both signs, then what was chosen of them. kLists arrays of `room`
// numbers; the last two pairs hold magnitudes of both signs together, and spare ones. What is chosen takes
// their place, or has room for so many `apart` where more is chosen later.
struct Selection {
  static constexpr std::uint64_t kLists = 8;

  Selection(MutBytes scratch, std::uint64_t room, std::uint64_t apart) noexcept {
    assert(scratch.size() >= (kLists * room + 2 * apart) * sizeof(std::uint32_t));
    auto* at = reinterpret_cast<std::uint32_t*>(scratch.data());
    positive = {at, at + room, 0};
    negative = {at + 2 * room, at + 3 * room, 0};
    both = at + 4 * room;
    spare = at + 6 * room;
    positions = apart > 0 ? at + kLists * room : both;
    values = reinterpret_cast<float*>(apart > 0 ? positions + apart : spare);
  }

  Candidates positive;
  Candidates negative;
  std::uint32_t* both;
  std::uint32_t* spare;
  std::uint32_t* positions;
  float* values;
  std::uint64_t count = 0;
  std::uint32_t largest = 0;  // magnitude
};

// Takes candidates in the order of their positions, which count from `base`, both signs together, as long as
// they are among the largest.
class Merge {
 public:
  Merge(Selection& to, const sparse::Threshold& threshold, std::uint64_t base) noexcept
      : to_(to), threshold_(threshold), base_(static_cast<std::uint32_t>(base)) {}

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
    to_.positions[to_.count] = base_ + position;
    to_.values[to_.count++] = std::bit_cast<float>(magnitude | sign);
    to_.largest = std::max(to_.largest, magnitude);
  }

  Selection& to_;
  sparse::Threshold threshold_;
  std::uint32_t base_;
};

// Elements or pairs of a part, and how many of them are sent at most.
struct Block {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
  std::uint64_t keep = 0;
};

class Topk final : public sparse::PartCodec {
 public:
  // block: 0 where the largest of the whole part are sent.
  Topk(float k, std::uint64_t block, std::optional<float> pull, const PartCoder& coder) noexcept
      : PartCodec(k < kMost ? kInfo : kMostInfo, coder), k_(k), block_(block), pull_(pull) {}

  // `chunk` and `pull` came later: specs that don't name them keep their hash.
  std::string spec() const override {
    return pull_ ? spec_with(k_) + ",pull=" + canonical_number(*pull_) : spec_with(k_);
  }

  std::string mean_spec() const override { return spec_with(pull_.value_or(k_)); }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    const std::uint64_t elements = part.elements();
    if (elements == 0) return {};
    if (elements > kMaxFractionElements) return coder().sizes(1, elements);
    const std::uint64_t kept = most_sent(part);
    Sizes sizes = coder().sizes(kept, elements);
    sizes.scratch_bytes = (Selection::kLists * room(part) + 2 * room_apart(part)) * sizeof(std::uint32_t);
    return sizes;
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    Selection chosen(exec.scratch, room(part.view), room_apart(part.view));
    choose_of_all(part, chosen);
    // What isn't finite is larger than all else, so it was chosen.
    if (chosen.largest >= kInfinityBits) return not_finite();
    assert(chosen.count <= most_sent(part.view));
    const sparse::PartCode code = code_of(chosen);
    if (part.view.has_keys()) {
      for (std::uint64_t i = 0; i < chosen.count; ++i) {
        chosen.positions[i] = part.view.keys[chosen.positions[i]];
      }
    }
    EncodedPart encoded{.scalar = std::bit_cast<std::uint32_t>(code.plain.step)};
    std::uint64_t at = 0;
    do {
      const std::uint64_t count = std::min<std::uint64_t>(chosen.count - at, sparse::kChunkPositions);
      coder().append({chosen.positions + at, chosen.values + at, count}, code, out, encoded);
      at += count;
    } while (at < chosen.count);
    sparse::leave_unsent(coder().kernels(), part, {chosen.positions, chosen.values, chosen.count}, 0,
                         part.count);
    return encoded;
  }

  sparse::PartCode code_of(const Selection& chosen) const noexcept {
    if (coder().values() != ValueFormat::kBins) return {sparse::code_for(coder().values(), chosen.largest)};
    return {{coder().values(), 0}, sparse::bins_of({chosen.values, chosen.count})};
  }

  // k of all elements, but no more than are given.
  std::uint64_t most_sent(const TensorView& part) const noexcept {
    const std::uint64_t elements = part.elements();
    if (block_ == 0) return std::min(kept_of(k_, elements), part.count);
    const std::uint64_t rest = elements % block_;
    const std::uint64_t kept = elements / block_ * kept_of(k_, block_) + (rest > 0 ? kept_of(k_, rest) : 0);
    return std::min(kept, part.count);
  }

  // What select() needs for a block.
  std::uint64_t room(const TensorView& part) const noexcept {
    if (block_ == 0) return sparse::candidate_room(part.count, most_sent(part));
    return sparse::candidate_room(std::min(part.count, block_), kept_of(k_, block_));
  }

  std::uint64_t room_apart(const TensorView& part) const noexcept {
    return block_ == 0 ? 0 : most_sent(part);
  }

  void choose_of_all(const PartSource& part, Selection& chosen) const {
    if (block_ == 0) return choose(part, {0, part.count, most_sent(part.view)}, chosen);
    const TensorView& view = part.view;
    for (std::uint64_t at = 0; at < view.count;) {
      const std::uint64_t first = view.has_keys() ? view.keys[at] : at;
      const std::uint64_t begin = first - first % block_;
      const std::uint64_t end = std::min(begin + block_, view.elements());
      const std::uint64_t next = view.has_keys() ? first_pair_from(view, at, end) : end;
      choose(part, {at, next - at, std::min(kept_of(k_, end - begin), next - at)}, chosen);
      at = next;
    }
  }

  // The first pair from `at` on whose key is `key` or larger.
  static std::uint64_t first_pair_from(const TensorView& part, std::uint64_t at, std::uint64_t key) noexcept {
    while (at < part.count && part.keys[at] < key) ++at;
    return at;
  }

  // Of each sign the largest, then of both.
  void choose(const PartSource& part, const Block& block, Selection& chosen) const {
    if (block.keep == 0) return;
    assert(block.keep <= block.count);
    const sparse::Kernels& kernels = coder().kernels();
    const auto from_block = [&](auto* values) { return values == nullptr ? nullptr : values + block.begin; };
    float* const left = part.left != part.residual ? from_block(part.left) : nullptr;
    kernels.select({from_block(part.in), from_block(part.residual), left, block.count, block.keep},
                   chosen.positive, chosen.negative, chosen.spare);
    sparse::Threshold threshold{0, 0};  // no candidate is a zero
    const Candidates& positive = chosen.positive;
    const Candidates& negative = chosen.negative;
    const std::uint64_t count = positive.count + negative.count;
    if (count > block.keep) {
      std::copy_n(positive.magnitudes, positive.count, chosen.both);
      std::copy_n(negative.magnitudes, negative.count, chosen.both + positive.count);
      threshold = kernels.find_threshold(chosen.both, count, block.keep, chosen.spare);
    }
    Merge(chosen, threshold, block.begin).run();
  }

  std::string spec_with(float k) const {
    const std::string plain = "topk:k=" + canonical_number(k) + coder().spec();
    return block_ == 0 ? plain : plain + ",chunk=" + std::to_string(block_);
  }

  float k_;
  std::uint64_t block_;
  std::optional<float> pull_;  // none: as k
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  constexpr FloatRange kRange = {.low = 1e-6F, .high = 1, .default_value = 0.01F};
  ASSIGN_OR_RETURN(const auto k, fraction_parameter(spec, "k", kRange));
  ASSIGN_OR_RETURN(const auto coder, sparse::part_coder_with_bins(kInfo.name, spec, target));
  ASSIGN_OR_RETURN(const auto block, choice_parameter(spec, "chunk", kBlocks, 0));
  ASSIGN_OR_RETURN(const auto pull, pull_parameter(spec, "k", kRange));
  return std::make_unique<const Topk>(k, block == 0 ? 0 : kLeastBlock << (block - 1), pull, coder);
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make, own_kernels<sparse::kernels_for>};

}  // namespace deltawire::topk
