// twobit: a threshold with error feedback, two bits an element. spec.md in this folder defines the bytes.
#include <limits>

#include "base/bit_functions.h"
#include "base/errors.h"
#include "codecs/fixed_codec.h"
#include "codecs/registration.h"
#include "codecs/spec_string.h"

namespace deltawire::twobit {

namespace {

constexpr unsigned kBits = 2;
constexpr std::uint64_t kPerByte = 4;

constexpr ParameterInfo kParameters[] = {
    {.name = "t",
     .range = "0 < t, finite",
     .default_value = "0.5",
     .meaning = "the threshold, and what an element sent is worth"},
};

constexpr FloatRange kThresholds = {.low = std::numeric_limits<float>::denorm_min(),
                                    .high = std::numeric_limits<float>::infinity(),
                                    .default_value = 0.5F};

constexpr std::string_view kExamples[] = {"twobit:t=2"};

constexpr CodecInfo kInfo = {
    .id = 25,
    .name = "twobit",
    .summary = "+t, -t or 0 by a threshold t, with error feedback: 2 bits an element, as MXNet's 2bit",
    .source = "Strom, Interspeech 2015; Apache MXNet, gradient_compression-inl.h",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "direct",
    .error_feedback = true,
    .late = true,
    .finite_only = true,
    .sparse = true,
    .chunk_elements = kFixedChunkElements,
};

constexpr unsigned kZero = 0;
constexpr unsigned kNone = 1;  // stands for nothing
constexpr unsigned kMinus = 2;
constexpr unsigned kPlus = 3;

// How far up in its byte the code of element i lies: the first is the highest.
unsigned shift_of(std::uint64_t i) noexcept {
  return 6 - 2 * static_cast<unsigned>(i % kPerByte);
}

unsigned code_at(const std::byte* payload, std::uint64_t i) noexcept {
  return static_cast<unsigned>(payload[i / kPerByte]) >> shift_of(i) & 3;
}

void encode(const float* in, const float* residual, float* left, std::uint64_t count, float threshold,
            std::byte* payload) {
  unsigned byte = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const float x = residual != nullptr ? in[i] + residual[i] : in[i];
    unsigned code = kZero;
    float rest = x;
    if (x >= threshold) {
      code = kPlus;
      rest = x - threshold;
    } else if (x <= -threshold) {
      code = kMinus;
      rest = x + threshold;
    }
    if (left != nullptr) left[i] = rest;
    byte |= code << shift_of(i);
    if (i % kPerByte == kPerByte - 1 || i == count - 1) {
      payload[i / kPerByte] = static_cast<std::byte>(byte);
      byte = 0;
    }
  }
}

std::uint64_t find_refused(const std::byte* payload, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (code_at(payload, i) == kNone) return i;
  }
  for (std::uint64_t i = count; i % kPerByte != 0; ++i) {
    if (code_at(payload, i) != kZero) return i;
  }
  return (count / kPerByte + (count % kPerByte != 0 ? 1 : 0)) * kPerByte;
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, float threshold, float scale,
                      float* slot) {
  const float values[4] = {scale * 0.0F, 0.0F, scale * -threshold, scale * threshold};
  for (std::uint64_t i = 0; i < count; ++i) slot[i] = values[code_at(payload, i)];
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, float threshold, float scale,
                       float* slot) {
  const float values[4] = {0.0F, 0.0F, scale * -threshold, scale * threshold};
  for (std::uint64_t i = 0; i < count; ++i) {
    const unsigned code = code_at(payload, i);
    if (code != kZero) slot[i] += values[code];
  }
}

constexpr ElementKernels<float> kKernels = {encode, find_refused, decode_overwrite, decode_accumulate};

class Twobit final : public ElementwiseCodec<float> {
 public:
  Twobit(float threshold, TargetId target) noexcept
      : ElementwiseCodec(kInfo, kKernels, target, Field{"codes", kBits}, {}, threshold) {}

  std::string spec() const override { return "twobit:t=" + canonical_number(std::get<0>(shape())); }

 private:
  Status check_codes(const PartView& in, std::uint64_t count) const override {
    const std::uint64_t bad = find_refused(in.payload.data(), count);
    if (bad == bytes_of(count) * kPerByte) return {};
    const std::string where = "twobit: element " + std::to_string(bad);
    return corrupt(where + (bad < count ? " has the code 01" : ", padding, is not 0"));
  }
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  ASSIGN_OR_RETURN(const auto threshold, float_parameter(spec, "t", kThresholds));
  return std::make_unique<const Twobit>(threshold, target);
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make, own_kernels<addends::kernels_for>};

}  // namespace deltawire::twobit
