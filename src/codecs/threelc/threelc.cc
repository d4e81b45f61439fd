// 3lc: 3-value quantization with error feedback, after H. Lim, D. G. Andersen, M. Kaminsky, "3LC:
// Lightweight and Effective Traffic Compression for Distributed Machine Learning" (MLSys 2019), section 3;
// sparse chunks may instead list their positions. spec.md in this folder defines the bytes.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/bits.h"
#include "base/checked.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "base/lanes.h"
#include "base/little_endian.h"
#include "base/prefetch.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/two_passes.h"

namespace deltawire::threelc {

namespace {

constexpr ParameterInfo kParameters[] = {
    {"s", "0.5 <= s < 2", "1", "sparsity multiplier: m = s * max|x|; larger is sparser"},
    {"mode", "auto or paper", "auto", "chunk codings: the paper's, or also positions where that is smaller"},
    {"runs", "on or off", "on", "off: base 3^5 alone, 1.6 bits an element whatever the mode"},
    {"pull", "s, or 0.5 <= pull < 2", "s", "the s of means, which owners send back; smaller is finer"},
};

constexpr std::string_view kExamples[] = {"3lc:s=1.75", "3lc:s=1.5,mode=paper", "3lc:runs=off"};

constexpr CodecInfo kInfo = {
    .id = 3,
    .name = "3lc",
    .summary = "3 values with error feedback: 20x smaller, far more where gradients are sparse",
    .source = "Lim, Andersen, Kaminsky: 3LC (MLSys 2019), section 3",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "direct",
    .error_feedback = true,
    .finite_only = true,
    .scalars = 1,
    .chunk_elements = kChunkElements,
};

enum class Modes : std::uint8_t { kBase3, kPaper, kAuto };  // which chunk modes an encoder may choose from

// Below it |x| may be more than 2 m, and x - m would have to be rounded: error feedback would lose the rest.
constexpr float kLeastS = 0.5F;

struct Parameters {
  float s = 1;
  bool mode_auto = true;
  bool runs = true;
  std::optional<float> pull = std::nullopt;  // none: as s

  Modes modes() const noexcept {
    if (!runs) return Modes::kBase3;
    return mode_auto ? Modes::kAuto : Modes::kPaper;
  }
};

void describe_zero_runs(const ChunkBytes& chunk, std::vector<Section>& sections) {
  std::uint64_t runs = 0;
  for (std::uint32_t i = 1; i < chunk.bytes; ++i) {
    if (std::to_integer<std::uint32_t>(chunk.at[i]) >= kFirstRun) ++runs;
  }
  add_section(sections, "base-3^5", (chunk.bytes - 1 - runs) * 8);
  add_section(sections, "zero runs", runs * 8);
}

void describe_rice(const ChunkBytes& chunk, std::vector<Section>& sections) {
  const std::byte* in = chunk.at + 1;
  const auto parameter = std::to_integer<unsigned>(in[0]);
  const std::uint32_t nonzeros = load_le<std::uint16_t>(in + 1);
  const std::uint64_t stream_bytes = chunk.bytes - 1 - kRiceHeaderBytes;
  BitReader reader(in + kRiceHeaderBytes, stream_bytes);
  std::uint64_t positions = 0;
  for (std::uint32_t i = 0; i < nonzeros; ++i) {
    const unsigned unary = reader.get_unary(kMaxUnary);
    const bool escape = unary == kMaxUnary;
    const unsigned low_bits = escape ? kRiceEscapeBits : parameter;
    reader.get(low_bits);
    reader.get(1);
    positions += unary + (escape ? 0 : 1) + low_bits;
  }
  add_section(sections, "rice headers", kRiceHeaderBytes * 8);
  add_section(sections, "rice positions", positions);
  add_section(sections, "rice signs", nonzeros);
  add_section(sections, "padding", stream_bytes * 8 - positions - nonzeros);
}

// Adds what the bits of a chunk that a decoder has accepted are spent on; they sum to its bits.
void describe_chunk(const ChunkBytes& chunk, std::vector<Section>& sections) {
  add_section(sections, "mode bytes", 8);
  switch (static_cast<ChunkMode>(chunk.at[0])) {
    case ChunkMode::kBase3: add_section(sections, "base-3^5", (std::uint64_t{chunk.bytes} - 1) * 8); break;
    case ChunkMode::kZeroRuns: describe_zero_runs(chunk, sections); break;
    case ChunkMode::kRice: describe_rice(chunk, sections); break;
  }
}

class Threelc final : public Codec {
 public:
  Threelc(const Parameters& parameters, TargetId target) noexcept
      : Codec(kInfo),
        parameters_(parameters),
        kernels_(kernels_for(target)),
        addends_(addends::kernels_for(target)) {}

  std::string spec() const override {
    const std::string own = spec_with(parameters_.s);
    return parameters_.pull ? own + ",pull=" + canonical_number(*parameters_.pull) : own;
  }

  std::string mean_spec() const override { return spec_with(parameters_.pull.value_or(parameters_.s)); }

  // For input up to A: rounding leaves at most m / 2, so m = s * max|x| <= s * (A + m / 2), and no decoded
  // value is larger than m. An s below 2/3 leaves up to max|x| - m instead, so that max|x| <= A / s.
  double gain() const noexcept override {
    return std::max(1.0, 2 * double{parameters_.s} / (2 - double{parameters_.s}));
  }

  Sizes do_sizes(const TensorView& part) const noexcept override {
    const std::uint64_t chunks = ceil_div(part.count, kChunkElements);
    const auto chunk = static_cast<std::uint32_t>(std::min<std::uint64_t>(part.count, kChunkElements));
    return Sizes{.payload_bytes = chunks + ceil_div(part.count, kDigitsPerByte),
                 .chunks = chunks_or_max(chunks),
                 .scratch_bytes = lane_scratch(chunk) * most_lanes(part.count)};
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const std::uint64_t threads = static_cast<std::uint64_t>(Workers::threads(exec.workers));
    const std::uint64_t lanes = std::min(threads, most_lanes(part.count));
    Workers* const workers = lanes > 1 ? exec.workers : nullptr;
    const auto [first, second] = two_passes(part);
    ASSIGN_OR_RETURN(const auto scale, find_scale(first, workers));
    if (lanes > 1) return share_chunks(second, scale, out, exec, lanes);
    return encode_chunks(second, scale, out, exec.scratch);
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    RETURN_IF_ERROR(check_scalar("3lc", "m", in.scalar));
    DecodeTarget target{.slot = out.slot,
                        .value = FloatEnvironment::pinned(std::bit_cast<float>(in.scalar)) * out.scale,
                        .zeros_only = in.scalar == 0,
                        .accumulate = out.accumulate,
                        .streamed = out.count * sizeof(float) >= kStreamedBytes};
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      target.count = elements_of_chunk(out.count, i, kChunkElements);
      RETURN_IF_ERROR(fault_status("3lc", i, kernels_.decode(chunk_of(in, i), target)));
      target.slot += target.count;
    }
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    RETURN_IF_ERROR(check_scalar("3lc", "m", in.scalar));
    std::vector<float> values(static_cast<std::size_t>(std::min<std::uint64_t>(count, kChunkElements)));
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const DecodeTarget target{.slot = values.data(),
                                .count = elements_of_chunk(count, i, kChunkElements),
                                .value = 1,
                                .zeros_only = in.scalar == 0,
                                .accumulate = false,
                                .streamed = false};
      const ChunkBytes chunk = chunk_of(in, i);
      RETURN_IF_ERROR(fault_status("3lc", i, kernels_.decode(chunk, target)));
      describe_chunk(chunk, sections);
    }
    return {};
  }

 private:
  std::string spec_with(float s) const {
    return "3lc:s=" + canonical_number(s) + ",mode=" + (parameters_.mode_auto ? "auto" : "paper") +
           ",runs=" + (parameters_.runs ? "on" : "off");
  }

  Result<Scale> find_scale(const Addends& part, Workers* workers) const {
    const std::uint32_t largest = find_largest(part, workers);
    if (largest >= kInfinityBits) return not_finite();
    const Scale scale = scale_for(std::bit_cast<float>(largest), parameters_.s);
    if (std::isfinite(scale.m)) return scale;
    return fail(ErrorCode::kRange, "m = " + number_text(std::bit_cast<float>(largest)) +
                                       " * s = " + canonical_number(parameters_.s) +
                                       " is beyond float32: scale the tensor down or use s=1");
  }

  // From the last block to the first: the first ones are then still in the caches when chunks are encoded.
  std::uint32_t find_largest(const Addends& part, Workers* workers) const {
    const std::uint64_t block = std::uint64_t{1} << (workers != nullptr ? 17 : 19);
    const std::uint64_t blocks = ceil_div(part.count, block);
    std::atomic<std::uint32_t> largest = 0;
    Workers::share(workers, blocks, [&](std::size_t i) {
      const std::uint64_t at = (blocks - 1 - i) * block;
      const std::uint32_t found = addends_.add_up(some_of(part, at, std::min(block, part.count - at)));
      for (std::uint32_t so_far = largest; so_far < found;) {
        if (largest.compare_exchange_weak(so_far, found)) break;
      }
    });
    return largest;
  }

  static QuantizeInput chunk_input(const Addends& part, const Scale& scale, std::uint64_t chunk) noexcept {
    const std::uint32_t count = elements_of_chunk(part.count, chunk, kChunkElements);
    const Addends some = some_of(part, chunk * kChunkElements, count);
    return {some.in, some.residual, some.left, count, scale};
  }

  EncodedPart encode_chunks(const Addends& part, const Scale& scale, const PartBuffer& out,
                            MutBytes scratch) const {
    const std::uint64_t chunks = ceil_div(part.count, kChunkElements);
    std::uint64_t written = 0;
    for (std::uint64_t i = 0; i < chunks; ++i) {
      written += encode_chunk(chunk_input(part, scale, i), out.payload.data() + written, scratch);
      out.chunk_ends[i] = static_cast<std::uint32_t>(written);
    }
    return encoded(written, chunks, scale);
  }

  // The same by several threads, which take a chunk each: it has a place of the size that it takes at most,
  // and all are moved together when all are coded.
  EncodedPart share_chunks(const Addends& part, const Scale& scale, const PartBuffer& out, const Exec& exec,
                           std::uint64_t lanes) const {
    assert(exec.scratch.size() >= lanes * lane_scratch(kChunkElements));
    constexpr std::uint64_t kPlace = 1 + packed_bytes(kChunkElements);
    const std::uint64_t chunks = ceil_div(part.count, kChunkElements);
    const std::uint64_t lane_bytes = lane_scratch(kChunkElements);
    share_by_lanes(exec.workers, lanes, chunks, [&](std::size_t lane, std::size_t i) {
      const MutBytes scratch = exec.scratch.subspan(lane * lane_bytes, lane_bytes);
      out.chunk_ends[i] = encode_chunk(chunk_input(part, scale, i), out.payload.data() + i * kPlace, scratch);
      return true;
    });
    std::uint32_t written = 0;
    for (std::uint64_t i = 0; i < chunks; ++i) {
      const std::uint32_t bytes = out.chunk_ends[i];
      assert(bytes > 0 && bytes <= kPlace);
      std::memmove(out.payload.data() + written, out.payload.data() + i * kPlace, bytes);
      out.chunk_ends[i] = written += bytes;
    }
    return encoded(written, chunks, scale);
  }

  static EncodedPart encoded(std::uint64_t bytes, std::uint64_t chunks, const Scale& scale) noexcept {
    return EncodedPart{.payload_bytes = bytes,
                       .chunks = static_cast<std::uint32_t>(chunks),
                       .scalar = std::bit_cast<std::uint32_t>(scale.m)};
  }

  // Writes one chunk to `out` and returns its bytes. The room for mode 0 is room enough for all.
  std::uint32_t encode_chunk(const QuantizeInput& input, std::byte* out, MutBytes scratch) const {
    const Modes modes = parameters_.modes();
    const std::uint32_t plain = packed_bytes(input.count);
    std::byte* const body = out + 1;
    out[0] = static_cast<std::byte>(ChunkMode::kBase3);
    assert(input.count > 0 && input.count <= kChunkElements);
    assert(scratch.size() >= lane_scratch(input.count));
    if (modes == Modes::kBase3) {
      kernels_.quantize(input, body, {});
      return 1 + plain;
    }
    std::byte* const packed = scratch.data();
    const Quantized quantized = kernels_.quantize(input, packed, maps_in(scratch, input.count));
    const auto write_rice = [&] { return rice_bytes(quantized, input.count, scratch, body); };
    const std::uint32_t with_rice = modes == Modes::kAuto ? write_rice() : plain;
    const std::uint32_t least = least_with_runs(quantized, plain);
    if (with_rice >= least) {
      std::uint32_t with_runs = plain;
      if (least < plain) {
        with_runs = kernels_.zero_runs(packed, plain, body);
      } else {
        std::memcpy(body, packed, plain);
      }
      if (with_rice >= with_runs) {
        if (with_runs < plain) out[0] = static_cast<std::byte>(ChunkMode::kZeroRuns);
        return 1 + with_runs;
      }
      write_rice();  // again, over the zero runs: seldom are they longer than `least` by so much
    }
    out[0] = static_cast<std::byte>(ChunkMode::kRice);
    assert(with_rice < plain);
    return 1 + with_rice;
  }

  // Scratch has the packed bytes of a chunk, then its maps.
  DigitMaps maps_in(MutBytes scratch, std::uint32_t count) const noexcept {
    if (parameters_.modes() != Modes::kAuto) return {};
    std::byte* const maps = scratch.data() + packed_scratch(count);
    return {maps, maps + map_bytes(count)};
  }

  // Scratch of one thread that codes chunks of up to `count` elements.
  std::uint64_t lane_scratch(std::uint32_t count) const noexcept {
    if (parameters_.modes() == Modes::kBase3) return 0;
    const std::uint64_t maps = parameters_.modes() == Modes::kAuto ? 2 * map_bytes(count) : 0U;
    return packed_scratch(count) + ceil_div(maps, kScratchAlignment) * kScratchAlignment;
  }

  // Threads that may share the chunks of a part: none but the caller's where waking others costs as much.
  static std::uint64_t most_lanes(std::uint64_t count) noexcept {
    constexpr std::uint64_t kMostLanes = 8;
    return std::clamp<std::uint64_t>(count / kChunkElements / 2, 1, kMostLanes);
  }

  static std::uint32_t packed_scratch(std::uint32_t count) noexcept {
    return static_cast<std::uint32_t>(ceil_div(packed_bytes(count), kScratchAlignment) * kScratchAlignment);
  }

  // What the zero runs' mode takes at least: it is known only when they are coded.
  static std::uint32_t least_with_runs(const Quantized& quantized, std::uint32_t plain) noexcept {
    const auto full_runs = static_cast<std::uint32_t>(ceil_div(quantized.zero_bytes, kLongestRun));
    return plain - quantized.zero_bytes + std::max(quantized.zero_runs, full_runs);
  }

  // Writes the chunk in Rice codes to `out` if they are shorter than base 3^5, and returns the bytes after
  // the mode byte, or as many as base 3^5 takes. A position and its sign cost at least parameter + 2 bits, so
  // that dense chunks are answered without a look.
  std::uint32_t rice_bytes(const Quantized& quantized, std::uint32_t count, MutBytes scratch,
                           std::byte* out) const {
    assert(quantized.nonzeros <= count);
    const std::uint32_t limit = packed_bytes(count);
    const RiceCode code{quantized.nonzeros, rice_parameter(quantized.nonzeros, count, kRiceMaxParameter)};
    const std::uint64_t least = std::uint64_t{code.nonzeros} * (code.parameter + 2);
    if (kRiceHeaderBytes + ceil_div(least, 8) >= limit) return limit;
    return kernels_.rice(maps_in(scratch, count), count, code, out, limit);
  }

  Parameters parameters_;
  const Kernels& kernels_;
  const addends::Kernels& addends_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  constexpr std::string_view kModes[] = {"auto", "paper"};
  constexpr std::string_view kRuns[] = {"on", "off"};
  ASSIGN_OR_RETURN(const auto s, float_parameter(spec, "s", {.low = kLeastS, .high = 2, .default_value = 1}));
  ASSIGN_OR_RETURN(const auto mode, choice_parameter(spec, "mode", kModes, 0));
  ASSIGN_OR_RETURN(const auto runs, choice_parameter(spec, "runs", kRuns, 0));
  ASSIGN_OR_RETURN(const auto pull, pull_parameter(spec, "s", {.low = kLeastS, .high = 2}));
  return std::make_unique<const Threelc>(Parameters{s, mode == 0, runs == 0, pull}, target);
}

}  // namespace

DELTAWIRE_KERNELS(reference, avx2, avx512, neon)

extern constinit const Registration kRegistration = {&kInfo, make, own_kernels<kernels_for>};

}  // namespace deltawire::threelc
