// onebit: the sign of each value, and the mean of each side, with error feedback. spec.md in this folder
// defines the bytes.
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/checked.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "base/little_endian.h"
#include "codecs/fixed_codec.h"
#include "codecs/onebit/onebit_ops.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/spec_string.h"
#include "codecs/two_passes.h"
#include "deltawire/codec.h"

namespace deltawire::onebit {

namespace {

constexpr std::uint64_t kChunkElements = 65536;
constexpr std::uint64_t kChunkBytes = kChunkElements / 8;

constexpr ParameterInfo kParameters[] = {
    {"means", "part or column", "part",
     "whose means travel: those of a whole part, or of a matrix's columns"},
};

constexpr std::string_view kExamples[] = {"onebit:means=column"};

// Means of columns stand in a chunk of their own, so that such parts are never cut.
constexpr CodecInfo info_with(bool columns) noexcept {
  return {
      .id = 9,
      .name = "onebit",
      .summary = "signs and the mean of each side, with error feedback: 32x smaller",
      .source = "Seide, Fu, Droppo, Li, Yu: 1-Bit Stochastic Gradient Descent (Interspeech 2014), section 3",
      .parameters = kParameters,
      .examples = kExamples,
      .default_pattern = "direct",
      .error_feedback = true,
      .late = true,
      .finite_only = true,
      .scalars = static_cast<std::uint8_t>(columns ? 0 : 2),
      .chunk_elements = columns ? 0 : kChunkElements,
  };
}

std::uint64_t bytes_of(std::uint64_t count) noexcept {
  return ceil_div(count, 8);
}

float mean_of(double sum, std::uint64_t count) noexcept {
  return static_cast<float>(sum / static_cast<double>(count));
}

Status bad_mean(std::string_view which, std::uint32_t bits, std::string_view wanted) {
  return corrupt("onebit: the mean \"" + std::string(which) + "\" is " +
                 number_text(std::bit_cast<float>(bits)) + ", not " + std::string(wanted));
}

// The means of `count` values with these sides; +0 for a side without any.
Means means_of(const Sides& sides, std::uint64_t count) noexcept {
  const std::uint64_t others = count - sides.negatives;
  return {others > 0 ? mean_of(sides.high, others) : 0,
          sides.negatives > 0 ? -mean_of(sides.low, sides.negatives) : 0};
}

// Whether an encoder could have written these bits of means: kCorrupt.
Status check_means(std::uint32_t high, std::uint32_t low) {
  if (high >= kInfinityBits) return bad_mean("high", high, "a finite number >= 0");
  const std::uint32_t magnitude = low & kMagnitudeMask;
  if (low != 0 && (low == magnitude || magnitude == 0 || magnitude >= kInfinityBits)) {
    return bad_mean("low", low, "a finite number below 0, or 0 without negative values");
  }
  return {};
}

// Means of a part, which are its scalars.

constexpr CodecInfo kInfo = info_with(false);

class Onebit final : public FixedCodec {
 public:
  explicit Onebit(const Kernels& kernels) noexcept
      : FixedCodec(kInfo, Field{"signs", 1}), kernels_(kernels) {}

 private:
  Result<Scalars> encode_codes(const PartSource& part, const Exec&, std::byte* payload) const override {
    const auto [first, second] = two_passes(part);
    const Sides sides = kernels_.split(first, payload);
    if (sides.largest >= kInfinityBits) return not_finite();
    const Means means = means_of(sides, part.count);
    if (second.left != nullptr) kernels_.take_means(second, means);
    return Scalars{std::bit_cast<std::uint32_t>(means.high), std::bit_cast<std::uint32_t>(means.low)};
  }

  Status check_codes(const PartView& in, std::uint64_t count) const override {
    RETURN_IF_ERROR(check_means(in.scalar, in.scalar2));
    const std::uint64_t bytes = in.payload.size();
    if (in.scalar2 == 0 && kernels_.find_set(in.payload.data(), bytes) < bytes) {
      return corrupt("onebit: a value is negative although the part has no mean for it");
    }
    return check_padding(in, count);
  }

  Status decode_codes(const PartView& in, const PartTarget& out) const override {
    RETURN_IF_ERROR(check_codes(in, out.count));
    const Means values{FloatEnvironment::pinned(std::bit_cast<float>(in.scalar)) * out.scale,
                       FloatEnvironment::pinned(std::bit_cast<float>(in.scalar2)) * out.scale};
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    kernel(in.payload.data(), out.count, values, out.slot);
    return {};
  }

  const Kernels& kernels_;
};

// Means of columns: a chunk of means, then the bits.

// In a column with fewer values, means would take more than a bit per value.
constexpr std::uint64_t kLeastRows = 64;
constexpr std::uint64_t kCountBytes = 4;

constexpr CodecInfo kColumnsInfo = info_with(true);

std::uint64_t most_columns(std::uint64_t count) noexcept {
  return std::max<std::uint64_t>(count / kLeastRows, 1);
}

// A matrix has as many rows as its first extent says. What has no shape, one extent or few rows is a column.
std::uint64_t columns_of(const TensorView& part) noexcept {
  if (part.dims.size() < 2 || part.dims[0] < kLeastRows) return 1;
  return part.count / part.dims[0];
}

class OnebitColumns final : public Codec {
 public:
  explicit OnebitColumns(const Kernels& kernels) noexcept : Codec(kColumnsInfo), kernels_(kernels) {}

  std::string spec() const override { return "onebit:means=column"; }

 private:
  // For any shape with this many elements.
  Sizes do_sizes(const TensorView& part) const noexcept override {
    if (part.count == 0) return {};
    const std::uint64_t columns = most_columns(part.count);
    return {.payload_bytes = kCountBytes + columns * kColumnBytes + bytes_of(part.count),
            .chunks = chunks_or_max(1 + ceil_div(part.count, kChunkElements)),
            .scratch_bytes = product_or_max(columns, sizeof(Sides))};
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const std::uint64_t columns = columns_of(part.view);
    const std::uint64_t head = kCountBytes + columns * kColumnBytes;
    const auto [first, second] = two_passes(part);
    auto* const sides = reinterpret_cast<Sides*>(exec.scratch.data());
    const std::uint32_t largest = kernels_.split_columns(first, {sides, columns}, out.payload.data() + head);
    if (largest >= kInfinityBits) return not_finite();
    store_le(out.payload.data(), static_cast<std::uint32_t>(columns));
    std::byte* const means = out.payload.data() + kCountBytes;
    for (std::uint64_t j = 0; j < columns; ++j) {
      const Means both = means_of(sides[j], part.count / columns);
      store_le(means + j * kColumnBytes, std::bit_cast<std::uint32_t>(both.high));
      store_le(means + j * kColumnBytes + 4, std::bit_cast<std::uint32_t>(both.low));
    }
    if (second.left != nullptr) kernels_.take_column_means(second, {means, columns});
    return write_ends(part.count, head, out.chunk_ends);
  }

  static EncodedPart write_ends(std::uint64_t count, std::uint64_t head, std::span<std::uint32_t> ends) {
    EncodedPart encoded = write_fixed_ends(bytes_of(count), kChunkBytes, 1, ends.subspan(1));
    ends[0] = 0;
    encoded.chunks += 1;
    for (std::uint32_t& end : ends.first(encoded.chunks)) end += static_cast<std::uint32_t>(head);
    encoded.payload_bytes += head;
    return encoded;
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    if (out.count == 0) return {};
    RETURN_IF_ERROR(check_part(in, out.count));
    const ColumnMeans means = means_in(in);
    kernels_.decode_columns(means.at + means.count * kColumnBytes, means,
                            {out.slot, out.count, out.scale, out.accumulate});
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (count == 0) return {};
    RETURN_IF_ERROR(check_part(in, count));
    const std::uint64_t columns = means_in(in).count;
    add_section(sections, "columns", kCountBytes * 8);
    add_section(sections, "means", columns * kColumnBytes * 8);
    add_section(sections, "signs", count);
    add_section(sections, "padding",
                in.payload.size() * 8 - count - (kCountBytes + columns * kColumnBytes) * 8);
    return {};
  }

  // REQUIRES: 4 bytes.
  static ColumnMeans means_in(const PartView& in) noexcept {
    return {in.payload.data() + kCountBytes, load_le<std::uint32_t>(in.payload.data())};
  }

  Status check_part(const PartView& in, std::uint64_t count) const {
    RETURN_IF_ERROR(check_chunks_of(in, count));
    const ColumnMeans means = means_in(in);
    for (std::uint64_t j = 0; j < means.count; ++j) {
      const std::byte* const at = means.at + j * kColumnBytes;
      RETURN_IF_ERROR(check_means(load_le<std::uint32_t>(at), load_le<std::uint32_t>(at + 4)));
    }
    const std::byte* const bits = means.at + means.count * kColumnBytes;
    if (kernels_.find_without_mean(bits, count, means) < count) {
      return corrupt("onebit: a value is negative although its column has no mean for it");
    }
    if (count % 8 == 0 || std::to_integer<unsigned>(in.payload.back()) >> count % 8 == 0) return {};
    return corrupt("onebit: bits follow the last element");
  }

  // The number of columns, and the ends of all chunks.
  static Status check_chunks_of(const PartView& in, std::uint64_t count) {
    const std::uint64_t chunks = 1 + ceil_div(count, kChunkElements);
    if (in.chunk_ends.size() != chunks) {
      return corrupt("onebit: " + std::to_string(in.chunk_ends.size()) + " chunks for " +
                     std::to_string(count) + " elements, expected " + std::to_string(chunks));
    }
    if (in.chunk_ends[0] < kCountBytes) return truncated("onebit: no number of columns");
    const std::uint64_t columns = means_in(in).count;
    if (columns == 0 || columns > most_columns(count) || count % columns != 0) {
      return corrupt("onebit: " + std::to_string(count) + " elements don't make " + std::to_string(columns) +
                     " columns");
    }
    std::uint64_t end = kCountBytes + columns * kColumnBytes;
    for (std::size_t i = 0; i < chunks; ++i) {
      if (i > 0) end += bytes_of(elements_of_chunk(count, i - 1, kChunkElements));
      if (in.chunk_ends[i] == end) continue;
      return chunk_error(
          "onebit", in.chunk_ends[i] < end ? ErrorCode::kTruncated : ErrorCode::kCorrupt, i,
          "it ends at byte " + std::to_string(in.chunk_ends[i]) + ", expected " + std::to_string(end));
    }
    return {};
  }

  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  constexpr std::string_view kChoices[] = {"part", "column"};
  ASSIGN_OR_RETURN(const auto means, choice_parameter(spec, "means", kChoices, 0));
  if (means == 1) return std::make_unique<const OnebitColumns>(kernels_for(target));
  return std::make_unique<const Onebit>(kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference, avx2)

extern constinit const Registration kRegistration = {&kInfo, make, own_kernels<kernels_for>};

}  // namespace deltawire::onebit
