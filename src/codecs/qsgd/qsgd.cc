// qsgd: levels between 0 and a bucket's norm, rounded by chance without bias, in Elias codes. spec.md in this
// folder defines the bytes.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/checked.h"
#include "base/errors.h"
#include "base/little_endian.h"
#include "codecs/kernels/draws.h"
#include "codecs/kernels/elias.h"
#include "codecs/kernels/lanes.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/two_passes.h"

namespace deltawire::qsgd {

namespace {

constexpr std::uint64_t kChunkElements = 65536;
constexpr std::uint32_t kNormBytes = 4;

enum class Coding : std::uint8_t { kGamma, kOmega };

// How a chunk is cut and coded.
struct Plan {
  std::uint32_t levels = 0;  // s, 1 to 65,535
  std::uint32_t bucket = 0;  // elements that share a norm; divides kChunkElements
  Coding coding = Coding::kGamma;
};

std::uint64_t buckets_of(std::uint64_t count, const Plan& plan) noexcept {
  return count / plan.bucket + (count % plan.bucket != 0 ? 1 : 0);
}

EliasBits code_of(std::uint32_t number, const Plan& plan) noexcept {
  return plan.coding == Coding::kGamma ? gamma_bits_of(number) : omega_bits_of(number);
}

// What is wrong with a chunk that a decoder refuses.
namespace faults {

constexpr ChunkFault kTruncated = {"its bytes end before it does", FaultCode::kTruncated};
constexpr ChunkFault kNorm = {"a norm is negative or not finite"};
constexpr ChunkFault kPosition = {"a position lies outside its bucket"};
constexpr ChunkFault kLevel = {"a level is above the highest"};
constexpr ChunkFault kPadding = {"bits follow the last code"};

}  // namespace faults

// What the bits of decoded chunks are for.
struct Decoded {
  std::uint64_t gap_bits = 0;
  std::uint64_t signs = 0;
  std::uint64_t level_bits = 0;
};

struct DecodeTarget {
  float* slot = nullptr;  // null: read only
  std::uint32_t count = 0;
  float scale = 1;
  bool accumulate = false;  // slot += instead of slot =; a level of 0 leaves it as it is
};

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

// What a level stands for: at most the norm, so never Inf.
float magnitude_of(std::uint32_t level, float norm, const Plan& plan) noexcept {
  return static_cast<float>(static_cast<double>(norm) * level / plan.levels);
}

// |x| / norm * s, rounded down or up by the draw. The product is exact, the quotient at most s.
std::uint32_t level_of(float x, float norm, const Plan& plan, double u) noexcept {
  const auto magnitude = static_cast<double>(bit_cast<float>(magnitude_bits(x)));
  const double exact = magnitude * plan.levels / static_cast<double>(norm);
  const auto low = static_cast<std::uint32_t>(exact);
  return low + (u < exact - low ? 1U : 0U);
}

void put(BitWriter& writer, const EliasBits& code) noexcept {
  writer.put(code.value, code.bits);
}

// A bucket with a norm: the gap to each level above 0, its sign, the level; at last the gap to the end.
void encode_bucket(const Addends& x, const Draws& draws, const Plan& plan, float norm,
                   BitWriter& writer) noexcept {
  std::uint32_t next = 0;  // the position after the last one
  for (std::uint32_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    const std::uint32_t level = level_of(sum, norm, plan, uniform_at(draws, i));
    const float magnitude = magnitude_of(level, norm, plan);
    if (x.left != nullptr) x.left[i] = sum - (sum < 0 ? -magnitude : magnitude);
    if (level == 0) continue;
    put(writer, code_of(i + 1 - next, plan));
    writer.put(sum < 0 ? 1 : 0, 1);
    put(writer, code_of(level, plan));
    next = i + 1;
  }
  const auto count = static_cast<std::uint32_t>(x.count);
  if (next < count) put(writer, code_of(count + 1 - next, plan));
}

// Writes the norms, one for each bucket, and the codes of x, whose levels are drawn; left, where that is
// wanted, = what they leave. Returns the bytes written. REQUIRES: no |x| is above its bucket's norm; `out`
// has `room` bytes, enough for all.
std::uint64_t encode_chunk(const Addends& x, const Draws& draws, const Plan& plan, const float* norms,
                           std::byte* out, std::uint64_t room) {
  const std::uint64_t head = buckets_of(x.count, plan) * kNormBytes;
  BitWriter writer(out + head, room - head);
  for (std::uint64_t at = 0, i = 0; at < x.count; at += plan.bucket, ++i) {
    const std::uint64_t rest = x.count - at;
    const Addends bucket = some_of(x, at, rest < plan.bucket ? rest : plan.bucket);
    store_le(out + i * kNormBytes, bit_cast<std::uint32_t>(norms[i]));
    if (norms[i] == 0) {  // all are 0, and what is left of them is nothing
      for (std::uint64_t k = 0; k < bucket.count && bucket.left != nullptr; ++k)
        bucket.left[k] = sum_at(bucket, k);
    } else {
      encode_bucket(bucket, {draws.random, draws.first + at}, plan, norms[i], writer);
    }
  }
  return head + writer.finish();
}

std::uint32_t read_number(BitReader& reader, const Plan& plan) noexcept {
  return plan.coding == Coding::kGamma ? read_gamma(reader) : read_omega(reader);
}

void put_value(const DecodeTarget& target, std::uint32_t i, float value) noexcept {
  if (target.slot == nullptr) return;
  float& slot = target.slot[i];
  slot = target.accumulate ? slot + target.scale * value : target.scale * value;
}

Fault decode_bucket(BitReader& reader, const Plan& plan, float norm, const DecodeTarget& target,
                    Decoded& decoded) noexcept {
  for (std::uint32_t next = 0; next < target.count;) {
    const std::uint32_t gap = read_number(reader, plan);
    if (reader.exhausted()) return &faults::kTruncated;
    if (gap == 0 || gap > target.count + 1 - next) return &faults::kPosition;
    decoded.gap_bits += code_of(gap, plan).bits;
    next += gap;
    if (next > target.count) break;
    const bool negative = reader.get(1) != 0;
    const std::uint32_t level = read_number(reader, plan);
    if (reader.exhausted()) return &faults::kTruncated;
    if (level == 0 || level > plan.levels) return &faults::kLevel;
    decoded.signs += 1;
    decoded.level_bits += code_of(level, plan).bits;
    const float magnitude = magnitude_of(level, norm, plan);
    put_value(target, next - 1, negative ? -magnitude : magnitude);
  }
  return nullptr;
}

Fault check_norms(const std::byte* norms, std::uint64_t buckets) noexcept {
  for (std::uint64_t i = 0; i < buckets; ++i) {
    if (load_le<std::uint32_t>(norms + i * kNormBytes) >= kInfinityBits) return &faults::kNorm;
  }
  return nullptr;
}

// Decodes a chunk of any bytes. Reads inside `chunk` alone, writes inside the slot's `count` values alone; on
// a fault the slot's content is unspecified.
Fault decode_chunk(const ChunkBytes& chunk, const Plan& plan, const DecodeTarget& target, Decoded& decoded) {
  const std::uint64_t head = buckets_of(target.count, plan) * kNormBytes;
  if (chunk.bytes < head) return &faults::kTruncated;
  if (const Fault fault = check_norms(chunk.at, head / kNormBytes); fault != nullptr) return fault;
  for (std::uint32_t i = 0; i < target.count && target.slot != nullptr && !target.accumulate; ++i) {
    target.slot[i] = 0;
  }
  BitReader reader(chunk.at + head, chunk.bytes - head);
  for (std::uint32_t at = 0; at < target.count; at += plan.bucket) {
    const auto norm = bit_cast<float>(load_le<std::uint32_t>(chunk.at + at / plan.bucket * kNormBytes));
    if (norm == 0) continue;
    DecodeTarget bucket = target;
    bucket.slot = target.slot != nullptr ? target.slot + at : nullptr;
    bucket.count = target.count - at < plan.bucket ? target.count - at : plan.bucket;
    const Fault fault = decode_bucket(reader, plan, norm, bucket, decoded);
    if (fault != nullptr) return fault;
  }
  return reader.at_clean_end() ? nullptr : &faults::kPadding;
}

class Qsgd final : public Codec {
 public:
  Qsgd(const Plan& plan, bool largest) noexcept : Codec(kInfo), plan_(plan), largest_(largest) {}

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
    RETURN_IF_ERROR(find_norms(first, norms));
    const CounterRng random(exec.stream);
    EncodedPart encoded;
    for (std::uint64_t at = 0; at < part.count; at += kChunkElements) {
      const std::uint64_t count = std::min(part.count - at, kChunkElements);
      const auto room = out.payload.subspan(encoded.payload_bytes, bound_of(count));
      encoded.payload_bytes += encode_chunk(some_of(second, at, count), {random, at}, plan_,
                                            norms + at / plan_.bucket, room.data(), room.size());
      out.chunk_ends[encoded.chunks++] = static_cast<std::uint32_t>(encoded.payload_bytes);
    }
    return encoded;
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    Decoded decoded;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const DecodeTarget target{out.slot + i * kChunkElements,
                                elements_of_chunk(out.count, i, kChunkElements), out.scale, out.accumulate};
      RETURN_IF_ERROR(fault_status("qsgd", i, decode_chunk(chunk_of(in, i), plan_, target, decoded)));
    }
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    std::uint64_t norms = 0;
    Decoded all;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const std::uint32_t elements = elements_of_chunk(count, i, kChunkElements);
      const Fault fault = decode_chunk(chunk_of(in, i), plan_, {nullptr, elements}, all);
      RETURN_IF_ERROR(fault_status("qsgd", i, fault));
      norms += buckets_of(elements, plan_) * kNormBytes * 8;
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
      const Spread spread = spread_of(some_of(x, at, count));
      if (spread.largest >= kInfinityBits) return not_finite();
      const double root = std::sqrt(spread.sum);
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
};

Result<std::uint32_t> levels_parameter(const ParsedSpec& spec) {
  ASSIGN_OR_RETURN(const auto levels,
                   float_parameter(spec, "levels", {.low = 1, .high = 65536, .default_value = 16}));
  if (levels == std::floor(levels)) return static_cast<std::uint32_t>(levels);
  return invalid("qsgd: levels=" + canonical_number(levels) + " is not a whole number: give one");
}

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId) {
  ASSIGN_OR_RETURN(const auto levels, levels_parameter(spec));
  ASSIGN_OR_RETURN(const auto norm, choice_parameter(spec, "norm", kNorms, 0));
  ASSIGN_OR_RETURN(const auto bucket, choice_parameter(spec, "bucket", kBuckets, kDefaultBucket));
  ASSIGN_OR_RETURN(const auto coding, choice_parameter(spec, "coding", kCodings, 0));
  const Plan plan{levels, kLeastBucket << bucket, coding == 1 ? Coding::kOmega : Coding::kGamma};
  return std::make_unique<const Qsgd>(plan, norm == 1);
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make};

}  // namespace deltawire::qsgd
