// fastsgd: logarithmic value codes, a threshold and delta keys for sparse gradients, after K. Yang, L. Chen,
// Z. Zeng, Y. Gao, "FastSGD: A Fast Compressed SGD Framework for Distributed Machine Learning"
// (arXiv 2112.04291), section 3. spec.md in this folder defines the bytes.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <new>

#include "base/bit_functions.h"
#include "base/checked.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/fastsgd/fastsgd_threshold.h"
#include "codecs/pair_codec.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/sparse/sparse_ops.h"
#include "codecs/sparse/sparse_part.h"

namespace deltawire::fastsgd {

namespace {

constexpr ParameterInfo kParameters[] = {
    {"b", "1.02 <= b <= 2", "1.1", "base: a value is off by less than this factor, and never too large"},
    {"tau", "auto, or 1 to 2047", "auto", "threshold: values below sum/b^tau are dropped (128 in the paper)"},
    {"keep", "0.000001 <= keep < 1", "0.25", "tau=auto: the share of the elements that is sent at least"},
    {"l", "1 to 5", "2", "bits of the flag before each gap between keys that says how long it is"},
    {"residual", "on or off", "off", "on: what was dropped is sent later (dense tensors; not in the paper)"},
    {"keys", "flags or auto", "flags",
     "code of the keys: the paper's, or of each chunk the shorter of two others (not in the paper)"},
};

constexpr std::string_view kExamples[] = {"fastsgd:tau=128",
                                          "fastsgd:b=2,tau=300,l=5",
                                          "fastsgd:b=1.02,keep=0.9,l=1",
                                          "fastsgd:keep=0.3,residual=on",
                                          "fastsgd:tau=128,keys=auto",
                                          "fastsgd:keep=0.1,residual=on,keys=auto"};

constexpr CodecInfo info_with(bool error_feedback) {
  return CodecInfo{
      .id = 6,
      .name = "fastsgd",
      .summary =
          "key-value pairs: keys as short gaps, values as logarithms of their share, small ones dropped",
      .source = "Yang, Chen, Zeng, Gao: FastSGD (arXiv 2112.04291), section 3",
      .parameters = kParameters,
      .examples = kExamples,
      .default_pattern = "gather",
      .error_feedback = error_feedback,
      .finite_only = true,
      .sparse = true,
      .key_value = true,
      .scalars = 1,
  };
}

constexpr CodecInfo kInfo = info_with(false);
constexpr CodecInfo kInfoWithResidual = info_with(true);

// What a chunk's bits are spent on.
struct ChunkSections {
  std::uint64_t head = 0;
  std::uint64_t values = 0;
  std::uint64_t keys = 0;
};

// REQUIRES: a decoder has accepted the chunk.
ChunkSections chunk_sections(const ChunkBytes& chunk) noexcept {
  Head head;
  reference::read_head(chunk, true, true, head);
  if (head.pairs == 0) return {.head = kEmptyHeadBytes * 8, .values = 0, .keys = 0};
  const std::uint64_t value_bytes = (head.pairs * (head.code_bits + 1) + 7) / 8;
  return {.head = kHeadBytes * 8,
          .values = value_bytes * 8,
          .keys = (chunk.bytes - kHeadBytes - value_bytes) * 8};
}

// Chunks whose keys are coded as the sparse codecs code positions (spec.md, section 3.1): keys=auto, which is
// not the paper's.

constexpr std::uint32_t kCodeBytes = 2;  // the base, and the bits of the rest
constexpr std::uint32_t kLeastBytes = kCodeBytes + sparse::kEmptyHeadBytes;
static_assert(kChunkPairs == sparse::kChunkPositions);

std::uint32_t value_bytes(const Head& head) noexcept {
  return (head.pairs * (head.code_bits + 1) + 7) / 8;
}

// The kernels that code such chunks.
struct PositionKeys {
  const Kernels& kernels;
  const sparse::Kernels& positions;
};

// The most bytes that chunks of up to `pairs` pairs take in addition to their values. A part too large for
// this form gets a bound that no buffer has. REQUIRES: pairs <= elements, elements > 0.
std::uint64_t position_bytes_bound(std::uint64_t pairs, std::uint64_t elements) noexcept {
  if (elements > sparse::kMaxElements) return std::numeric_limits<std::uint64_t>::max();
  if (pairs == 0) return kLeastBytes;
  return sparse::positions_bound(pairs, elements) + kCodeBytes * ceil_div(pairs, kChunkPairs);
}

// Writes a chunk; returns its bytes. REQUIRES: the room that position_bytes_bound() and the values ask for.
std::uint32_t write_position_chunk(const PositionKeys& form, const ChunkPairs& chunk, MutBytes out) {
  const unsigned code_bits = bit_width(chunk.range.highest - chunk.range.lowest);
  store_le(out.data(), static_cast<std::uint16_t>(chunk.range.lowest | code_bits << kMaxCodeBits));
  const std::uint32_t head =
      kCodeBytes + sparse::write_positions(form.positions, sparse::PositionCode::kShorter,
                                           {chunk.keys, chunk.pairs}, out.subspan(kCodeBytes));
  const std::byte* const end = form.kernels.write_values(chunk, code_bits, out.data() + head);
  return static_cast<std::uint32_t>(end - out.data());
}

// What a chunk says before its keys are decoded.
struct PositionChunk {
  Head head;  // its pairs, base and code bits
  ChunkBytes positions;
  BitWindow values;
};

Fault read_position_chunk(const ChunkBytes& chunk, bool is_first, bool is_last,
                          PositionChunk& read) noexcept {
  if (chunk.bytes < kLeastBytes) return &faults::kTruncated;
  Head& head = read.head;
  head.pairs = load_le<std::uint16_t>(chunk.at + kCodeBytes + 1);  // behind the code of the positions
  if (head.pairs > kChunkPairs || (!is_last && head.pairs != kChunkPairs)) return &faults::kPairCount;
  if (head.pairs == 0 && !is_first) return &faults::kPairCount;
  const std::uint32_t codes = load_le<std::uint16_t>(chunk.at);
  head.base = codes & kMaxCode;
  head.code_bits = codes >> kMaxCodeBits;
  if (head.code_bits > kMaxCodeBits || (head.pairs == 0 && codes != 0)) return &faults::kHead;
  const std::uint32_t values = value_bytes(head);
  if (values > chunk.bytes - kLeastBytes) return &faults::kTruncated;
  read.positions = {chunk.at + kCodeBytes, chunk.bytes - kCodeBytes - values};
  read.values = {chunk.at + chunk.bytes - values, values};
  return nullptr;
}

// A chunk's keys, decoded before its values.
using Keys = std::array<std::uint32_t, kChunkPairs>;

Status decode_position_chunk(const PositionKeys& form, const PositionChunk& read, std::size_t number,
                             const DecodeRules& rules, DecodeTarget& target, Keys& keys) {
  const sparse::ChunkContent content = form.positions.decode_chunk(
      read.positions, target.least_key, {.count = target.dimension, .positions = keys.data()});
  RETURN_IF_ERROR(fault_status("fastsgd", number, content.fault));
  if (target.sink == Sink::kPairs && read.head.pairs > target.capacity - target.pairs) {
    return fault_status("fastsgd", number, &faults::kNoRoom);
  }
  target.least_key = content.next;
  if (read.head.pairs == 0) return {};
  return fault_status("fastsgd", number,
                      form.kernels.place_values({keys.data(), read.head, read.values}, rules, target));
}

// Decodes all chunks of a part, whose heads have been looked at.
Status decode_position_chunks(const PositionKeys& form, const PartView& in, const DecodeRules& rules,
                              DecodeTarget& target) {
  RETURN_IF_ERROR(sparse::check_count("fastsgd", target.dimension));
  Keys keys;
  for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
    PositionChunk read;
    const Fault fault = read_position_chunk(chunk_of(in, i), i == 0, i + 1 == in.chunk_ends.size(), read);
    RETURN_IF_ERROR(fault_status("fastsgd", i, fault));
    RETURN_IF_ERROR(decode_position_chunk(form, read, i, rules, target, keys));
  }
  return {};
}

// REQUIRES: a decoder has accepted the chunk.
ChunkSections position_sections(const PositionKeys& form, const ChunkBytes& chunk) {
  PositionChunk read;
  read_position_chunk(chunk, true, true, read);
  const sparse::ChunkContent content =
      form.positions.decode_chunk(read.positions, 0, {.count = sparse::kMaxElements});
  return {.head = std::uint64_t{kCodeBytes + content.head_bytes} * 8,
          .values = std::uint64_t{value_bytes(read.head)} * 8,
          .keys = std::uint64_t{read.positions.bytes - content.head_bytes} * 8};
}

constexpr std::uint32_t kAutoTau = 0;

// Just above 2. Up to 2, |x|/2 <= |decoded|, so that x - decoded is exact, and sum / b^L in float32 skips no
// number on its way to 0.
constexpr float kBaseEnd = 0x1.000002p1F;

struct Parameters {
  float b = 1.1F;
  std::uint32_t tau = kAutoTau;
  float keep = 0.25F;
  unsigned flag_bits = 2;
  bool residual = false;
  bool short_keys = false;  // keys=auto

  std::uint32_t largest_code() const noexcept { return tau == kAutoTau ? kMaxCode : tau; }
};

// The encoder's scratch: one chunk of pairs, and the codebook.
struct Workspace {
  static constexpr std::size_t kAlignment =
      64;  // of the widest vectors: none of them crosses a line of the cache

  alignas(kAlignment) std::uint32_t keys[kChunkPairs + kVectorSlack];
  alignas(kAlignment) float values[kChunkPairs + kVectorSlack];
  alignas(kAlignment) std::uint16_t codes[kChunkPairs + kVectorSlack];
  std::uint32_t code_values[kCodes];
  std::uint16_t starts[kStarts];

  Staging staging() noexcept { return {keys, values, codes}; }
};
constexpr std::uint64_t kWorkspaceBytes = sizeof(Workspace) + Workspace::kAlignment - kScratchAlignment;

Workspace& workspace_in(MutBytes scratch) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(scratch.data());
  return *::new (scratch.data() + (0 - address) % Workspace::kAlignment) Workspace;
}

class Fastsgd final : public PairCodec<DecodeTarget> {
 public:
  Fastsgd(const Parameters& parameters, const CodecInfo& info, TargetId target) noexcept
      : PairCodec(info),
        parameters_(parameters),
        kernels_(kernels_for(target)),
        positions_{kernels_, sparse::kernels_for(target)} {
    powers_[0] = 1;
    for (std::uint32_t code = 1; code < kCodes; ++code) {
      powers_[code] = powers_[code - 1] * static_cast<double>(parameters.b);
    }
  }

  // `keys` came later: specs that don't name it keep their hash.
  std::string spec() const override {
    return "fastsgd:b=" + canonical_number(parameters_.b) +
           ",tau=" + (parameters_.tau == kAutoTau ? "auto" : std::to_string(parameters_.tau)) +
           ",keep=" + canonical_number(parameters_.keep) + ",l=" + std::to_string(parameters_.flag_bits) +
           ",residual=" + (parameters_.residual ? "on" : "off") +
           (parameters_.short_keys ? ",keys=auto" : "");
  }

  Sizes do_sizes(const TensorView& part) const noexcept override {
    const std::uint64_t elements = part.elements();
    if (elements == 0) return {};
    const std::uint64_t pairs = std::min(part.count, elements);
    const std::uint64_t chunks = std::max<std::uint64_t>(1, ceil_div(pairs, kChunkPairs));
    const auto code_bits = static_cast<unsigned>(std::bit_width(parameters_.largest_code()));
    const std::uint64_t value_bytes = ceil_div(product_or_max(pairs, code_bits + 1), 8);
    const std::uint64_t key_bytes =
        parameters_.short_keys ? position_bytes_bound(pairs, elements) : flagged_bytes_bound(pairs, elements);
    // Values, flags and gaps of a chunk end inside a byte each.
    const std::uint64_t chunk_bytes = sum_or_max(product_or_max(chunks, kHeadBytes + 3), kStoreSlack);
    return Sizes{.payload_bytes = sum_or_max(sum_or_max(key_bytes, value_bytes), chunk_bytes),
                 .chunks = chunks_or_max(chunks),
                 .scratch_bytes = kWorkspaceBytes};
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const PairInput input = pair_input(part);
    const Totals totals = kernels_.sum(input);
    ASSIGN_OR_RETURN(const auto sum, rounded_sum(totals.sum));
    Workspace& workspace = workspace_in(exec.scratch);
    const CodeScale scale{static_cast<double>(sum), powers_.data()};
    const Codebook book = sum == 0 ? Codebook{}  // there is nothing to send
                                   : codebook(input, scale, totals.least, part.view.elements(), workspace);
    return write_chunks(input, book, sum, out, workspace);
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    RETURN_IF_ERROR(check_part(in, count));
    DecodeTarget target{{.dimension = count}};
    RETURN_IF_ERROR(decode_chunks(in, target));
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const ChunkBytes chunk = chunk_of(in, i);
      const ChunkSections bits =
          parameters_.short_keys ? position_sections(positions_, chunk) : chunk_sections(chunk);
      add_section(sections, "chunk heads", bits.head);
      add_section(sections, "values", bits.values);
      add_section(sections, "keys", bits.keys);
    }
    return {};
  }

 private:
  // With d pairs in n elements, a gap g costs l + bits(g) + ceil(M / 2^l) - 1 bits at most (M if bits(g) =
  // 0). Gaps and pairs share the n elements, and bits(g) <= g, so that all gaps together take at most n (l +
  // ceil(M / 2^l)); d (l + M) is the other bound, for few pairs.
  std::uint64_t flagged_bytes_bound(std::uint64_t pairs, std::uint64_t elements) const noexcept {
    const unsigned flags = parameters_.flag_bits;
    const auto longest = std::min(static_cast<unsigned>(std::bit_width(elements)), kMaxKeyBits);
    const std::uint64_t few = product_or_max(pairs, flags + longest);
    const std::uint64_t many = product_or_max(elements, flags + ceil_div(longest, std::uint64_t{1} << flags));
    return ceil_div(std::min(few, many), 8);
  }

  // The sum in float32: it is sent, and everything is computed from it.
  static Result<float> rounded_sum(double sum) {
    if (!std::isfinite(sum)) return not_finite();
    const auto rounded = static_cast<float>(sum);
    if (std::isfinite(rounded)) return rounded;
    return fail(ErrorCode::kRange,
                "the sum of all magnitudes is beyond float32: fastsgd codes values as fractions of it; scale "
                "the tensor down");
  }

  Codebook codebook(const PairInput& input, const CodeScale& scale, std::uint32_t least,
                    std::uint64_t elements, Workspace& workspace) const {
    std::uint32_t last = last_code(scale, parameters_.largest_code());
    if (parameters_.tau == kAutoTau) {
      const double share = static_cast<double>(parameters_.keep) * static_cast<double>(elements);
      const auto wanted = static_cast<std::uint64_t>(std::ceil(share));
      last = wanted >= input.count ? code_for_all(kernels_, input, scale, last, least)
                                   : code_for_share(kernels_, input, scale, wanted, last, workspace.values);
    }
    return make_codebook(scale, last, workspace.code_values, workspace.starts);
  }

  EncodedPart write_chunks(const PairInput& input, const Codebook& book, float sum, const PartBuffer& out,
                           Workspace& workspace) const {
    const std::uint32_t cut = book.values != nullptr ? book.values[book.last] : kInfinityBits;
    const Staging staging = workspace.staging();
    std::uint64_t written = 0;
    std::uint32_t chunks = 0;
    for (std::uint64_t at = 0; at < input.count || chunks == 0;) {
      const Collected pairs = kernels_.collect(input, at, cut, staging);
      if (pairs.pairs == 0 && chunks > 0) break;
      ChunkPairs chunk{pairs.keys, staging.codes, pairs.pairs, {}};
      if (pairs.pairs > 0) chunk.range = kernels_.quantize(input, book, pairs, staging.codes);
      const MutBytes rest = out.payload.subspan(written);
      written += parameters_.short_keys ? write_position_chunk(positions_, chunk, rest)
                                        : kernels_.write(chunk, parameters_.flag_bits, rest.data());
      out.chunk_ends[chunks++] = static_cast<std::uint32_t>(written);
    }
    return EncodedPart{
        .payload_bytes = written, .chunks = chunks, .scalar = std::bit_cast<std::uint32_t>(sum)};
  }

  Status check_part(const PartView& in, std::uint64_t elements) const override {
    std::uint64_t pairs = 0;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      PositionChunk chunk;
      const bool is_last = i + 1 == in.chunk_ends.size();
      const Fault fault = parameters_.short_keys
                              ? read_position_chunk(chunk_of(in, i), i == 0, is_last, chunk)
                              : reference::read_head(chunk_of(in, i), i == 0, is_last, chunk.head);
      RETURN_IF_ERROR(fault_status("fastsgd", i, fault));
      pairs += chunk.head.pairs;
    }
    if (pairs > elements) {
      return corrupt("fastsgd: " + std::to_string(pairs) + " pairs in " +
                     std::to_string(in.chunk_ends.size()) + " chunks for " + std::to_string(elements) +
                     " elements");
    }
    return check_scalar("fastsgd", "the sum", in.scalar);
  }

  Status decode_chunks(const PartView& in, DecodeTarget& target) const override {
    const float sum = FloatEnvironment::pinned(std::bit_cast<float>(in.scalar));
    const DecodeRules rules{.sum = static_cast<double>(sum),
                            .powers = powers_.data(),
                            .last_code = parameters_.largest_code(),
                            .flag_bits = parameters_.flag_bits};
    if (parameters_.short_keys) return decode_position_chunks(positions_, in, rules, target);
    constexpr std::size_t kRow = 16;
    const std::size_t chunks = in.chunk_ends.size();
    for (std::size_t first = 0; first < chunks; first += kRow) {
      std::array<ChunkBytes, kRow> row;
      const std::size_t count = std::min(kRow, chunks - first);
      for (std::size_t i = 0; i < count; ++i) row[i] = chunk_of(in, first + i);
      target.is_last = first + count == chunks;
      const Decoded decoded = kernels_.decode({row.data(), static_cast<std::uint32_t>(count)}, rules, target);
      RETURN_IF_ERROR(fault_status("fastsgd", first + decoded.chunks, decoded.fault));
    }
    return {};
  }

  Parameters parameters_;
  std::array<double, kCodes> powers_;
  const Kernels& kernels_;
  PositionKeys positions_;  // of keys=auto
};

// "auto", or a whole number from 1 to kMaxCode.
Result<std::uint32_t> tau_parameter(const ParsedSpec& spec) {
  for (const SpecParameter& given : spec.parameters) {
    if (given.key != "tau") continue;
    if (given.value == "auto") return kAutoTau;
    const auto tau = parse_number<std::uint32_t>(given.value);
    if (tau && *tau >= 1 && *tau <= kMaxCode) return *tau;
    return invalid("fastsgd: tau=" + std::string(given.value) +
                   " is out of range: give auto or a whole number 1 to " + std::to_string(kMaxCode));
  }
  return kAutoTau;
}

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  constexpr std::string_view kFlagBits[] = {"1", "2", "3", "4", "5"};
  constexpr std::string_view kSwitch[] = {"off", "on"};
  constexpr std::string_view kKeyCodes[] = {"flags", "auto"};
  ASSIGN_OR_RETURN(const auto b,
                   float_parameter(spec, "b", {.low = 1.02F, .high = kBaseEnd, .default_value = 1.1F}));
  ASSIGN_OR_RETURN(const auto tau, tau_parameter(spec));
  ASSIGN_OR_RETURN(const auto keep,
                   fraction_parameter(spec, "keep", {.low = 1e-6F, .high = 1, .default_value = 0.25F}));
  ASSIGN_OR_RETURN(const auto flag_bits, choice_parameter(spec, "l", kFlagBits, 1));
  ASSIGN_OR_RETURN(const auto residual, choice_parameter(spec, "residual", kSwitch, 0));
  ASSIGN_OR_RETURN(const auto keys, choice_parameter(spec, "keys", kKeyCodes, 0));
  const Parameters parameters{b, tau, keep, static_cast<unsigned>(flag_bits) + 1, residual == 1, keys == 1};
  return std::make_unique<const Fastsgd>(parameters, parameters.residual ? kInfoWithResidual : kInfo, target);
}

}  // namespace

DELTAWIRE_KERNELS(reference, avx2)

extern constinit const Registration kRegistration = {&kInfo, make,
                                                     own_kernels<kernels_for, sparse::kernels_for>};

}  // namespace deltawire::fastsgd
