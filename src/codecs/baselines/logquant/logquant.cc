// logquant: powers of two (or of its root) for values, after D. Miyashita, E. H. Lee, B. Murmann,
// "Convolutional Neural Networks using Logarithmic Data Representation" (arXiv 1603.01025), as K. Yang, L.
// Chen, Z. Zeng, Y. Gao, "FastSGD" (arXiv 2112.04291) compare with. spec.md in this folder defines the bytes.

#include <algorithm>
#include <new>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/checked.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "base/little_endian.h"
#include "codecs/pair_codec.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"

namespace deltawire::logquant {

namespace {

constexpr std::uint32_t kChunkPairs = 16384;
constexpr unsigned kMaxBits = 8;  // of a level

constexpr std::uint32_t kCountBytes = 2;  // u16: pairs, and kDenseBit
constexpr std::uint32_t kDenseBit = 0x8000;
constexpr std::uint32_t kKeyBytes = 4;
constexpr std::uint32_t kDenseHeadBytes = 8;  // u32 first key, u32 elements

// Logarithms are counted in steps, one or two an octave; h steps stand for 2^(h / steps).
struct Grid {
  int steps = 1;
  unsigned bits = 4;  // of a level: level 0 is zero, 2^bits - 1 the top
  int top = 0;        // steps, of the top level

  int top_level() const noexcept { return (1 << bits) - 1; }
};

// The steps of the smallest float32 and of the largest power that is one.
int least_step(int steps) noexcept {
  return -149 * steps;
}
int largest_step(int steps) noexcept {
  return steps == 1 ? 127 : 255;
}

// How the top goes on the wire: 0 is a part without pairs.
constexpr int kTopBias = 299;

constexpr unsigned kMantissaBitsOfDouble = 52;
constexpr int kBiasOfDouble = 1023;

// The step nearest to log2 |x|, halves of steps being irrational. A mantissa of 23 bits is compared with
// 2^(1/2), or with 2^(1/4) and 2^(3/4), rounded down: it is equal to none of them. REQUIRES: not 0, finite.
int nearest_step(std::uint32_t magnitude, int steps) noexcept {
  constexpr std::uint32_t kHalf = 0x3504F3;
  constexpr std::uint32_t kQuarter = 0x1837F0;
  constexpr std::uint32_t kThreeQuarters = 0x5744FC;
  // As float64 a subnormal has an exponent of its own, too.
  const auto wide = bit_cast<std::uint64_t>(static_cast<double>(bit_cast<float>(magnitude)));
  const int exponent = static_cast<int>(wide >> kMantissaBitsOfDouble) - kBiasOfDouble;
  const auto mantissa = static_cast<std::uint32_t>(wide >> (kMantissaBitsOfDouble - 23)) & 0x7FFFFF;
  if (steps == 1) return exponent + (mantissa > kHalf ? 1 : 0);
  return 2 * exponent + (mantissa > kQuarter ? 1 : 0) + (mantissa > kThreeQuarters ? 1 : 0);
}

// What h steps stand for, rounded to float32 once.
float step_value(int h, int steps) noexcept {
  constexpr double kRootOfTwo = 0x1.6a09e667f3bcdp+0;
  const int whole = steps == 1 ? h : h >> 1;
  const auto power =
      bit_cast<double>(static_cast<std::uint64_t>(whole + kBiasOfDouble) << kMantissaBitsOfDouble);
  return static_cast<float>(steps == 2 && (h & 1) != 0 ? kRootOfTwo * power : power);
}

// What a level stands for. REQUIRES: not 0.
float level_value(const Grid& grid, int level) noexcept {
  return step_value(grid.top - (grid.top_level() - level), grid.steps);
}

// Whether the lowest level is a float32 above 0.
int least_level(const Grid& grid) noexcept {
  const int lowest = grid.top_level() - (grid.top - least_step(grid.steps));
  return lowest > 1 ? lowest : 1;
}

// A chunk's pairs on their way to the bytes, in arrays of kChunkPairs. A number is a level, and above its
// bits the sign.
struct Staging {
  std::uint32_t* keys = nullptr;
  std::uint16_t* numbers = nullptr;
  std::uint32_t pairs = 0;
};

// What is wrong with a chunk that a decoder refuses.
namespace faults {

using deltawire::faults::kNoRoom;
using deltawire::faults::kTruncated;
constexpr ChunkFault kTrailingBytes = {"bytes follow its last number"};
// More than kChunkPairs, too few in a chunk that isn't the last, or an empty chunk among others.
constexpr ChunkFault kPairCount = {"a number of pairs that this chunk can't have"};
constexpr ChunkFault kForm = {"the other form, with or without keys, is shorter"};
constexpr ChunkFault kKey = {"a key that is out of order or outside the tensor"};
constexpr ChunkFault kLevel = {"a level that stands for no value"};  // for 0, or a zero with a sign
constexpr ChunkFault kCount = {
    "its elements aren't as many non-zeros as stated, or a zero begins or ends them"};
constexpr ChunkFault kPadding = {"bits follow the last number"};

}  // namespace faults

// What a chunk's first bytes say.
struct Head {
  std::uint32_t pairs = 0;
  bool dense = false;
  std::uint32_t first = 0;        // dense alone
  std::uint32_t elements = 0;     // numbers: those of pairs, or dense ones
  std::uint32_t bytes = 0;        // before the numbers
  std::uint32_t value_bytes = 0;  // of the numbers
};

// Whether `elements` numbers are no longer than those of `pairs` pairs and their keys.
bool is_dense_shorter(std::uint64_t pairs, std::uint64_t elements, unsigned bits) noexcept {
  return kDenseHeadBytes + (elements * (bits + 1) + 7) / 8 <=
         kKeyBytes * pairs + (pairs * (bits + 1) + 7) / 8;
}

constexpr ParameterInfo kParameters[] = {
    {"bits", "1 to 8", "4",
     "of a value besides its sign: 2^bits - 1 levels below the largest value, and zero"},
    {"base", "2 or sqrt2", "2", "what levels are powers of"},
};

constexpr std::string_view kExamples[] = {"logquant:bits=8", "logquant:bits=3,base=sqrt2"};

constexpr CodecInfo kInfo = {
    .id = 23,
    .name = "logquant",
    .summary =
        "key-value pairs or dense: values as powers of two, keys in 32 bits where they cost less than zeros",
    .source = "Miyashita, Lee, Murmann: Logarithmic Data Representation (arXiv 1603.01025), LogQuant",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "gather",
    .finite_only = true,
    .sparse = true,
    .key_value = true,
    .scalars = 1,
};

// The encoder's scratch: one chunk of pairs.
struct Workspace {
  std::uint32_t keys[kChunkPairs];
  std::uint16_t numbers[kChunkPairs];
};

// Encoding: which values are sent, and their bytes.

// The level of a magnitude; 0 below the lowest.
int level_of(const Grid& grid, std::uint32_t magnitude) noexcept {
  if (magnitude == 0) return 0;
  const int level = nearest_step(magnitude, grid.steps) - grid.top + grid.top_level();
  if (level < 1) return 0;
  return level < grid.top_level() ? level : grid.top_level();
}

// The pairs of the next chunk: from value `at` on those that have a level, up to kChunkPairs; moves `at`
// behind the last value that was looked at. With a residual, x less what was sent is left of them all.
void collect(const PairInput& input, const Grid& grid, std::uint64_t& at, Staging& staging) {
  staging.pairs = 0;
  for (; at < input.count && staging.pairs < kChunkPairs; ++at) {
    const float x = input.residual != nullptr ? input.in[at] + input.residual[at] : input.in[at];
    const int level = level_of(grid, magnitude_bits(x));
    if (level == 0) {
      if (input.left != nullptr) input.left[at] = x;
      continue;
    }
    const std::uint32_t sign = bit_cast<std::uint32_t>(x) >> 31;
    staging.keys[staging.pairs] = input.keys != nullptr ? input.keys[at] : static_cast<std::uint32_t>(at);
    staging.numbers[staging.pairs] =
        static_cast<std::uint16_t>(static_cast<std::uint32_t>(level) | sign << grid.bits);
    ++staging.pairs;
    if (input.left == nullptr) continue;
    const float sent = level_value(grid, level);
    input.left[at] = x - (sign != 0 ? -sent : sent);
  }
}

void write_keys(const Staging& chunk, std::byte* out) noexcept {
  for (std::uint32_t i = 0; i < chunk.pairs; ++i) store_le(out + i * kKeyBytes, chunk.keys[i]);
}

// Writes a chunk and returns its bytes, which sizes() has made room for.
std::uint32_t write_chunk(const Staging& chunk, unsigned bits, std::byte* out) {
  const std::uint64_t elements =
      chunk.pairs > 0 ? std::uint64_t{chunk.keys[chunk.pairs - 1]} - chunk.keys[0] + 1 : 0;
  const bool dense = chunk.pairs > 0 && is_dense_shorter(chunk.pairs, elements, bits);
  store_le(out, static_cast<std::uint16_t>(chunk.pairs | (dense ? kDenseBit : 0)));
  if (chunk.pairs == 0) return kCountBytes;
  if (dense) {
    store_le(out + kCountBytes, chunk.keys[0]);
    store_le(out + kCountBytes + 4, static_cast<std::uint32_t>(elements));
  } else {
    write_keys(chunk, out + kCountBytes);
  }
  const std::uint32_t head = kCountBytes + (dense ? kDenseHeadBytes : kKeyBytes * chunk.pairs);
  const std::uint64_t numbers = dense ? elements : chunk.pairs;
  BitWriter writer(out + head, (numbers * (bits + 1) + 7) / 8);
  for (std::uint32_t i = 0; i < chunk.pairs; ++i) {
    if (dense && i > 0) {
      for (std::uint32_t key = chunk.keys[i - 1] + 1; key < chunk.keys[i]; ++key) writer.put(0, bits + 1);
    }
    writer.put(chunk.numbers[i], bits + 1);
  }
  return head + static_cast<std::uint32_t>(writer.finish());
}

// Decoding a chunk of hostile bytes.

// Scaled values of the numbers, as far as they are allowed.
struct Values {
  float of_level[1U << kMaxBits];
  std::uint32_t least = 0;
  std::uint32_t sign_bit = 0;

  Values(const Grid& grid, float scale) noexcept
      : least(static_cast<std::uint32_t>(least_level(grid))), sign_bit(1U << grid.bits) {
    for (int level = least_level(grid); level <= grid.top_level(); ++level) {
      of_level[level] = level_value(grid, level) * scale;
    }
  }

  bool has(std::uint32_t number) const noexcept { return (number & (sign_bit - 1)) >= least; }

  float value(std::uint32_t number) const noexcept {
    const float magnitude = of_level[number & (sign_bit - 1)];
    return (number & sign_bit) != 0 ? -magnitude : magnitude;
  }
};

// The numbers of a chunk, one after the other.
struct Numbers {
  BitWindow stream;
  unsigned width;

  std::uint32_t next() noexcept {
    const auto number = static_cast<std::uint32_t>(stream.peek() & ((1U << width) - 1));
    stream.position += width;
    return number;
  }
};

template <Sink kSink>
Fault read_keyed(const std::byte* keys, const Head& head, const Values& values, Numbers& numbers,
                 PairTarget& target) noexcept {
  for (std::uint32_t i = 0; i < head.pairs; ++i) {
    const std::uint64_t key = load_le<std::uint32_t>(keys + i * kKeyBytes);
    if (key < target.least_key || key >= target.dimension) return &faults::kKey;
    const std::uint32_t number = numbers.next();
    if (!values.has(number)) return &faults::kLevel;
    put_pair<kSink>(key, values.value(number), target);
    target.least_key = key + 1;
  }
  const auto first = load_le<std::uint32_t>(keys);
  return is_dense_shorter(head.pairs, target.least_key - first, numbers.width - 1) ? &faults::kForm : nullptr;
}

template <Sink kSink>
Fault read_dense(const Head& head, const Values& values, Numbers& numbers, PairTarget& target) noexcept {
  if (head.first < target.least_key) return &faults::kKey;
  if (!range_fits(head.first, head.elements, target.dimension)) return &faults::kKey;
  std::uint32_t pairs = 0;
  for (std::uint32_t i = 0; i < head.elements; ++i) {
    const std::uint32_t number = numbers.next();
    if (number == 0 && i > 0 && i + 1 < head.elements) continue;
    if (number == 0 || pairs == head.pairs) return &faults::kCount;
    if (!values.has(number)) return &faults::kLevel;
    put_pair<kSink>(std::uint64_t{head.first} + i, values.value(number), target);
    ++pairs;
  }
  target.least_key = std::uint64_t{head.first} + head.elements;
  return pairs == head.pairs ? nullptr : &faults::kCount;
}

template <Sink kSink>
Fault read_pairs(const ChunkBytes& chunk, const Head& head, const Grid& grid, PairTarget& target) noexcept {
  if (kSink == Sink::kPairs && head.pairs > target.capacity - target.pairs) return &faults::kNoRoom;
  const Values values(grid, target.scale);
  Numbers numbers{{chunk.at + head.bytes, head.value_bytes}, grid.bits + 1};
  const Fault fault = head.dense ? read_dense<kSink>(head, values, numbers, target)
                                 : read_keyed<kSink>(chunk.at + kCountBytes, head, values, numbers, target);
  if (fault != nullptr) return fault;
  return numbers.stream.at_clean_end() ? nullptr : &faults::kPadding;
}

// Reads and checks a chunk's head: of chunks before the last, which are full, and of the last, which has a
// pair unless it is the first, too.
Fault read_head(const ChunkBytes& chunk, bool is_last, unsigned bits, Head& head) {
  if (chunk.bytes < kCountBytes) return &faults::kTruncated;
  const std::uint32_t word = load_le<std::uint16_t>(chunk.at);
  head.pairs = word & ~kDenseBit;
  head.dense = (word & kDenseBit) != 0;
  if (head.pairs > kChunkPairs || (!is_last && head.pairs != kChunkPairs)) return &faults::kPairCount;
  if (head.pairs == 0) {
    if (head.dense) return &faults::kForm;
    return chunk.bytes > kCountBytes ? &faults::kTrailingBytes : nullptr;
  }
  head.bytes = kCountBytes + (head.dense ? kDenseHeadBytes : kKeyBytes * head.pairs);
  if (chunk.bytes < head.bytes) return &faults::kTruncated;
  head.elements = head.pairs;
  if (head.dense) {
    head.first = load_le<std::uint32_t>(chunk.at + kCountBytes);
    head.elements = load_le<std::uint32_t>(chunk.at + kCountBytes + 4);
    if (!is_dense_shorter(head.pairs, head.elements, bits)) return &faults::kForm;
  }
  // Small: a dense chunk has no more bytes than its keys would take.
  head.value_bytes = static_cast<std::uint32_t>((std::uint64_t{head.elements} * (bits + 1) + 7) / 8);
  if (head.value_bytes > chunk.bytes - head.bytes) return &faults::kTruncated;
  return head.value_bytes < chunk.bytes - head.bytes ? &faults::kTrailingBytes : nullptr;
}

// Decodes a chunk with pairs. Reads inside the chunk alone, writes inside the target alone; on a fault what
// the target holds is unspecified. REQUIRES: read_head().
Fault decode_chunk(const ChunkBytes& chunk, const Head& head, const Grid& grid, PairTarget& target) {
  return for_sink(target.sink, [&]<Sink kSink>() { return read_pairs<kSink>(chunk, head, grid, target); });
}

class Logquant final : public PairCodec<PairTarget> {
 public:
  explicit Logquant(const Grid& grid) noexcept : PairCodec(kInfo), grid_(grid) {}

  std::string spec() const override {
    return "logquant:bits=" + std::to_string(grid_.bits) + ",base=" + (grid_.steps == 1 ? "2" : "sqrt2");
  }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    const std::uint64_t elements = part.elements();
    if (elements == 0) return {};
    if (elements > kMaxPairElements) return {.payload_bytes = ~std::uint64_t{0}};
    const std::uint64_t pairs = std::min(part.count, elements);
    const std::uint64_t chunks = std::max<std::uint64_t>(1, ceil_div(pairs, kChunkPairs));
    const std::uint64_t bits =
        std::min(pairs * (8 * kKeyBytes + grid_.bits + 1), elements * (grid_.bits + 1));
    return Sizes{.payload_bytes = ceil_div(bits, 8) + chunks * (kCountBytes + kDenseHeadBytes + 1),
                 .chunks = static_cast<std::uint32_t>(chunks),
                 .scratch_bytes = sizeof(Workspace)};
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const PairInput input = pair_input(part);
    const std::uint32_t largest = largest_magnitude(input.in, input.residual, input.count);
    if (largest >= kInfinityBits) return not_finite();
    Grid grid = grid_;
    std::uint32_t scalar = 0;
    if (largest > 0) {
      grid.top = std::min(nearest_step(largest, grid.steps), largest_step(grid.steps));
      scalar = static_cast<std::uint32_t>(grid.top + kTopBias);
    }
    auto& workspace = *::new (exec.scratch.data()) Workspace;
    Staging staging{workspace.keys, workspace.numbers};
    std::uint64_t written = 0;
    std::uint32_t chunks = 0;
    for (std::uint64_t at = 0; at < input.count || chunks == 0;) {
      collect(input, grid, at, staging);
      if (staging.pairs == 0 && chunks > 0) break;
      written += write_chunk(staging, grid.bits, out.payload.data() + written);
      out.chunk_ends[chunks++] = static_cast<std::uint32_t>(written);
    }
    return EncodedPart{.payload_bytes = written, .chunks = chunks, .scalar = scalar};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    RETURN_IF_ERROR(check_part(in, count));
    PairTarget target{.dimension = count};
    RETURN_IF_ERROR(decode_chunks(in, target));
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const ChunkBytes chunk = chunk_of(in, i);
      Head head;
      read_head(chunk, true, grid_.bits, head);
      const std::uint64_t keys = head.dense || head.pairs == 0 ? 0 : kKeyBytes * head.pairs;
      add_section(sections, "chunk heads", (chunk.bytes - keys - head.value_bytes) * 8);
      add_section(sections, "keys", keys * 8);
      add_section(sections, head.dense ? "values and zeros" : "values", head.value_bytes * std::uint64_t{8});
    }
    return {};
  }

  Status check_part(const PartView& in, std::uint64_t elements) const override {
    std::uint64_t pairs = 0;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      Head head;
      const bool is_last = i + 1 == in.chunk_ends.size();
      const Fault fault = read_head(chunk_of(in, i), is_last, grid_.bits, head);
      RETURN_IF_ERROR(fault_status("logquant", i, fault));
      if (head.pairs == 0 && i > 0) return fault_status("logquant", i, &faults::kPairCount);
      pairs += head.pairs;
    }
    RETURN_IF_ERROR(check_pair_count("logquant", pairs, elements));
    if (in.scalar == 0 ? pairs == 0 : pairs > 0 && is_top(in.scalar)) return {};
    return corrupt("logquant: the top level's number is " + std::to_string(in.scalar) +
                   ", which no part of " + std::to_string(pairs) + " pairs has");
  }

  bool is_top(std::uint32_t scalar) const noexcept {
    const std::int64_t step = std::int64_t{scalar} - kTopBias;
    return step >= least_step(grid_.steps) && step <= largest_step(grid_.steps);
  }

  Status decode_chunks(const PartView& in, PairTarget& target) const override {
    if (in.scalar == 0) return {};
    target.scale = FloatEnvironment::pinned(target.scale);
    Grid grid = grid_;
    grid.top = static_cast<int>(in.scalar) - kTopBias;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const ChunkBytes chunk = chunk_of(in, i);
      Head head;
      read_head(chunk, i + 1 == in.chunk_ends.size(), grid.bits, head);
      const Fault fault = decode_chunk(chunk, head, grid, target);
      RETURN_IF_ERROR(fault_status("logquant", i, fault));
    }
    return {};
  }

  Grid grid_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId) {
  constexpr std::string_view kBits[] = {"1", "2", "3", "4", "5", "6", "7", "8"};
  constexpr std::string_view kBases[] = {"2", "sqrt2"};
  ASSIGN_OR_RETURN(const auto bits, choice_parameter(spec, "bits", kBits, 3));
  ASSIGN_OR_RETURN(const auto base, choice_parameter(spec, "base", kBases, 0));
  const Grid grid{.steps = static_cast<int>(base) + 1, .bits = static_cast<unsigned>(bits) + 1};
  return std::make_unique<const Logquant>(grid);
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make};

}  // namespace deltawire::logquant
