// sketchml: bucket numbers in a MinMaxSketch for values, delta-binary keys, after J. Jiang, F. Fu, T. Yang,
// B. Cui, "SketchML: Accelerating Distributed Machine Learning with Data Sketches" (SIGMOD 2018). spec.md in
// this folder defines the bytes.

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/bit_functions.h"
#include "base/checked.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "base/little_endian.h"
#include "codecs/baselines/sketchml/sketchml_chunk.h"
#include "codecs/pair_codec.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"

namespace deltawire::sketchml {

namespace {

constexpr ParameterInfo kParameters[] = {
    {"q", "2, 4, 8 ... 512", "256", "buckets of values, half of them for each sign"},
    {"r", "2, 4, 8, 16 or 32", "8",
     "groups of buckets, half of them for each sign: a value decays inside its own"},
    {"rows", "1 to 4", "2", "rows of a group's table: the largest of as many cells is a key's bucket"},
    {"cols", "0.05 <= cols <= 1", "0.3", "columns of a group's table, by its keys"},
};

constexpr std::string_view kExamples[] = {"sketchml:q=16,r=2,rows=1,cols=1",
                                          "sketchml:q=512,r=32,rows=4,cols=0.05"};

constexpr CodecInfo kInfo = {
    .id = 24,
    .name = "sketchml",
    .summary =
        "key-value pairs: quantile buckets in hash tables that only make values smaller, keys in bytes",
    .source = "Jiang, Fu, Yang, Cui: SketchML (SIGMOD 2018), section 3",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "gather",
    .finite_only = true,
    .sparse = true,
    .key_value = true,
    .scalars = 1,
};

constexpr float kColumnsEnd = 0x1.000002p0F;  // just above 1: no table has more columns than keys

struct Parameters {
  std::uint32_t q = 256;
  std::uint32_t r = 8;
  std::uint32_t rows = 2;
  float columns = 0.3F;
};

// The encoder's scratch, laid out for chunks of at most `room` pairs.
std::uint64_t scratch_bytes(std::uint64_t room, std::uint32_t rows) noexcept {
  return room * (4 * sizeof(std::uint32_t) + 1 + rows);
}

Staging lay_out(MutBytes scratch, std::uint64_t room) noexcept {
  auto* const keys = reinterpret_cast<std::uint32_t*>(scratch.data());
  auto* const buckets = reinterpret_cast<std::uint8_t*>(keys + 4 * room);
  return {.keys = keys,
          .values = reinterpret_cast<float*>(keys + room),
          .sorted = keys + 2 * room,
          .spare = keys + 3 * room,
          .buckets = buckets,
          .cells = buckets + room};
}

// Bytes that the gaps of `pairs` keys take at most. Each list of keys spans no more than its chunk does, so
// that of n elements all lists of one group have at most n / (2^8 + 1) gaps of more than a byte.
std::uint64_t gap_bytes_bound(std::uint64_t pairs, std::uint64_t elements, std::uint32_t lists) noexcept {
  const auto longest = static_cast<std::uint64_t>(std::bit_width(elements - 1) + 7) / 8;
  const std::uint64_t longer = elements / 0x101 + elements / 0x10001 + elements / 0x1000001;
  return std::min(pairs * std::max<std::uint64_t>(longest, 1), pairs + lists * longer);
}

class Sketchml final : public PairCodec<DecodeTarget> {
 public:
  explicit Sketchml(const Parameters& parameters) noexcept : PairCodec(kInfo), parameters_(parameters) {}

  std::string spec() const override {
    return "sketchml:q=" + std::to_string(parameters_.q) + ",r=" + std::to_string(parameters_.r) +
           ",rows=" + std::to_string(parameters_.rows) + ",cols=" + canonical_number(parameters_.columns);
  }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    const std::uint64_t elements = part.elements();
    if (elements == 0) return {};
    if (elements > kMaxPairElements) return {.payload_bytes = ~std::uint64_t{0}};
    const std::uint64_t pairs = std::min(part.count, elements);
    const std::uint64_t chunks = std::max<std::uint64_t>(1, ceil_div(pairs, kChunkPairs));
    const std::uint64_t groups = std::min(pairs, chunks * parameters_.r);
    const std::uint64_t means = std::min(pairs, chunks * parameters_.q);
    const unsigned bits = cell_bits(std::max(1U, parameters_.q / parameters_.r));
    const double columns = std::ceil(static_cast<double>(parameters_.columns) * static_cast<double>(pairs));
    const std::uint64_t cells = parameters_.rows * (static_cast<std::uint64_t>(columns) + groups);
    // A group's flags and its table end inside a byte each.
    const std::uint64_t group_bytes = groups * (kGroupHeadBytes + 2);
    const std::uint64_t room = std::min<std::uint64_t>(part.count, kChunkPairs);
    return Sizes{.payload_bytes = chunks * kHeadBytes + means * kMeanBytes + group_bytes +
                                  ceil_div(pairs * kFlagBits, 8) + ceil_div(cells * bits, 8) +
                                  gap_bytes_bound(pairs, elements, parameters_.r),
                 .chunks = static_cast<std::uint32_t>(chunks),
                 .scratch_bytes = scratch_bytes(room, parameters_.rows)};
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const PairInput input = pair_input(part);
    if (largest_magnitude(input.in, input.residual, input.count) >= kInfinityBits) return not_finite();
    Staging staging = lay_out(exec.scratch, std::min<std::uint64_t>(part.count, kChunkPairs));
    const auto seed = static_cast<std::uint32_t>(CounterRng(exec.stream).at(0) >> 32);
    const Rules rules = rules_with(seed);
    std::uint64_t written = 0;
    std::uint32_t chunks = 0;
    for (std::uint64_t at = 0; at < input.count || chunks == 0;) {
      collect(input, at, staging);
      if (staging.pairs == 0 && chunks > 0) break;
      Buckets buckets[kSigns];
      fill_buckets(rules, staging, buckets);
      written += write_chunk(rules, staging, buckets, out.payload.data() + written, part.left);
      out.chunk_ends[chunks++] = static_cast<std::uint32_t>(written);
    }
    return EncodedPart{.payload_bytes = written, .chunks = chunks, .scalar = seed};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    RETURN_IF_ERROR(check_part(in, count));
    DecodeTarget target{{.dimension = count}};
    RETURN_IF_ERROR(decode_chunks(in, target));
    const std::uint64_t streams = target.mean_bytes + target.key_bytes + target.table_bytes;
    add_section(sections, "chunk and group heads", (in.payload.size() - streams) * 8);
    add_section(sections, "means of buckets", target.mean_bytes * 8);
    add_section(sections, "keys", target.key_bytes * 8);
    add_section(sections, "tables of buckets", target.table_bytes * 8);
    return {};
  }

  Rules rules_with(std::uint32_t seed) const noexcept {
    return {.buckets = parameters_.q / kSigns,
            .groups = parameters_.r / kSigns,
            .rows = parameters_.rows,
            .columns = static_cast<double>(parameters_.columns),
            .hashes = CounterRng(seed)};
  }

  Status check_part(const PartView& in, std::uint64_t elements) const override {
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const ChunkBytes chunk = chunk_of(in, i);
      if (chunk.bytes < kCountBytes) return fault_status("sketchml", i, &faults::kTruncated);
      const auto pairs = load_le<std::uint32_t>(chunk.at);
      const bool is_last = i + 1 == in.chunk_ends.size();
      if (pairs > kChunkPairs || (!is_last && pairs < kChunkPairs) || (pairs == 0 && i > 0)) {
        return fault_status("sketchml", i, &faults::kPairCount);
      }
      if (pairs == 0 && chunk.bytes > kCountBytes)
        return fault_status("sketchml", i, &faults::kTrailingBytes);
      all += pairs;
    }
    return check_pair_count("sketchml", all, elements);
  }

  Status decode_chunks(const PartView& in, DecodeTarget& target) const override {
    target.scale = FloatEnvironment::pinned(target.scale);
    const Rules rules = rules_with(in.scalar);
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const ChunkBytes chunk = chunk_of(in, i);
      if (chunk.bytes == kCountBytes && load_le<std::uint32_t>(chunk.at) == 0) break;
      RETURN_IF_ERROR(fault_status("sketchml", i, decode_chunk(chunk, rules, target)));
    }
    return {};
  }

  Parameters parameters_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId) {
  constexpr std::string_view kBuckets[] = {"2", "4", "8", "16", "32", "64", "128", "256", "512"};
  constexpr std::string_view kGroups[] = {"2", "4", "8", "16", "32"};
  constexpr std::string_view kRows[] = {"1", "2", "3", "4"};
  ASSIGN_OR_RETURN(const auto q, choice_parameter(spec, "q", kBuckets, 7));
  ASSIGN_OR_RETURN(const auto r, choice_parameter(spec, "r", kGroups, 2));
  ASSIGN_OR_RETURN(const auto rows, choice_parameter(spec, "rows", kRows, 1));
  ASSIGN_OR_RETURN(const auto columns,
                   float_parameter(spec, "cols", {.low = 0.05F, .high = kColumnsEnd, .default_value = 0.3F}));
  const Parameters parameters{
      .q = 2U << q, .r = 2U << r, .rows = static_cast<std::uint32_t>(rows) + 1, .columns = columns};
  return std::make_unique<const Sketchml>(parameters);
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make};

}  // namespace deltawire::sketchml
