// randomk: as many elements as a share says, drawn by chance, with error feedback or scaled without bias.
// Bytes: spec.md.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/bit_functions.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "base/little_endian.h"
#include "codecs/kernels/addends.h"
#include "codecs/kernels/draws.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/sparse/sparse_part.h"
#include "codecs/spec_string.h"
#include "codecs/two_passes.h"

namespace deltawire::randomk {

namespace {

constexpr std::uint64_t kChunkValues = 16384;
constexpr std::uint32_t kValueBytes = 4;

constexpr ParameterInfo kParameters[] = {
    {"k", "0.000001 <= k < 1, or in percent", "0.01", "share of the elements that is sent"},
    {"unbiased", "on or off", "off",
     "on: values are scaled up instead of what is not sent being kept for later"},
    sparse::kValuesParameter,
};

constexpr std::string_view kExamples[] = {"randomk:k=0.1", "randomk:k=0.5,unbiased=on",
                                          "randomk:k=0.2,values=int8"};

constexpr CodecInfo info_with(bool unbiased) noexcept {
  return {
      .id = 8,
      .name = "randomk",
      .summary = "values at places drawn by chance, which need no bytes, with error feedback: 100x at k=1%",
      .source = "Stich, Cordonnier, Jaggi: Sparsified SGD with Memory (NeurIPS 2018), definition 2.1",
      .parameters = kParameters,
      .examples = kExamples,
      .default_pattern = "gather",
      .error_feedback = !unbiased,
      .late = !unbiased,
      .finite_only = true,
      .sparse = true,
      .scalars = 2,
  };
}

constexpr CodecInfo kInfo = info_with(false);
constexpr CodecInfo kUnbiasedInfo = info_with(true);

// Some of the values in a row.
struct Run {
  std::uint64_t first = 0;
  std::uint64_t count = 0;  // draw.kept - first at most
};

std::uint32_t bits_at(const std::byte* payload, std::uint64_t i) noexcept {
  return load_le<std::uint32_t>(payload + i * kValueBytes);
}

bool is_finite(std::uint32_t bits) noexcept {
  return (bits & kMagnitudeMask) < kInfinityBits;
}

// Writes the drawn values of x as float32, each times its stratum's elements if `unbiased`. False if one of
// them is not finite.
bool write_drawn(const Addends& x, const Draw& draw, bool unbiased, std::byte* payload) {
  bool finite = true;
  for (std::uint64_t i = 0; i < draw.kept; ++i) {
    const Drawn place = place_of(draw, i);
    const float sum = sum_at(x, place.at);
    const auto bits = bit_cast<std::uint32_t>(unbiased ? sum * static_cast<float>(place.stratum) : sum);
    finite = finite && is_finite(bits);
    store_le(payload + i * kValueBytes, bits);
  }
  return finite;
}

// left -= what write_drawn() wrote of it.
void take_sent(float* left, const Draw& draw, const std::byte* payload) {
  for (std::uint64_t i = 0; i < draw.kept; ++i) {
    left[place_of(draw, i).at] -= bit_cast<float>(bits_at(payload, i));
  }
}

// The first of `kept` values that is not finite, or `kept`.
std::uint64_t find_not_finite(const std::byte* payload, std::uint64_t kept) {
  std::uint64_t i = 0;
  while (i < kept && is_finite(bits_at(payload, i))) ++i;
  return i;
}

// Hands out some values, float32 as write_drawn() writes them: `values` is the first of the run. What isn't
// drawn keeps its bits, and a value of 0 is written nowhere.
void hand_out(const std::byte* values, const Draw& draw, const Run& run, const PartTarget& target) {
  for (std::uint64_t i = 0; i < run.count; ++i) {
    const float value = bit_cast<float>(bits_at(values, i));
    if (value == 0) continue;
    float& slot = target.slot[place_of(draw, run.first + i).at];
    slot = target.accumulate ? slot + target.scale * value : target.scale * value;
  }
}

class Randomk final : public Codec {
 public:
  Randomk(float k, bool unbiased, ValueFormat values, TargetId target) noexcept
      : Codec(unbiased ? kUnbiasedInfo : kInfo),
        k_(k),
        unbiased_(unbiased),
        values_(values),
        value_kernels_(sparse::kernels_for(target)),
        addends_(addends::kernels_for(target)) {}

  // `values` came later: specs that don't name it keep their hash.
  std::string spec() const override {
    const std::string plain = "randomk:k=" + canonical_number(k_) + ",unbiased=" + (unbiased_ ? "on" : "off");
    return is_plain() ? plain : plain + ",values=" + std::string(sparse::name_of(values_));
  }

  // The elements of a large part's longest stratum: a value that is drawn is multiplied by their number.
  double gain() const noexcept override { return unbiased_ ? std::ceil(1 / double{k_}) : 1; }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    if (part.count == 0) return {};
    if (part.count > kMaxFractionElements) {
      return {.payload_bytes = std::numeric_limits<std::uint64_t>::max()};
    }
    const std::uint64_t kept = kept_of(k_, part.count);
    Sizes sizes = fixed_sizes(kept, kChunkValues, value_bytes(values_));
    if (!is_plain()) sizes.scratch_bytes = kept * kValueBytes;
    return sizes;
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const auto [first, second] = two_passes(part);
    if (addends_.add_up(first) >= kInfinityBits) return not_finite();
    const auto seed = static_cast<std::uint32_t>(CounterRng(exec.stream).at(0));
    const Draw draw = draw_of(seed, part.count);
    std::byte* const sent = is_plain() ? out.payload.data() : exec.scratch.data();
    if (!write_drawn(second, draw, unbiased_, sent)) {
      return fail(
          ErrorCode::kRange,
          "a value is beyond float32 once it is scaled up: scale the tensor down or use unbiased=off");
    }
    const float step = is_plain() ? 0.0F : encode_values(sent, draw.kept, out.payload.data());
    if (part.left != nullptr) {
      if (part.left == part.residual) addends_.add_up(second);
      take_sent(part.left, draw, sent);
    }
    EncodedPart encoded = write_fixed_ends(draw.kept, kChunkValues, value_bytes(values_), out.chunk_ends);
    encoded.scalar = seed;
    encoded.scalar2 = std::bit_cast<std::uint32_t>(step);
    return encoded;
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    if (auto ok = check_part(in, out.count); !ok || out.count == 0) return ok;
    if (!out.accumulate) std::fill_n(out.slot, out.count, 0.0F);
    const Draw draw = draw_of(in.scalar, out.count);
    if (is_plain()) {
      hand_out(in.payload.data(), draw, {0, draw.kept}, out);
    } else {
      decode_values(in, draw, out);
    }
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    RETURN_IF_ERROR(check_part(in, count));
    constexpr std::string_view kNames[] = {"fp32 values", "bf16 values", "int8 values"};
    add_section(sections, kNames[static_cast<std::size_t>(values_)], in.payload.size() * 8);
    return {};
  }

  bool is_plain() const noexcept { return values_ == ValueFormat::kFp32; }

  // Codes float32 values, and puts in their place what decoders get. Returns the step.
  float encode_values(std::byte* values, std::uint64_t count, std::byte* payload) const {
    auto* const floats = reinterpret_cast<float*>(values);
    const ValueCode code = sparse::code_for(values_, largest_magnitude(floats, nullptr, count));
    value_kernels_.encode_values(floats, count, code, payload);
    return code.step;
  }

  // Chunk by chunk, as float32.
  void decode_values(const PartView& in, const Draw& draw, const PartTarget& target) const {
    std::array<float, kChunkValues> values;
    const ValueCode code = code_of(in);
    for (std::uint64_t first = 0; first < draw.kept; first += kChunkValues) {
      const std::uint64_t count = std::min(kChunkValues, draw.kept - first);
      value_kernels_.decode_values(in.payload.data() + first * value_bytes(values_), count, code,
                                   values.data());
      hand_out(reinterpret_cast<const std::byte*>(values.data()), draw, {first, count}, target);
    }
  }

  ValueCode code_of(const PartView& in) const noexcept {
    return {values_, FloatEnvironment::pinned(std::bit_cast<float>(in.scalar2))};
  }

  Draw draw_of(std::uint32_t seed, std::uint64_t count) const noexcept {
    return {CounterRng(seed), count, kept_of(k_, count)};
  }

  Status check_part(const PartView& in, std::uint64_t count) const {
    if (count == 0) return {};
    if (count > kMaxFractionElements) {
      return corrupt("randomk: a part has fewer than 2^32 elements, not " + std::to_string(count));
    }
    RETURN_IF_ERROR(sparse::check_step("randomk", values_, in.scalar2));
    const std::uint64_t kept = kept_of(k_, count);
    RETURN_IF_ERROR(check_chunks(in, kept, kChunkValues));
    RETURN_IF_ERROR(check_fixed_ends(in, kept, kChunkValues, value_bytes(values_)));
    const std::uint64_t bad = is_plain()
                                  ? find_not_finite(in.payload.data(), kept)
                                  : value_kernels_.find_bad_value(in.payload.data(), kept, code_of(in));
    if (bad == kept) return {};
    return corrupt("randomk: value " + std::to_string(bad) +
                   " is not finite, or none that an encoder writes");
  }

  float k_;
  bool unbiased_;
  ValueFormat values_;
  const sparse::Kernels& value_kernels_;
  const addends::Kernels& addends_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  constexpr std::string_view kSwitch[] = {"off", "on"};
  ASSIGN_OR_RETURN(const auto k,
                   fraction_parameter(spec, "k", {.low = 1e-6F, .high = 1, .default_value = 0.01F}));
  ASSIGN_OR_RETURN(const auto unbiased, choice_parameter(spec, "unbiased", kSwitch, 0));
  ASSIGN_OR_RETURN(const auto values, sparse::values_parameter(spec));
  return std::make_unique<const Randomk>(k, unbiased == 1, values, target);
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make,
                                                     own_kernels<sparse::kernels_for, addends::kernels_for>};

}  // namespace deltawire::randomk
