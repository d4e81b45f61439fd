// logquant: powers of two (or of its root) for values, after D. Miyashita, E. H. Lee, B. Murmann,
// "Convolutional Neural Networks using Logarithmic Data Representation" (arXiv 1603.01025), as K. Yang, L.
// Chen, Z. Zeng, Y. Gao, "FastSGD" (arXiv 2112.04291) compare with. spec.md in this folder defines the bytes.

#include <algorithm>
#include <new>

#include "base/checked.h"
#include "base/float_environment.h"
#include "codecs/baselines/logquant/logquant_ops.h"
#include "codecs/pair_codec.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"

namespace deltawire::logquant {

namespace {

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

std::string_view fault_text(Fault fault) noexcept {
  switch (fault) {
    case Fault::kNone: return "no fault";
    case Fault::kTruncated: return "the bytes end before the chunk does";
    case Fault::kTrailingBytes: return "bytes follow its last number";
    case Fault::kPairCount: return "a number of pairs that this chunk can't have";
    case Fault::kForm: return "the other form, with or without keys, is shorter";
    case Fault::kKey: return "a key that is out of order or outside the tensor";
    case Fault::kLevel: return "a level that stands for no value";
    case Fault::kCount:
      return "its elements aren't as many non-zeros as stated, or a zero begins or ends them";
    case Fault::kPadding: return "bits follow the last number";
    case Fault::kNoRoom: return "more pairs than the slot has room for: give it room for its dimension";
  }
  return "unknown fault";
}

Status fault_error(Fault fault, std::uint64_t chunk) {
  return fault_status("logquant", chunk, fault, fault_text(fault));
}

class Logquant final : public PairCodec<PairTarget> {
 public:
  Logquant(const Grid& grid, const Kernels& kernels) noexcept
      : PairCodec(kInfo), grid_(grid), kernels_(kernels) {}

  std::string spec() const override {
    return "logquant:bits=" + std::to_string(grid_.bits) + ",base=" + (grid_.steps == 1 ? "2" : "sqrt2");
  }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    const std::uint64_t elements = part.elements();
    if (elements == 0) return {};
    if (elements > kMaxElements) return {.payload_bytes = ~std::uint64_t{0}};
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
    const std::uint32_t largest = kernels_.largest(input);
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
      kernels_.collect(input, grid, at, staging);
      if (staging.pairs == 0 && chunks > 0) break;
      written += kernels_.write(staging, grid.bits, out.payload.data() + written);
      out.chunk_ends[chunks++] = static_cast<std::uint32_t>(written);
    }
    return EncodedPart{.payload_bytes = written, .chunks = chunks, .scalar = scalar};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (auto ok = check_part(in, count); !ok) return ok;
    PairTarget target{.dimension = count};
    if (auto ok = decode_chunks(in, target); !ok) return ok;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const ChunkBytes chunk = chunk_of(in, i);
      Head head;
      kernels_.read_head(chunk, true, grid_.bits, head);
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
      const Fault fault = kernels_.read_head(chunk_of(in, i), is_last, grid_.bits, head);
      if (fault != Fault::kNone) return fault_error(fault, i);
      if (head.pairs == 0 && i > 0) return fault_error(Fault::kPairCount, i);
      pairs += head.pairs;
    }
    if (pairs > elements || elements > kMaxElements) {
      return fail(ErrorCode::kCorrupt, "logquant: " + std::to_string(pairs) + " pairs for " +
                                           std::to_string(elements) +
                                           " elements: there are no more than these, and fewer than 2^32");
    }
    if (in.scalar == 0 ? pairs == 0 : pairs > 0 && is_top(in.scalar)) return {};
    return fail(ErrorCode::kCorrupt, "logquant: the top level's number is " + std::to_string(in.scalar) +
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
      kernels_.read_head(chunk, i + 1 == in.chunk_ends.size(), grid.bits, head);
      const Fault fault = kernels_.decode(chunk, head, grid, target);
      if (fault != Fault::kNone) return fault_error(fault, i);
    }
    return {};
  }

  Grid grid_;
  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  constexpr std::string_view kBits[] = {"1", "2", "3", "4", "5", "6", "7", "8"};
  constexpr std::string_view kBases[] = {"2", "sqrt2"};
  const auto bits = choice_parameter(spec, "bits", kBits, 3);
  if (!bits) return forward_error(bits);
  const auto base = choice_parameter(spec, "base", kBases, 0);
  if (!base) return forward_error(base);
  const Grid grid{.steps = static_cast<int>(*base) + 1, .bits = static_cast<unsigned>(*bits) + 1};
  return std::make_unique<const Logquant>(grid, kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::logquant
