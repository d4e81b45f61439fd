// dropping: gradient dropping, after A. F. Aji, K. Heafield, "Sparse Communication for Distributed Gradient
// Descent" (EMNLP 2017), as the paper of 3LC compares it: a threshold from a sample, a bitmap, float32
// values. Bytes: spec.md.

#include <algorithm>
#include <limits>

#include "base/bit_functions.h"
#include "base/checked.h"
#include "base/errors.h"
#include "base/little_endian.h"
#include "base/random.h"
#include "codecs/kernels/addends.h"
#include "codecs/kernels/draws.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/sparse/sparse_ops.h"
#include "codecs/spec_string.h"

namespace deltawire::dropping {

namespace {

constexpr std::uint64_t kChunkElements = 65536;
constexpr std::uint32_t kValueBytes = 4;
constexpr std::uint64_t kSample = 16384;

constexpr ParameterInfo kParameters[] = {
    {"k", "0.000001 <= k < 1, or in percent", "0.05", "share of the elements that is sent, about"},
};

constexpr std::string_view kExamples[] = {"dropping:k=0.3"};

constexpr CodecInfo kInfo = {
    .id = 16,
    .name = "dropping",
    .summary =
        "the largest elements by a threshold from a sample, in a bitmap, with error feedback: 12x at k=5%",
    .source = "Aji, Heafield: Sparse Communication for Distributed Gradient Descent (EMNLP 2017)",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "gather",
    .error_feedback = true,
    .late = true,
    .finite_only = true,
    .sparse = true,
    .chunk_elements = kChunkElements,
};

constexpr std::uint32_t bitmap_bytes(std::uint64_t elements) noexcept {
  return static_cast<std::uint32_t>((elements + 7) / 8);
}

// What is wrong with a chunk that a decoder refuses.
namespace faults {

using deltawire::faults::kTruncated;
constexpr ChunkFault kPadding = {"a set bit behind the last element's"};
constexpr ChunkFault kTrailingBytes = {"bytes follow the last value"};
constexpr ChunkFault kValue = {"a value that is not finite"};

}  // namespace faults

// The encoder's scratch.
struct Sample {
  std::uint32_t magnitudes[kSample];
  std::uint32_t spare[kSample + sparse::kVectorSlack];
};

// Writes a chunk of those x whose magnitudes have at least the bits `least`; left, where that is wanted, is 0
// where one is sent and x elsewhere. Returns the bytes written: at most bitmap_bytes and kValueBytes for each
// element. REQUIRES: least > 0.
std::uint32_t encode_chunk(const Addends& x, std::uint32_t least, std::byte* out) {
  std::uint32_t written = bitmap_bytes(x.count);
  for (std::uint32_t i = 0; i < written; ++i) out[i] = std::byte{0};
  for (std::uint64_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    const bool is_sent = magnitude_bits(sum) >= least;
    if (x.left != nullptr) x.left[i] = is_sent ? 0 : sum;
    if (!is_sent) continue;
    out[i / 8] |= static_cast<std::byte>(1U << i % 8);
    store_le(out + written, bit_cast<std::uint32_t>(sum));
    written += kValueBytes;
  }
  return written;
}

std::uint32_t sent_in(const ChunkBytes& chunk, std::uint32_t bytes) noexcept {
  std::uint32_t sent = 0;
  for (std::uint32_t i = 0; i < bytes; ++i) sent += popcount(static_cast<std::uint64_t>(chunk.at[i]));
  return sent;
}

Fault check_chunk(const ChunkBytes& chunk, std::uint64_t count) noexcept {
  const std::uint32_t bitmap = bitmap_bytes(count);
  if (chunk.bytes < bitmap) return &faults::kTruncated;
  const unsigned used = count % 8;
  if (used != 0 && static_cast<unsigned>(chunk.at[bitmap - 1]) >> used != 0) return &faults::kPadding;
  const std::uint32_t sent = sent_in(chunk, bitmap);
  if (chunk.bytes - bitmap < sent * kValueBytes) return &faults::kTruncated;
  if (chunk.bytes - bitmap > sent * kValueBytes) return &faults::kTrailingBytes;
  for (std::uint32_t at = bitmap; at < chunk.bytes; at += kValueBytes) {
    if ((load_le<std::uint32_t>(chunk.at + at) & kMagnitudeMask) >= kInfinityBits) return &faults::kValue;
  }
  return nullptr;
}

// Overwriting, those not sent become 0. On a fault the slot's content is unspecified; a null slot checks
// alone.
Fault decode_elements(const ChunkBytes& chunk, std::uint64_t count, const PartTarget& target) {
  const Fault fault = check_chunk(chunk, count);
  if (fault != nullptr || target.slot == nullptr) return fault;
  std::uint32_t at = bitmap_bytes(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!target.accumulate) target.slot[i] = 0;
    if ((static_cast<unsigned>(chunk.at[i / 8]) >> i % 8 & 1) == 0) continue;
    const float value = bit_cast<float>(load_le<std::uint32_t>(chunk.at + at));
    at += kValueBytes;
    if (value == 0) continue;
    target.slot[i] = target.accumulate ? target.slot[i] + target.scale * value : target.scale * value;
  }
  return nullptr;
}

class Dropping final : public Codec {
 public:
  Dropping(float k, const sparse::Kernels& selecting) noexcept : Codec(kInfo), k_(k), selecting_(selecting) {}

  std::string spec() const override { return "dropping:k=" + canonical_number(k_); }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    if (part.count == 0) return {};
    if (part.count > kMaxFractionElements) {
      return {.payload_bytes = std::numeric_limits<std::uint64_t>::max()};
    }
    Sizes sizes = fixed_sizes(part.count, kChunkElements, kValueBytes);
    sizes.payload_bytes += bitmap_bytes(part.count);
    sizes.scratch_bytes = sizeof(Sample);
    return sizes;
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const Addends x{part.in, part.residual, part.left, part.count};
    if (largest_magnitude(x.in, x.residual, x.count) >= kInfinityBits) return not_finite();
    const std::uint32_t least = threshold(x, exec);
    EncodedPart encoded;
    for (std::uint64_t at = 0; at < x.count; at += kChunkElements) {
      const Addends some = some_of(x, at, std::min(kChunkElements, x.count - at));
      encoded.payload_bytes += encode_chunk(some, least, out.payload.data() + encoded.payload_bytes);
      out.chunk_ends[encoded.chunks++] = static_cast<std::uint32_t>(encoded.payload_bytes);
    }
    return encoded;
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      PartTarget target = out;
      target.slot += i * kChunkElements;
      RETURN_IF_ERROR(decode_chunk(in, i, out.count, target));
    }
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      RETURN_IF_ERROR(decode_chunk(in, i, count, {}));
    }
    add_section(sections, "bitmap", std::uint64_t{bitmap_bytes(count)} * 8);
    add_section(sections, "fp32 values", (in.payload.size() - bitmap_bytes(count)) * 8);
    return {};
  }

  static Status decode_chunk(const PartView& in, std::size_t chunk, std::uint64_t count,
                             const PartTarget& target) {
    const std::uint64_t elements = std::min(kChunkElements, count - chunk * kChunkElements);
    return fault_status("dropping", chunk, decode_elements(chunk_of(in, chunk), elements, target));
  }

  // The magnitude from which on elements are sent: that of the last among the share of a sample. At least the
  // smallest, as zeros are not sent.
  std::uint32_t threshold(const Addends& x, const Exec& exec) const {
    auto& sample = *reinterpret_cast<Sample*>(exec.scratch.data());
    const std::uint64_t count = std::min(kSample, x.count);
    const Draw draw{CounterRng(exec.stream), x.count, count};
    for (std::uint64_t i = 0; i < count; ++i) {
      sample.magnitudes[i] = magnitude_bits(sum_at(x, place_of(draw, i).at));
    }
    const std::uint64_t keep = kept_of(k_, count);
    const sparse::Threshold bound = selecting_.find_threshold(sample.magnitudes, count, keep, sample.spare);
    // A target may part the sample at a magnitude that no element has: the least of those above is everywhere
    // the same.
    const std::uint32_t all_above = bound.ties > 0 ? bound.magnitude : bound.magnitude + 1;
    std::uint32_t least = kMagnitudeMask;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (sample.magnitudes[i] >= all_above) least = std::min(least, sample.magnitudes[i]);
    }
    return std::max(least, 1U);
  }

  float k_;
  const sparse::Kernels& selecting_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  ASSIGN_OR_RETURN(const auto k,
                   fraction_parameter(spec, "k", {.low = 1e-6F, .high = 1, .default_value = 0.05F}));
  return std::make_unique<const Dropping>(k, sparse::kernels_for(target));
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make, own_kernels<sparse::kernels_for>};

}  // namespace deltawire::dropping
