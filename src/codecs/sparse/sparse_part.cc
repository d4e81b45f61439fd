#include "codecs/sparse/sparse_part.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/checked.h"
#include "base/float_environment.h"
#include "base/little_endian.h"
#include "codecs/kernel_table.h"
#include "codecs/part_checks.h"

namespace deltawire::sparse {

namespace {

constexpr std::string_view kPositionCodes[] = {"golomb", "auto"};
constexpr std::string_view kValueFormats[] = {"fp32", "bf16", "int8"};

// b is held at 24 only in a last chunk of fewer gaps.
constexpr std::uint64_t kHeldGaps = 256;
constexpr std::uint64_t kLongestCodeBytes = (kMaxUnary + kEscapeBits) / 8;

std::uint64_t held_bound(std::uint64_t kept, std::uint64_t count) noexcept {
  return count >> kMaxParameter != 0 ? std::min(kept, kHeldGaps) * kLongestCodeBytes : 0;
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
  const auto distance_bits = static_cast<unsigned>(std::bit_width(ceil_div(count, kept) - 1));
  return ceil_div(kept * (distance_bits + 7), 8) + held_bound(kept, count) +
         ceil_div(kept, kChunkPositions) * kMaxChunkOverhead;
}

// k (log2(n / k) + 8) grows with k up to n.
std::uint64_t any_positions_bound(std::uint64_t count) noexcept {
  return count + held_bound(count, count) + ceil_div(count, kChunkPositions) * kMaxChunkOverhead;
}

std::string_view fault_text(Fault fault) noexcept {
  switch (fault) {
    case Fault::kNone: return "no fault";
    case Fault::kTruncated: return "the bytes end before the chunk does";
    case Fault::kParameter: return "Rice parameter above 24";
    case Fault::kLanes: return "lanes other than 1, 4 or 8";
    case Fault::kUnusedCode: return "a code for gaps where there are none";
    case Fault::kCount: return "more than 16384 positions";
    case Fault::kOrder: return "its first position isn't behind the chunk before";
    case Fault::kPosition: return "a position outside the part";
    case Fault::kEscape: return "a raw gap that has a shorter code";
    case Fault::kPadding: return "bits follow the last code of a lane";
    case Fault::kTrailingBytes: return "bytes follow an empty chunk";
    case Fault::kLast: return "no room for its positions before the last one";
  }
  return "unknown fault";
}

Status check_count(std::string_view codec, std::uint64_t count) {
  if (count <= kMaxElements) return {};
  return fail(ErrorCode::kCorrupt,
              std::string(codec) + ": a part has fewer than 2^32 elements, not " + std::to_string(count));
}

Result<PositionCode> positions_parameter(const ParsedSpec& spec) {
  const auto code = choice_parameter(spec, "positions", kPositionCodes, 0);
  if (!code) return forward_error(code);
  return static_cast<PositionCode>(*code);
}

std::string_view name_of(PositionCode code) noexcept {
  return kPositionCodes[static_cast<std::size_t>(code)];
}

std::uint32_t write_positions(const Kernels& kernels, PositionCode code,
                              std::span<const std::uint32_t> positions, MutBytes out) {
  const auto count = static_cast<std::uint32_t>(positions.size());
  if (code == PositionCode::kShorter) {
    const std::uint32_t bytes = kernels.interpolate_chunk(positions.data(), count, out.data(), out.size());
    if (bytes < kernels.golomb_bytes(positions.data(), count)) return bytes;
  }
  return kernels.encode_chunk(positions.data(), count, out.data(), out.size());
}

Result<ValueFormat> values_parameter(const ParsedSpec& spec) {
  const auto format = choice_parameter(spec, "values", kValueFormats, 0);
  if (!format) return forward_error(format);
  return static_cast<ValueFormat>(*format);
}

std::string_view name_of(ValueFormat format) noexcept {
  return kValueFormats[static_cast<std::size_t>(format)];
}

Status check_step(std::string_view codec, ValueFormat format, std::uint32_t step) {
  if (step <= (format == ValueFormat::kInt8 ? int8::kLargestStep : 0)) return {};
  return fail(ErrorCode::kCorrupt, std::string(codec) + ": the bits of the step are " + std::to_string(step) +
                                       ", and no step of values=" + std::string(name_of(format)));
}

ValueCode code_for(ValueFormat format, std::uint32_t largest) noexcept {
  if (format != ValueFormat::kInt8) return {format, 0};
  return {format, int8::step_for(FloatEnvironment::pinned(std::bit_cast<float>(largest)))};
}

void leave_unsent(const Kernels& kernels, const PartSource& part, const Elements& sent) {
  if (part.residual == nullptr) return;
  if (part.left == part.residual) kernels.add(part.in, part.left, part.count);
  kernels.subtract_elements(part.left, sent);
}

Result<PartCoder> part_coder(std::string_view codec, const ParsedSpec& spec, TargetId target) {
  const auto values = values_parameter(spec);
  if (!values) return forward_error(values);
  const auto positions = positions_parameter(spec);
  if (!positions) return forward_error(positions);
  return PartCoder(codec, *positions, *values, kernels_for(target));
}

std::string PartCoder::spec() const {
  return ",values=" + std::string(name_of(values_)) + ",positions=" + std::string(name_of(positions_));
}

Sizes PartCoder::sizes(std::uint64_t kept, std::uint64_t elements) const noexcept {
  if (elements > kMaxElements) return kTooMany;
  const std::uint64_t chunks = std::max<std::uint64_t>(1, ceil_div(kept, kChunkPositions));
  const std::uint64_t positions = kept > 0 ? positions_bound(kept, elements) : kEmptyHeadBytes;
  return Sizes{.payload_bytes = positions + kept * value_bytes(values_),
               .chunks = static_cast<std::uint32_t>(chunks)};
}

Sizes PartCoder::sizes_of_any(std::uint64_t elements) const noexcept {
  if (elements > kMaxElements) return kTooMany;
  return Sizes{.payload_bytes = any_positions_bound(elements) + elements * value_bytes(values_),
               .chunks = static_cast<std::uint32_t>(ceil_div(elements, kChunkPositions))};
}

void PartCoder::append(const SentElements& sent, const ValueCode& code, const PartBuffer& out,
                       EncodedPart& part) const {
  const MutBytes rest = out.payload.subspan(part.payload_bytes);
  const auto count = static_cast<std::uint32_t>(sent.count);
  const std::uint32_t written = write_positions(kernels_, positions_, {sent.positions, count}, rest);
  kernels_.encode_values(sent.values, count, code, rest.data() + written);
  part.payload_bytes += written + std::uint64_t{count} * value_bytes(values_);
  out.chunk_ends[part.chunks++] = static_cast<std::uint32_t>(part.payload_bytes);
}

// What the next chunk is decoded to.
struct PartCoder::DecodedChunk {
  std::array<std::uint32_t, kChunkPositions> positions;
  const std::byte* codes = nullptr;  // of its values
  ValueCode code;
  ChunkContent content;
};

Status PartCoder::decode_chunk(const ChunkBytes& bytes, std::size_t number, std::uint64_t elements,
                               DecodedChunk& chunk) const {
  const std::uint64_t begin = chunk.content.next;
  if (bytes.bytes < kEmptyHeadBytes) {
    return fault_status(codec_, number, Fault::kTruncated, fault_text(Fault::kTruncated));
  }
  const std::uint32_t count = load_le<std::uint16_t>(bytes.at + 1);
  const std::uint32_t value_size = count * value_bytes(values_);
  if (count > kChunkPositions || value_size > bytes.bytes - kEmptyHeadBytes) {
    const Fault fault = count > kChunkPositions ? Fault::kCount : Fault::kTruncated;
    return fault_status(codec_, number, fault, fault_text(fault));
  }
  const ChunkBytes positions{bytes.at, bytes.bytes - value_size};
  chunk.codes = bytes.at + positions.bytes;
  chunk.content =
      kernels_.decode_chunk(positions, begin, {.count = elements, .positions = chunk.positions.data()});
  if (chunk.content.fault != Fault::kNone) {
    return fault_status(codec_, number, chunk.content.fault, fault_text(chunk.content.fault));
  }
  const std::uint64_t bad = kernels_.find_bad_value(chunk.codes, count, chunk.code);
  if (bad == count) return {};
  return chunk_error(codec_, ErrorCode::kCorrupt, number,
                     "value " + std::to_string(bad) + " is none that an encoder writes");
}

template <class Visit>
Status PartCoder::decode_chunks(const PartView& in, std::uint64_t elements, Visit visit) const {
  if (auto ok = check_count(codec_, elements); !ok || elements == 0) return ok;
  if (auto ok = check_step(codec_, values_, in.scalar); !ok) return ok;
  DecodedChunk chunk;
  chunk.code = {values_, FloatEnvironment::pinned(std::bit_cast<float>(in.scalar))};
  for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
    const ChunkBytes bytes = chunk_of(in, i);
    if (auto ok = decode_chunk(bytes, i, elements, chunk); !ok) return ok;
    const std::uint32_t count = chunk.content.positions;
    if (i + 1 < in.chunk_ends.size() && count < kChunkPositions) {
      return chunk_error(codec_, ErrorCode::kCorrupt, i,
                         "fewer than 16384 positions, though another chunk follows");
    }
    if (count == 0 && (i > 0 || in.scalar != 0)) {
      return chunk_error(codec_, ErrorCode::kCorrupt, i, "no positions, but a step or a chunk before it");
    }
    if (auto ok = visit(chunk, bytes.bytes); !ok) return ok;
  }
  return {};
}

Status PartCoder::decode(const PartView& in, const PartTarget& out) const {
  if (auto ok = check_count(codec_, out.count); !ok) return ok;
  if (!out.accumulate) std::fill_n(out.slot, out.count, 0.0F);
  const ScatterTarget target{out.slot, out.scale, out.accumulate};
  std::array<float, kChunkPositions> values;
  return decode_chunks(in, out.count, [&](const DecodedChunk& chunk, std::uint32_t) -> Status {
    kernels_.decode_values(chunk.codes, chunk.content.positions, chunk.code, values.data());
    kernels_.scatter({chunk.positions.data(), values.data(), chunk.content.positions}, target);
    return {};
  });
}

Result<std::uint64_t> PartCoder::decode_pairs(const PartView& in, const TensorSlot& out, float scale) const {
  std::uint64_t pairs = 0;
  bool fits = true;
  const auto list = [&](const DecodedChunk& chunk, std::uint32_t) -> Status {
    for (std::uint32_t i = 0; i < chunk.content.positions; ++i) {
      const float value = value_of(chunk.codes + std::uint64_t{i} * value_bytes(values_), chunk.code);
      if (value == 0) continue;
      fits = pairs < out.count;
      if (!fits)
        return fail(ErrorCode::kOutputTooSmall, std::string(codec_) + ": more pairs than room for them");
      out.keys[pairs] = chunk.positions[i];
      static_cast<float*>(out.values)[pairs++] = scale * value;
    }
    return {};
  };
  if (auto ok = decode_chunks(in, out.dimension, list); !ok) return forward_error(ok);
  return pairs;
}

Status PartCoder::describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const {
  std::uint64_t heads = 0;
  std::uint64_t codes = 0;
  std::uint64_t values = 0;
  std::uint64_t all = 0;
  const auto add_up = [&](const DecodedChunk& chunk, std::uint32_t bytes) -> Status {
    heads += chunk.content.head_bytes * std::uint64_t{8};
    codes += chunk.content.code_bits;
    values += std::uint64_t{chunk.content.positions} * value_bytes(values_) * 8;
    all += bytes * std::uint64_t{8};
    return {};
  };
  if (auto ok = decode_chunks(in, count, add_up); !ok) return ok;
  add_section(sections, "chunk heads", heads);
  add_section(sections, "positions", codes);
  add_section(sections, "values", values);
  add_section(sections, "padding", all - heads - codes - values);
  return {};
}

DELTAWIRE_KERNELS(reference, avx2, avx512, neon)

}  // namespace deltawire::sparse
