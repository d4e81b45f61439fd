// fp8 and fp4: floats of 8 and of 4 bits, with a power of two for each block. spec.md in their folders define
// the bytes.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/bit_functions.h"
#include "base/errors.h"
#include "base/float_bits.h"
#include "codecs/block_codec.h"
#include "codecs/registration.h"

namespace deltawire::minifloat {

namespace {

// From the highest bit a code has a sign, an exponent and a mantissa.
struct Minifloat {
  unsigned mantissa = 0;          // bits of it
  unsigned bias = 0;              // of the exponent
  unsigned largest = 0;           // code of the largest number, without sign; none above it is valid
  unsigned largest_exponent = 0;  // of that number
  // The largest significand that still gets this exponent, as float32's 23 bits behind the point: that of the
  // largest number, or more where beyond it the error is no larger than between two numbers.
  std::uint32_t reach = 0;

  // Of a scale's byte: the largest number is finite with it.
  unsigned largest_scale() const noexcept { return 254 - largest_exponent; }
};

// 2^exponent. REQUIRES: -127 <= exponent <= 127.
float power_of_two(int exponent) noexcept {
  if (exponent == -127) return 0x1p-127F;  // subnormal
  return bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// The byte of the smallest scale with which the magnitude `largest`, given by its bits, is within the
// format's reach; the largest byte where none is.
unsigned minifloat_scale(std::uint32_t largest, const Minifloat& format) noexcept {
  // Carries into the exponent where the significand is beyond reach.
  const std::uint32_t field = (largest + (0x7FFFFF - format.reach)) >> 23;
  const unsigned exponent = format.largest_exponent;
  const unsigned scale = field > exponent ? field - exponent : 0;
  return scale < format.largest_scale() ? scale : format.largest_scale();
}

// The code nearest to |y|, ties to even; of what is beyond the largest number, that. Without the sign.
[[gnu::always_inline]] inline std::uint32_t minifloat_code(float y, const Minifloat& format) noexcept {
  const std::uint32_t magnitude = bit_cast<std::uint32_t>(y) & kMagnitudeMask;
  const unsigned dropped = 23 - format.mantissa;
  const std::uint32_t bias = 127 - format.bias;
  const std::uint32_t below_half = (1U << (dropped - 1)) - 1;
  const std::uint32_t normal =
      (magnitude - (bias << 23) + below_half + (magnitude >> dropped & 1)) >> dropped;
  // The last bit of this sum is the format's smallest number.
  const float ruler = power_of_two(24 - static_cast<int>(format.bias + format.mantissa));
  const std::uint32_t subnormal =
      bit_cast<std::uint32_t>(bit_cast<float>(magnitude) + ruler) - bit_cast<std::uint32_t>(ruler);
  const auto code = static_cast<std::int32_t>(chosen(magnitude >= (bias + 1) << 23, normal, subnormal));
  const auto largest = static_cast<std::int32_t>(format.largest);
  return static_cast<std::uint32_t>(code < largest ? code : largest);
}

// The number of a code without sign, with `sign`: 1 for negative numbers, 0 for others.
[[gnu::always_inline]] inline float minifloat_number(std::uint32_t code, std::uint32_t sign,
                                                     const Minifloat& format) noexcept {
  const unsigned dropped = 23 - format.mantissa;
  const std::uint32_t normal = (code << dropped) + ((127 - format.bias) << 23);
  // Signed: there are instructions for it.
  const float subnormal = static_cast<float>(static_cast<std::int32_t>(code)) *
                          power_of_two(1 - static_cast<int>(format.bias + format.mantissa));
  const std::uint32_t number =
      chosen(code >> format.mantissa > 0, normal, bit_cast<std::uint32_t>(subnormal));
  return bit_cast<float>(number | sign << 31);
}

constexpr std::uint64_t kLargestBlock = 1024;

// codes = those of a block, a byte each, with the sign in bit `sign`; left, where that is wanted, = what they
// leave. Returns the byte of the block's scale.
[[gnu::always_inline]] inline std::byte encode_minifloats(const Addends& x, Minifloat format, unsigned sign,
                                                          std::byte* codes) noexcept {
  const std::uint64_t count = x.count;
  float* const left = x.left;
  // `left` may be `in` or `residual`, and a loop that reads and writes the same memory isn't vectorized.
  float sums[kLargestBlock];
  for (std::uint64_t i = 0; i < count; ++i) sums[i] = sum_at(x, i);
  const unsigned scale = minifloat_scale(largest_magnitude(sums, nullptr, count), format);
  // Exact, or so small that it is coded as 0.
  const float inverse = power_of_two(127 - static_cast<int>(scale));
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint32_t negative = bit_cast<std::uint32_t>(sums[i]) >> 31;
    codes[i] = static_cast<std::byte>(minifloat_code(sums[i] * inverse, format) | negative << sign);
  }
  if (left == nullptr) return static_cast<std::byte>(scale);
  const float unit = power_of_two(static_cast<int>(scale) - 127);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto code = static_cast<std::uint32_t>(codes[i]);
    left[i] = sums[i] - minifloat_number(code & ((1U << sign) - 1), code >> sign, format) * unit;
  }
  return static_cast<std::byte>(scale);
}

// Calls store(i, value) for each value of a block with these codes, a byte each. Exact: a number of few bits
// times a power of two.
template <class Store>
[[gnu::always_inline]] inline void decode_minifloats(const std::byte* codes, std::uint64_t count,
                                                     std::byte scale, Minifloat format, unsigned sign,
                                                     Store store) noexcept {
  const float unit = power_of_two(static_cast<int>(scale) - 127);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto code = static_cast<std::uint32_t>(codes[i]);
    store(i, minifloat_number(code & ((1U << sign) - 1), code >> sign, format) * unit);
  }
}

// Two codes a byte, the first of them in the lower half.
void pack(const std::byte* codes, std::uint64_t count, std::byte* packed) noexcept {
  for (std::uint64_t i = 0; i < count / 2; ++i) packed[i] = codes[2 * i] | codes[2 * i + 1] << 4;
  if (count % 2 != 0) packed[count / 2] = codes[count - 1];
}

void unpack(const std::byte* packed, std::uint64_t count, std::byte* codes) noexcept {
  for (std::uint64_t i = 0; i < count / 2; ++i) {
    codes[2 * i] = packed[i] & std::byte{0xF};
    codes[2 * i + 1] = packed[i] >> 4;
  }
  if (count % 2 != 0) codes[count - 1] = packed[count / 2];
}

// A chunk has the scales of all blocks, a byte each, and then all codes, which are finite numbers.
struct Shape {
  Minifloat format;
  std::uint32_t block = 0;  // elements that share a power of two: an even number
  unsigned bits = 0;        // of a code: 8 or 4

  void encode(const Addends& x, std::byte* chunk) const noexcept {
    bits == 8 ? encode_blocks<8>(x, chunk) : encode_blocks<4>(x, chunk);
  }

  template <class Store>
  void decode(const std::byte* chunk, std::uint64_t count, Store store) const noexcept {
    bits == 8 ? decode_blocks<8>(chunk, count, store) : decode_blocks<4>(chunk, count, store);
  }

  // The first block whose scale no encoder writes, or the number of blocks.
  std::uint64_t find_bad_scale(const std::byte* chunk, std::uint64_t count) const noexcept {
    const std::uint64_t blocks = blocks_of(count, block);
    std::uint64_t at = 0;
    while (at < blocks && static_cast<unsigned>(chunk[at]) <= format.largest_scale()) ++at;
    return at;
  }

  // The first element whose code no encoder writes, or `count`. Every code of 4 bits is a finite number.
  std::uint64_t find_bad_code(const std::byte* chunk, std::uint64_t count) const noexcept {
    if (bits == 4) return count;
    const std::byte* const codes = chunk + blocks_of(count, block);
    std::uint64_t i = 0;
    while (i < count && (static_cast<unsigned>(codes[i]) & 0x7F) <= format.largest) ++i;
    return i;
  }

 private:
  // Codes of kBits, of which the highest is the sign.
  template <unsigned kBits>
  void encode_blocks(const Addends& x, std::byte* chunk) const noexcept {
    std::byte* const codes = chunk + blocks_of(x.count, block);
    for (std::uint64_t at = 0; at < x.count; at += block) {
      const Addends some = some_of(x, at, x.count - at < block ? x.count - at : block);
      if constexpr (kBits == 8) {
        *chunk++ = encode_minifloats(some, format, kBits - 1, codes + at);
      } else {
        std::byte apart[kLargestBlock];
        *chunk++ = encode_minifloats(some, format, kBits - 1, apart);
        pack(apart, some.count, codes + at / 2);
      }
    }
  }

  // Calls store(i, value) for each value of a chunk.
  template <unsigned kBits, class Store>
  void decode_blocks(const std::byte* chunk, std::uint64_t count, Store store) const noexcept {
    const std::byte* const codes = chunk + blocks_of(count, block);
    for (std::uint64_t at = 0; at < count; at += block) {
      const std::uint64_t some = count - at < block ? count - at : block;
      const auto store_here = [&](std::uint64_t i, float value) { store(at + i, value); };
      if constexpr (kBits == 8) {
        decode_minifloats(codes + at, some, *chunk++, format, kBits - 1, store_here);
      } else {
        std::byte apart[kLargestBlock];
        unpack(codes + at / 2, some, apart);
        decode_minifloats(apart, some, *chunk++, format, kBits - 1, store_here);
      }
    }
  }
};

constexpr std::string_view kBlocks[] = {"32", "64", "128", "256", "512", "1024"};
constexpr std::uint32_t kFirstBlock = 32;
constexpr ParameterInfo kBlockParameter = {"block", "32, 64, 128, 256, 512 or 1024", "32",
                                           "elements that share a power of two"};

// A codec of two formats, of which the first is the default.
struct Family {
  CodecInfo info;
  std::string_view names[2];  // of the formats, in specs
  Minifloat formats[2];
  unsigned bits = 0;  // of a code
};

constexpr CodecInfo info_of(const CodecInfo& own) noexcept {
  CodecInfo info = own;
  info.error_feedback = true;
  info.finite_only = true;
  info.chunk_elements = kBlockChunkElements;
  return info;
}

constexpr ParameterInfo kFp8Parameters[] = {
    {"format", "e4m3 or e5m2", "e4m3", "bits of exponent and mantissa"},
    kBlockParameter,
};
constexpr std::string_view kFp8Examples[] = {"fp8:format=e5m2", "fp8:block=256"};
constexpr Family kFp8 = {
    .info = info_of({
        .id = 18,
        .name = "fp8",
        .summary =
            "floats of 8 bits, with a power of two for each block and error feedback: a quarter of the bytes",
        .source =
            "Micikevicius et al.: FP8 Formats for Deep Learning (2022); OCP, Microscaling Formats 1.0 (2023)",
        .parameters = kFp8Parameters,
        .examples = kFp8Examples,
        .default_pattern = "direct",
    }),
    .names = {"e4m3", "e5m2"},
    // OCP's OFP8.
    .formats = {{.mantissa = 3, .bias = 7, .largest = 0x7E, .largest_exponent = 8, .reach = 0x600000},
                {.mantissa = 2, .bias = 15, .largest = 0x7B, .largest_exponent = 15, .reach = 0x600000}},
    .bits = 8,
};

constexpr ParameterInfo kFp4Parameters[] = {
    {"format", "e2m1 or e3m0", "e2m1", "bits of exponent and mantissa"},
    kBlockParameter,
};
constexpr std::string_view kFp4Examples[] = {"fp4:format=e3m0", "fp4:block=256"};
constexpr Family kFp4 = {
    .info = info_of({
        .id = 26,
        .name = "fp4",
        .summary =
            "floats of 4 bits, with a power of two for each block and error feedback: 7.5 times fewer bytes",
        .source = "OCP, Microscaling Formats 1.0 (2023); Douillard et al.: Streaming DiLoCo with overlapping "
                  "communication (2025)",
        .parameters = kFp4Parameters,
        .examples = kFp4Examples,
        .default_pattern = "direct",
    }),
    .names = {"e2m1", "e3m0"},
    .formats = {{.mantissa = 1, .bias = 1, .largest = 7, .largest_exponent = 2, .reach = 0x600000},
                {.mantissa = 0, .bias = 3, .largest = 7, .largest_exponent = 4, .reach = 0x400000}},
    .bits = 4,
};

class MinifloatCodec final : public BlockCodec<Shape> {
 public:
  MinifloatCodec(const CodecInfo& info, std::string_view format, const Shape& shape) noexcept
      : BlockCodec(info, shape, {"scales", 1}), format_(format) {}

  std::string spec() const override {
    return std::string(info().name) + ":format=" + std::string(format_) +
           ",block=" + std::to_string(shape().block);
  }

 private:
  Status check_chunk(const ChunkBytes& chunk, std::size_t number, std::uint32_t count) const override {
    const auto corrupt = [&](const std::string& text) {
      return chunk_error(info().name, ErrorCode::kCorrupt, number, text);
    };
    const std::uint64_t block = shape().find_bad_scale(chunk.at, count);
    if (block < blocks_of(count, shape().block)) {
      return corrupt("the scale of block " + std::to_string(block) + " is " +
                     std::to_string(std::to_integer<unsigned>(chunk.at[block])) + ", above " +
                     std::to_string(shape().format.largest_scale()));
    }
    const std::uint64_t bad = shape().find_bad_code(chunk.at, count);
    if (bad < count) return corrupt("the code of element " + std::to_string(bad) + " is not finite");
    return {};
  }

  std::string_view format_;  // its name
};

template <const Family& kFamily>
Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId) {
  ASSIGN_OR_RETURN(const auto format, choice_parameter(spec, "format", kFamily.names, 0));
  ASSIGN_OR_RETURN(const auto block, choice_parameter(spec, "block", kBlocks, 0));
  return std::make_unique<const MinifloatCodec>(
      kFamily.info, kFamily.names[format],
      Shape{kFamily.formats[format], kFirstBlock << block, kFamily.bits});
}

}  // namespace

}  // namespace deltawire::minifloat

namespace deltawire::fp8 {

extern constinit const Registration kRegistration = {&minifloat::kFp8.info, minifloat::make<minifloat::kFp8>};

}  // namespace deltawire::fp8

namespace deltawire::fp4 {

extern constinit const Registration kRegistration = {&minifloat::kFp4.info, minifloat::make<minifloat::kFp4>};

}  // namespace deltawire::fp4
