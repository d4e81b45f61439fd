#include "codecs/sparse/sparse_part.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

#include "base/bit_functions.h"
#include "base/checked.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "base/little_endian.h"
#include "codecs/kernel_table.h"
#include "codecs/part_checks.h"

namespace deltawire::sparse {

namespace {

// What lies between the bins: 6 standard deviations are four widths of 1.5, of which the authors' bin 2 has
// the center in its middle; the outer bins take all that lies beyond.
constexpr double kInner = 0.75;
constexpr double kOuter = 2.25;

unsigned bin_of(float value, const Bins& bins) noexcept {
  const double apart = double{value} - bins.center;
  if (apart > kInner * bins.deviation) return 3;
  if (apart >= -kInner * bins.deviation) return 2;
  return apart > -kOuter * bins.deviation ? 1 : 0;
}

}  // namespace

Bins bins_of(std::span<const float> values) noexcept {
  Bins bins;
  if (values.size() <= kBinCount) {
    std::ranges::copy(values, bins.means);
    bins.of_one_each = true;
    return bins;
  }
  const auto count = static_cast<double>(values.size());
  double sum = 0;
  for (const float value : values) sum += value;
  bins.center = sum / count;
  double squares = 0;
  for (const float value : values) {
    const double apart = double{value} - bins.center;
    squares += apart * apart;
  }
  bins.deviation = std::sqrt(squares / (count - 1));
  double sums[kBinCount] = {};
  std::uint64_t counts[kBinCount] = {};
  for (const float value : values) {
    const unsigned bin = bin_of(value, bins);
    sums[bin] += value;
    ++counts[bin];
  }
  for (unsigned bin = 0; bin < kBinCount; ++bin) {
    if (counts[bin] > 0) bins.means[bin] = static_cast<float>(sums[bin] / static_cast<double>(counts[bin]));
  }
  return bins;
}

void encode_bins(std::span<float> values, const Bins& bins, std::byte* out) noexcept {
  std::fill_n(out, bin_code_bytes(static_cast<std::uint32_t>(values.size())), std::byte{0});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const unsigned bin = bins.of_one_each ? static_cast<unsigned>(i) : bin_of(values[i], bins);
    out[i / 4] |= static_cast<std::byte>(bin << i % 4 * kBinCodeBits);
    values[i] = bins.means[bin];
  }
}

bool has_bin_padding(const std::byte* codes, std::uint32_t count) noexcept {
  return count % 4 != 0 && std::to_integer<unsigned>(codes[count / 4]) >> count % 4 * kBinCodeBits != 0;
}

void decode_bins(const std::byte* codes, const Bins& bins, std::span<float> values) noexcept {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = bins.means[std::to_integer<unsigned>(codes[i / 4]) >> i % 4 * kBinCodeBits & 3];
  }
}

void store_means(const Bins& bins, std::byte* out) noexcept {
  for (unsigned bin = 0; bin < kBinCount; ++bin) {
    store_le(out + bin * sizeof(float), std::bit_cast<std::uint32_t>(bins.means[bin]));
  }
}

bool load_means(const std::byte* at, Bins& bins) noexcept {
  for (unsigned bin = 0; bin < kBinCount; ++bin) {
    bins.means[bin] = std::bit_cast<float>(load_le<std::uint32_t>(at + bin * sizeof(float)));
  }
  return std::ranges::all_of(bins.means, [](float mean) {
    return (std::bit_cast<std::uint32_t>(mean) & kMagnitudeMask) < kInfinityBits;
  });
}

namespace {

constexpr std::string_view kPositionCodes[] = {"golomb", "auto"};
constexpr std::string_view kValueFormats[] = {"fp32", "bf16", "int8", "2bit"};
constexpr std::size_t kWholeByteFormats = 3;  // the first ones

// b is held at 24 only in a last chunk of fewer gaps.
constexpr std::uint64_t kHeldGaps = 256;
constexpr std::uint64_t kLongestCodeBytes = (kMaxUnary + kEscapeBits) / 8;

std::uint64_t held_bound(std::uint64_t kept, std::uint64_t count) noexcept {
  return count >> kMaxParameter != 0 ? std::min(kept, kHeldGaps) * kLongestCodeBytes : 0;
}

std::uint64_t bits_of_value(ValueFormat format) noexcept {
  return format == ValueFormat::kBins ? kBinCodeBits : value_bytes(format) * std::uint64_t{8};
}

std::uint64_t bytes_of_values(ValueFormat format, std::uint64_t count) noexcept {
  return ceil_div(count * bits_of_value(format), 8);
}

// What stands before the values of a chunk.
std::uint32_t means_bytes(ValueFormat format, std::size_t chunk, std::uint64_t count) noexcept {
  return format == ValueFormat::kBins && chunk == 0 && count > 0 ? kMeansBytes : 0;
}

Result<ValueFormat> values_among(std::span<const std::string_view> formats, const ParsedSpec& spec) {
  ASSIGN_OR_RETURN(const auto format, choice_parameter(spec, "values", formats, 0));
  return static_cast<ValueFormat>(format);
}

constexpr Sizes kTooMany = {.payload_bytes = std::numeric_limits<std::uint64_t>::max()};

}  // namespace

// Golomb: of n gaps with the sum S (positions counted, d = S / n) the rule for b gives 0.38 d < 2^b <= d
// where b isn't held at 24. So a remainder has at most log2(d) bits, the ones of all unary parts are at most
// n / 0.38, and escapes, one for 24 of these ones at the most and each up to 31 bits longer than the plain
// code, add less than 3.4 n: with the zeros in all n (log2(d) + 7). Interpolative: a position among s places
// that nobody needs takes at most 1 + log2(s + 1) bits, each halving shares the places out, and n (log2(d)
// + 3.4) is more than the sum. Chunks of one density take the most.
std::uint64_t positions_bound(std::uint64_t kept, std::uint64_t count) noexcept {
  assert(kept > 0 && kept <= count);
  const auto distance_bits = static_cast<unsigned>(std::bit_width(ceil_div(count, kept) - 1));
  return ceil_div(kept * (distance_bits + 7), 8) + held_bound(kept, count) +
         ceil_div(kept, kChunkPositions) * kMaxChunkOverhead;
}

// k (log2(n / k) + 8) grows with k up to n.
std::uint64_t any_positions_bound(std::uint64_t count) noexcept {
  return count + held_bound(count, count) + ceil_div(count, kChunkPositions) * kMaxChunkOverhead;
}

Status check_count(std::string_view codec, std::uint64_t count) {
  if (count <= kMaxElements) return {};
  return corrupt(std::string(codec) + ": a part has fewer than 2^32 elements, not " + std::to_string(count));
}

Result<PositionCode> positions_parameter(const ParsedSpec& spec) {
  ASSIGN_OR_RETURN(const auto code, choice_parameter(spec, "positions", kPositionCodes, 0));
  return static_cast<PositionCode>(code);
}

std::string_view name_of(PositionCode code) noexcept {
  return kPositionCodes[static_cast<std::size_t>(code)];
}

std::uint32_t write_positions(const Kernels& kernels, PositionCode code,
                              std::span<const std::uint32_t> positions, MutBytes out) {
  const auto count = static_cast<std::uint32_t>(positions.size());
  assert(count <= kChunkPositions);
  if (code == PositionCode::kShorter) {
    const std::uint32_t bytes = kernels.interpolate_chunk(positions.data(), count, out.data(), out.size());
    if (bytes < kernels.golomb_bytes(positions.data(), count)) return bytes;
  }
  return kernels.encode_chunk(positions.data(), count, out.data(), out.size());
}

Result<ValueFormat> values_parameter(const ParsedSpec& spec) {
  return values_among(std::span(kValueFormats).first(kWholeByteFormats), spec);
}

std::string_view name_of(ValueFormat format) noexcept {
  return kValueFormats[static_cast<std::size_t>(format)];
}

Status check_step(std::string_view codec, ValueFormat format, std::uint32_t step) {
  if (step <= (format == ValueFormat::kInt8 ? int8::kLargestStep : 0)) return {};
  return corrupt(std::string(codec) + ": the bits of the step are " + std::to_string(step) +
                 ", and no step of values=" + std::string(name_of(format)));
}

ValueCode code_for(ValueFormat format, std::uint32_t largest) noexcept {
  if (format != ValueFormat::kInt8) return {format, 0};
  return {format, int8::step_for(FloatEnvironment::pinned(std::bit_cast<float>(largest)))};
}

void leave_unsent(const Kernels& kernels, const PartSource& part, const Elements& sent, std::uint64_t begin,
                  std::uint64_t end) {
  assert(part.left == nullptr || (begin <= end && end <= part.count && sent.count <= end - begin));
  if (part.left == nullptr) return;
  if (part.left == part.residual) kernels.add(part.in + begin, part.left + begin, end - begin);
  kernels.subtract_elements(part.left, sent);
}

namespace {

Result<PartCoder> part_coder_of(std::string_view codec, const ParsedSpec& spec,
                                const Result<ValueFormat>& values, TargetId target) {
  if (!values) return forward_error(values);
  ASSIGN_OR_RETURN(const auto positions, positions_parameter(spec));
  return PartCoder(codec, positions, *values, kernels_for(target));
}

}  // namespace

Result<PartCoder> part_coder(std::string_view codec, const ParsedSpec& spec, TargetId target) {
  return part_coder_of(codec, spec, values_parameter(spec), target);
}

Result<PartCoder> part_coder_with_bins(std::string_view codec, const ParsedSpec& spec, TargetId target) {
  return part_coder_of(codec, spec, values_among(kValueFormats, spec), target);
}

Sizes PartCoder::sizes(std::uint64_t kept, std::uint64_t elements) const noexcept {
  if (elements > kMaxElements) return kTooMany;
  const std::uint64_t chunks = std::max<std::uint64_t>(1, ceil_div(kept, kChunkPositions));
  const std::uint64_t positions = kept > 0 ? positions_bound(kept, elements) : kEmptyHeadBytes;
  const std::uint64_t values = bytes_of_values(values_, kept) + means_bytes(values_, 0, kept);
  return Sizes{.payload_bytes = positions + values, .chunks = static_cast<std::uint32_t>(chunks)};
}

Sizes PartCoder::sizes_of_any(std::uint64_t elements) const noexcept {
  if (elements > kMaxElements) return kTooMany;
  return Sizes{.payload_bytes = any_positions_bound(elements) + elements * value_bytes(values_),
               .chunks = static_cast<std::uint32_t>(ceil_div(elements, kChunkPositions))};
}

void PartCoder::append(const SentElements& sent, const PartCode& code, const PartBuffer& out,
                       EncodedPart& part) const {
  assert(sent.count <= kChunkPositions && part.payload_bytes <= out.payload.size());
  const MutBytes rest = out.payload.subspan(part.payload_bytes);
  const auto count = static_cast<std::uint32_t>(sent.count);
  const std::uint32_t written = write_positions(kernels_, positions_, {sent.positions, count}, rest);
  const std::uint32_t means = means_bytes(values_, part.chunks, count);
  if (means > 0) store_means(code.bins, rest.data() + written);
  std::byte* const codes = rest.data() + written + means;
  if (values_ == ValueFormat::kBins) {
    encode_bins({sent.values, count}, code.bins, codes);
  } else {
    kernels_.encode_values(sent.values, count, code.plain, codes);
  }
  assert(written + means + bytes_of_values(values_, count) <= rest.size());
  assert(part.chunks < out.chunk_ends.size());
  part.payload_bytes += written + means + bytes_of_values(values_, count);
  out.chunk_ends[part.chunks++] = static_cast<std::uint32_t>(part.payload_bytes);
}

// What the next chunk is decoded to.
struct PartCoder::DecodedChunk {
  std::array<std::uint32_t, kChunkPositions> positions;
  const std::byte* codes = nullptr;  // of its values
  std::uint32_t means_bytes = 0;     // before them
  PartCode code;
  ChunkContent content;
};

Status PartCoder::check_values(std::size_t number, const DecodedChunk& chunk) const {
  const std::uint32_t count = chunk.content.positions;
  if (values_ == ValueFormat::kBins) {
    if (!has_bin_padding(chunk.codes, count)) return {};
    return chunk_error(codec_, ErrorCode::kCorrupt, number, "bits follow the code of the last value");
  }
  const std::uint64_t bad = kernels_.find_bad_value(chunk.codes, count, chunk.code.plain);
  if (bad == count) return {};
  return chunk_error(codec_, ErrorCode::kCorrupt, number,
                     "value " + std::to_string(bad) + " is none that an encoder writes");
}

void PartCoder::decode_values(const DecodedChunk& chunk, float* values) const noexcept {
  const std::uint32_t count = chunk.content.positions;
  if (values_ == ValueFormat::kBins) return decode_bins(chunk.codes, chunk.code.bins, {values, count});
  kernels_.decode_values(chunk.codes, count, chunk.code.plain, values);
}

Status PartCoder::decode_chunk(const ChunkBytes& bytes, std::size_t number, std::uint64_t elements,
                               DecodedChunk& chunk) const {
  const std::uint64_t begin = chunk.content.next;
  if (bytes.bytes < kEmptyHeadBytes) return fault_status(codec_, number, &faults::kTruncated);
  const std::uint32_t count = load_le<std::uint16_t>(bytes.at + 1);
  chunk.means_bytes = means_bytes(values_, number, count);
  const auto value_size = chunk.means_bytes + static_cast<std::uint32_t>(bytes_of_values(values_, count));
  if (count > kChunkPositions || value_size > bytes.bytes - kEmptyHeadBytes) {
    return fault_status(codec_, number, count > kChunkPositions ? &faults::kCount : &faults::kTruncated);
  }
  const ChunkBytes positions{bytes.at, bytes.bytes - value_size};
  chunk.codes = bytes.at + positions.bytes + chunk.means_bytes;
  chunk.content =
      kernels_.decode_chunk(positions, begin, {.count = elements, .positions = chunk.positions.data()});
  RETURN_IF_ERROR(fault_status(codec_, number, chunk.content.fault));
  if (chunk.means_bytes > 0 && !load_means(bytes.at + positions.bytes, chunk.code.bins)) {
    return chunk_error(codec_, ErrorCode::kCorrupt, number, "the mean of a bin is not finite");
  }
  return check_values(number, chunk);
}

template <class Visit>
Status PartCoder::decode_chunks(const PartView& in, std::uint64_t elements, Visit visit) const {
  if (auto ok = check_count(codec_, elements); !ok || elements == 0) return ok;
  RETURN_IF_ERROR(check_step(codec_, values_, in.scalar));
  DecodedChunk chunk;
  chunk.code.plain = {values_, FloatEnvironment::pinned(std::bit_cast<float>(in.scalar))};
  for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
    const ChunkBytes bytes = chunk_of(in, i);
    RETURN_IF_ERROR(decode_chunk(bytes, i, elements, chunk));
    const std::uint32_t count = chunk.content.positions;
    if (i + 1 < in.chunk_ends.size() && count < kChunkPositions) {
      return chunk_error(codec_, ErrorCode::kCorrupt, i,
                         "fewer than 16384 positions, though another chunk follows");
    }
    if (count == 0 && (i > 0 || in.scalar != 0)) {
      return chunk_error(codec_, ErrorCode::kCorrupt, i, "no positions, but a step or a chunk before it");
    }
    RETURN_IF_ERROR(visit(chunk, bytes.bytes));
  }
  return {};
}

Status PartCoder::decode(const PartView& in, const PartTarget& out) const {
  RETURN_IF_ERROR(check_count(codec_, out.count));
  if (!out.accumulate) std::fill_n(out.slot, out.count, 0.0F);
  const ScatterTarget target{out.slot, out.scale, out.accumulate};
  std::array<float, kChunkPositions> values;
  return decode_chunks(in, out.count, [&](const DecodedChunk& chunk, std::uint32_t) -> Status {
    decode_values(chunk, values.data());
    kernels_.scatter({chunk.positions.data(), values.data(), chunk.content.positions}, target);
    return {};
  });
}

Result<std::uint64_t> PartCoder::decode_pairs(const PartView& in, const TensorSlot& out, float scale) const {
  std::uint64_t pairs = 0;
  bool fits = true;
  std::array<float, kChunkPositions> values;
  const auto list = [&](const DecodedChunk& chunk, std::uint32_t) -> Status {
    decode_values(chunk, values.data());
    for (std::uint32_t i = 0; i < chunk.content.positions; ++i) {
      const float value = values[i];
      if (value == 0) continue;
      fits = pairs < out.count;
      if (!fits)
        return fail(ErrorCode::kOutputTooSmall, std::string(codec_) + ": more pairs than room for them");
      out.keys[pairs] = chunk.positions[i];
      static_cast<float*>(out.values)[pairs++] = scale * value;
    }
    return {};
  };
  RETURN_IF_ERROR(decode_chunks(in, out.dimension, list));
  return pairs;
}

Status PartCoder::describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const {
  std::uint64_t heads = 0;
  std::uint64_t codes = 0;
  std::uint64_t means = 0;
  std::uint64_t values = 0;
  std::uint64_t all = 0;
  const auto add_up = [&](const DecodedChunk& chunk, std::uint32_t bytes) -> Status {
    heads += chunk.content.head_bytes * std::uint64_t{8};
    codes += chunk.content.code_bits;
    means += chunk.means_bytes * std::uint64_t{8};
    values += chunk.content.positions * bits_of_value(values_);
    all += bytes * std::uint64_t{8};
    return {};
  };
  RETURN_IF_ERROR(decode_chunks(in, count, add_up));
  add_section(sections, "chunk heads", heads);
  add_section(sections, "positions", codes);
  add_section(sections, "means", means);
  add_section(sections, "values", values);
  add_section(sections, "padding", all - heads - codes - means - values);
  return {};
}

DELTAWIRE_KERNELS(reference, avx2, avx512, neon)

}  // namespace deltawire::sparse
