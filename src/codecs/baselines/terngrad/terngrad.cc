// terngrad: three values, drawn by chance without bias, five to a byte. spec.md in this folder defines the
// bytes.
#include <bit>
#include <cmath>
#include <cstring>

#include "base/bit_functions.h"
#include "base/checked.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "codecs/kernels/addends.h"
#include "codecs/kernels/base3.h"
#include "codecs/kernels/draws.h"
#include "codecs/kernels/lanes.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/two_passes.h"

namespace deltawire::terngrad {

namespace {

constexpr std::uint64_t kChunkElements = 40960;
static_assert(kChunkElements % base3::kRowElements == 0);
constexpr std::uint64_t kChunkBytes = kChunkElements / base3::kDigitsPerByte;
constexpr std::string_view kOff = "off";

constexpr ParameterInfo kParameters[] = {
    {"clip", "1 <= clip < 100, or off", "2.5",
     "values are clipped at so many root mean squares of the tensor; off: unbiased"},
};

constexpr std::string_view kExamples[] = {"terngrad:clip=off"};

constexpr CodecInfo kInfo = {
    .id = 10,
    .name = "terngrad",
    .summary = "three values, drawn by chance, five to a byte: 20x smaller",
    .source = "Wen, Xu, Yan, Wu, Wang, Chen, Li: TernGrad (NeurIPS 2017), section 3",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "gather",
    .finite_only = true,
    .scalars = 1,
    .chunk_elements = kChunkElements,
};

std::uint64_t bytes_of(std::uint64_t count) noexcept {
  return ceil_div(count, base3::kDigitsPerByte);
}

constexpr ChunkFault kBadByte = {"a byte is above 242"};

constexpr base3::DigitTable kDigits = base3::make_digit_table();

// +1, 0 or -1. The product takes the place of a quotient: u < |x| / m.
int drawn(float x, float m, double u) noexcept {
  const float magnitude = bit_cast<float>(magnitude_bits(x));
  const float held = magnitude < m ? magnitude : m;
  if (!(u * static_cast<double>(m) < static_cast<double>(held))) return 0;
  return x < 0 ? -1 : 1;
}

// packed = the digits of a chunk, each drawn: sign(x) with the chance min(|x|, m) / m, else 0; left, where
// that is wanted, = what they leave.
void encode_chunk(const Addends& x, const Draws& draws, float m, std::byte* packed) {
  for (std::uint64_t at = 0; at < x.count; at += base3::kRowElements) {
    const std::uint64_t left = x.count - at;
    const auto count = static_cast<std::uint32_t>(left < base3::kRowElements ? left : base3::kRowElements);
    std::uint8_t digits[base3::kRowElements];
    std::memset(digits, 1, sizeof digits);  // pads are zeros
    for (std::uint32_t i = 0; i < count; ++i) {
      const float sum = sum_at(x, at + i);
      const int digit = drawn(sum, m, uniform_at(draws, at + i));
      digits[i] = static_cast<std::uint8_t>(1 + digit);
      if (x.left != nullptr) x.left[at + i] = sum - static_cast<float>(digit) * m;
    }
    base3::pack_row(digits, base3::packed_bytes(count), packed + at / base3::kDigitsPerByte);
  }
}

Fault decode_row(const std::byte* row, const base3::RowTarget& target) noexcept {
  for (std::uint32_t j = 0; j < base3::packed_bytes(target.count); ++j) {
    if (static_cast<std::uint32_t>(row[j]) > base3::kMaxPackedByte) return &kBadByte;
  }
  return base3::unpack_row(kDigits, row, target);
}

// Row by row; without a slot into memory that nobody reads.
Fault decode_chunk(const std::byte* packed, const base3::RowTarget& target) {
  float unread[base3::kRowElements];
  for (std::uint32_t at = 0; at < target.count; at += base3::kRowElements) {
    const std::uint32_t left = target.count - at;
    base3::RowTarget row = target;
    row.slot = target.slot != nullptr ? target.slot + at : unread;
    row.count = left < base3::kRowElements ? left : base3::kRowElements;
    const Fault fault = decode_row(packed + at / base3::kDigitsPerByte, row);
    if (fault != nullptr) return fault;
  }
  return nullptr;
}

class Terngrad final : public Codec {
 public:
  // `clip`: 0 for off.
  explicit Terngrad(float clip) noexcept : Codec(kInfo), clip_(clip) {}

  std::string spec() const override {
    return "terngrad:clip=" + (clip_ == 0 ? std::string(kOff) : canonical_number(clip_));
  }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    return fixed_sizes(bytes_of(part.count), kChunkBytes, 1);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const auto [first, second] = two_passes(part);
    const Spread spread = spread_of(first);
    if (spread.largest >= kInfinityBits) return not_finite();
    const float m = scale_of(spread, part.count);
    const CounterRng random(exec.stream);
    for (std::uint64_t at = 0; at < part.count; at += kChunkElements) {
      const std::uint64_t count = std::min(part.count - at, kChunkElements);
      encode_chunk(some_of(second, at, count), {random, at}, m, out.payload.data() + bytes_of(at));
    }
    EncodedPart encoded = write_fixed_ends(bytes_of(part.count), kChunkBytes, 1, out.chunk_ends);
    encoded.scalar = std::bit_cast<std::uint32_t>(m);
    return encoded;
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    return decode_chunks(in, out.count, out);
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    RETURN_IF_ERROR(decode_chunks(in, count, {}));
    add_section(sections, "base 3^5", in.payload.size() * 8);
    return {};
  }

  // Without a slot they are checked alone.
  static Status decode_chunks(const PartView& in, std::uint64_t count, const PartTarget& out) {
    RETURN_IF_ERROR(check_fixed_ends(in, bytes_of(count), kChunkBytes, 1));
    RETURN_IF_ERROR(check_scalar("terngrad", "m", in.scalar));
    const float value = FloatEnvironment::pinned(std::bit_cast<float>(in.scalar)) * out.scale;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const base3::RowTarget target{out.slot != nullptr ? out.slot + i * kChunkElements : nullptr,
                                    elements_of_chunk(count, i, kChunkElements), value, in.scalar == 0,
                                    out.accumulate};
      RETURN_IF_ERROR(fault_status("terngrad", i, decode_chunk(chunk_of(in, i).at, target)));
    }
    return {};
  }

  // m: the largest magnitude, or where values are clipped.
  float scale_of(const Spread& spread, std::uint64_t count) const noexcept {
    const auto largest = std::bit_cast<float>(spread.largest);
    if (clip_ == 0) return largest;
    const double limit = static_cast<double>(clip_) * std::sqrt(spread.sum / static_cast<double>(count));
    return limit < static_cast<double>(largest) ? static_cast<float>(limit) : largest;
  }

  float clip_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId) {
  const SpecParameter* given = find_parameter(spec, "clip");
  if (given != nullptr && given->value == kOff) {
    return std::make_unique<const Terngrad>(0.0F);
  }
  ASSIGN_OR_RETURN(const auto clip,
                   float_parameter(spec, "clip", {.low = 1, .high = 100, .default_value = 2.5F}));
  return std::make_unique<const Terngrad>(clip);
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make};

}  // namespace deltawire::terngrad
