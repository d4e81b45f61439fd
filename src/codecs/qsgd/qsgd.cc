// qsgd: levels between 0 and a bucket's norm, rounded by chance without bias, in Elias codes. spec.md in this
// folder defines the bytes.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "base/float_environment.h"
#include "codecs/part_checks.h"
#include "codecs/qsgd/qsgd_ops.h"
#include "codecs/registration.h"
#include "codecs/two_passes.h"

namespace deltawire::qsgd {

namespace {

constexpr std::string_view kNorms[] = {"l2", "max"};
constexpr std::string_view kCodings[] = {"gamma", "omega"};
constexpr std::string_view kBuckets[] = {"64",   "128",  "256",   "512",   "1024", "2048",
                                         "4096", "8192", "16384", "32768", "65536"};
constexpr std::size_t kDefaultBucket = 3;
constexpr std::uint32_t kLeastBucket = 64;

constexpr ParameterInfo kParameters[] = {
    {"levels", "a whole number, 1 <= levels < 65536", "16", "s: steps between 0 and the norm"},
    {"norm", "l2 or max", "l2", "of a bucket: the root of the sum of squares, or the largest magnitude"},
    {"bucket", "a power of two, 64 to 65536", "512", "elements that share a norm"},
    {"coding", "gamma or omega", "gamma", "which of Elias' codes gaps and levels have"},
};

constexpr std::string_view kExamples[] = {"qsgd:levels=1,norm=max", "qsgd:levels=255,bucket=64,coding=omega"};

constexpr CodecInfo kInfo = {
    .id = 11,
    .name = "qsgd",
    .summary = "levels rounded by chance without bias, in Elias codes: 13x smaller",
    .source = "Alistarh, Grubic, Li, Tomioka, Vojnovic: QSGD (NeurIPS 2017), section 3",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "gather",
    .finite_only = true,
    .chunk_elements = kChunkElements,
};

std::string_view text_of(Fault fault) noexcept {
  switch (fault) {
    case Fault::kNorm: return "a norm is negative or not finite";
    case Fault::kPosition: return "a position lies outside its bucket";
    case Fault::kLevel: return "a level is above the highest";
    case Fault::kPadding: return "bits follow the last code";
    default: return "its bytes end before it does";
  }
}

class Qsgd final : public Codec {
 public:
  Qsgd(const Plan& plan, bool largest, const Kernels& kernels) noexcept
      : Codec(kInfo), plan_(plan), largest_(largest), kernels_(kernels) {}

  std::string spec() const override {
    return "qsgd:levels=" + std::to_string(plan_.levels) + ",norm=" + std::string(kNorms[largest_ ? 1 : 0]) +
           ",bucket=" + std::to_string(plan_.bucket) +
           ",coding=" + std::string(kCodings[plan_.coding == Coding::kOmega ? 1 : 0]);
  }

  // By the paper's lemma 3.1, of its variance. No level is above the largest magnitude, where that is the
  // norm.
  double gain() const noexcept override {
    if (largest_) return 1;
    const double bucket = plan_.bucket;
    const double levels = plan_.levels;
    return std::sqrt(1 + std::min(bucket / (levels * levels), std::sqrt(bucket) / levels));
  }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    const std::uint64_t whole = product_or_max(part.count / kChunkElements, bound_of(kChunkElements));
    return {.payload_bytes = sum_or_max(whole, bound_of(part.count % kChunkElements)),
            .chunks = chunks_or_max(ceil_div(part.count, kChunkElements)),
            .scratch_bytes = product_or_max(buckets_of(part.count, plan_), sizeof(float))};
  }

  // Bytes of a chunk of `count` elements at most. A gap of d has at most 2d - 1 bits, so that elements take
  // most where all have the highest level, and a bucket's end adds a bit to that at most.
  std::uint64_t bound_of(std::uint64_t count) const noexcept {
    const std::uint64_t buckets = buckets_of(count, plan_);
    const std::uint64_t bits = count * (2 + code_of(plan_.levels, plan_).bits) + buckets;
    return buckets * kNormBytes + ceil_div(bits, 8);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const auto [first, second] = two_passes(part);
    assert(exec.scratch.size() >= buckets_of(part.count, plan_) * sizeof(float));
    auto* const norms = reinterpret_cast<float*>(exec.scratch.data());
    if (auto ok = find_norms(first, norms); !ok) return forward_error(ok);
    const CounterRng random(exec.stream);
    EncodedPart encoded;
    for (std::uint64_t at = 0; at < part.count; at += kChunkElements) {
      const std::uint64_t count = std::min(part.count - at, kChunkElements);
      const auto room = out.payload.subspan(encoded.payload_bytes, bound_of(count));
      encoded.payload_bytes += kernels_.encode(some_of(second, at, count), {random, at}, plan_,
                                               norms + at / plan_.bucket, room.data(), room.size());
      out.chunk_ends[encoded.chunks++] = static_cast<std::uint32_t>(encoded.payload_bytes);
    }
    return encoded;
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const DecodeTarget target{out.slot + i * kChunkElements,
                                elements_of_chunk(out.count, i, kChunkElements), out.scale, out.accumulate};
      const Fault fault = kernels_.decode(chunk_of(in, i), plan_, target).fault;
      if (auto ok = fault_status("qsgd", i, fault, text_of(fault)); !ok) return ok;
    }
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    std::uint64_t norms = 0;
    Decoded all;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const std::uint32_t elements = elements_of_chunk(count, i, kChunkElements);
      const Decoded one = kernels_.decode(chunk_of(in, i), plan_, {nullptr, elements});
      if (auto ok = fault_status("qsgd", i, one.fault, text_of(one.fault)); !ok) return ok;
      norms += buckets_of(elements, plan_) * kNormBytes * 8;
      all.gap_bits += one.gap_bits;
      all.signs += one.signs;
      all.level_bits += one.level_bits;
    }
    add_section(sections, "norms", norms);
    add_section(sections, "positions", all.gap_bits);
    add_section(sections, "signs", all.signs);
    add_section(sections, "levels", all.level_bits);
    add_section(sections, "padding",
                in.payload.size() * 8 - norms - all.gap_bits - all.signs - all.level_bits);
    return {};
  }

  // The norm of each bucket, and x.left = x where that is wanted.
  Status find_norms(const Addends& x, float* norms) const {
    bool in_range = true;
    for (std::uint64_t at = 0, i = 0; at < x.count; at += plan_.bucket, ++i) {
      const std::uint64_t count = std::min<std::uint64_t>(x.count - at, plan_.bucket);
      const Spread spread = kernels_.sum_up(some_of(x, at, count));
      if (spread.largest >= kInfinityBits) return not_finite();
      const double root = std::sqrt(spread.squares);
      const bool fits = root <= static_cast<double>(std::numeric_limits<float>::max());
      in_range = in_range && (largest_ || fits);
      norms[i] = largest_ || !fits ? std::bit_cast<float>(spread.largest) : static_cast<float>(root);
    }
    if (in_range) return {};
    return fail(ErrorCode::kRange,
                "qsgd: the norm of a bucket is beyond float32: scale the tensor down, or use norm=max");
  }

  Plan plan_;
  bool largest_;
  const Kernels& kernels_;
};

Result<std::uint32_t> levels_parameter(const ParsedSpec& spec) {
  const auto levels = float_parameter(spec, "levels", {.low = 1, .high = 65536, .default_value = 16});
  if (!levels) return forward_error(levels);
  if (*levels == std::floor(*levels)) return static_cast<std::uint32_t>(*levels);
  return fail(ErrorCode::kInvalidArgument,
              "qsgd: levels=" + canonical_number(*levels) + " is not a whole number: give one");
}

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  const auto levels = levels_parameter(spec);
  if (!levels) return forward_error(levels);
  const auto norm = choice_parameter(spec, "norm", kNorms, 0);
  if (!norm) return forward_error(norm);
  const auto bucket = choice_parameter(spec, "bucket", kBuckets, kDefaultBucket);
  if (!bucket) return forward_error(bucket);
  const auto coding = choice_parameter(spec, "coding", kCodings, 0);
  if (!coding) return forward_error(coding);
  const Plan plan{*levels, kLeastBucket << *bucket, *coding == 1 ? Coding::kOmega : Coding::kGamma};
  return std::make_unique<const Qsgd>(plan, *norm == 1, kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference)

extern constinit const Registration kRegistration = {&kInfo, make, own_kernels<kernels_for>};

}  // namespace deltawire::qsgd
