// That the kernels of every target are the reference's, at the edges which whole parts seldom reach: sizes
// around vectors and rows, memory of any alignment with guards around it, every density; and of Rice codes
// where words of the stream, or of the maps, end: escapes, last codes, chunks that end too early or too late.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/random.h"
#include "codecs/codec_testing.h"
#include "codecs/kernels/rice.h"
#include "codecs/target_testing.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc::threelc_kernels_test {
namespace {

using testing::bits_of;

// Memory of `count` values that begins `offset` values after a line of 64 bytes, guards before and behind.
template <class T>
class Guarded {
 public:
  Guarded(std::size_t count, std::size_t offset, T fill)
      : memory_(count + 2 * kGuard + 64 / sizeof(T), kMark), count_(count) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data() + kGuard);
    begin_ = kGuard + (64 - address % 64) % 64 / sizeof(T) + offset % (64 / sizeof(T));
    std::fill_n(data(), count, fill);
  }

  T* data() { return memory_.data() + begin_; }
  std::vector<T> values() const {
    const auto from = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return {from, from + static_cast<std::ptrdiff_t>(count_)};
  }
  bool intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const bool inside = i >= begin_ && i < begin_ + count_;
      if (!inside && memory_[i] != kMark) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 128;
  static constexpr T kMark = T(77);
  std::vector<T> memory_;
  std::size_t count_;
  std::size_t begin_ = 0;
};

// By target.
class ThreelcKernels : public ::testing::TestWithParam<TargetId> {
 protected:
  void SetUp() override { testing::skip_unless_runnable(GetParam()); }

  const Kernels& reference_ = kernels_for(TargetId::kReference);
  const Kernels& kernels_ = kernels_for(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Targets, ThreelcKernels, ::testing::ValuesIn(testing::beyond_reference()),
                         testing::target_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ThreelcKernels);  // a build may have the reference alone

// `share` of the values are large enough for m = 1 to be sent; among the others ties, zeros of both signs and
// subnormals.
std::vector<float> mixed_values(std::size_t count, double share, std::uint64_t seed) {
  constexpr float kSmall[] = {0.0F, -0.0F, 0x1p-149F, -0x1p-140F, 0.49999997F, -0.49999997F, 0.25F, -0.125F};
  constexpr float kLarge[] = {1.0F, -1.0F, 0.5F, -0.5F, 0.75F, -0.50000006F};
  CounterRng random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const std::uint64_t draw = random.next();
    const bool large = static_cast<double>(draw >> 32) < share * 0x1p32;
    value = large ? kLarge[draw % 6] : kSmall[draw % 8];
  }
  return values;
}

Guarded<float> copied(const std::vector<float>& values, std::size_t offset) {
  Guarded<float> memory(values.size(), offset, 0);
  std::copy(values.begin(), values.end(), memory.data());
  return memory;
}

constexpr double kShares[] = {0, 0.001, 0.02, 0.1, 0.2, 0.3, 0.45, 0.7, 1};

std::vector<std::uint32_t> chunk_sizes() {
  std::vector<std::uint32_t> sizes = {319, 320, 321, 639, 640, 641, 960, 1000, 4096, 40955, 40959, 40960};
  const auto after = testing::whole_or_brief(1U, 3U);
  for (std::uint32_t size = 1; size <= 330; size += size < 140 ? 1 : after) sizes.push_back(size);
  return sizes;
}

struct Quantization {
  Quantized quantized;
  std::vector<std::byte> packed, nonzero, negative;
  std::vector<float> left;
};

bool operator==(const Quantization& a, const Quantization& b) {
  return a.quantized.nonzeros == b.quantized.nonzeros && a.quantized.zero_bytes == b.quantized.zero_bytes &&
         a.quantized.zero_runs == b.quantized.zero_runs && a.packed == b.packed && a.nonzero == b.nonzero &&
         a.negative == b.negative && testing::same_bits(a.left, b.left);
}

// Way 0: without a residual; 1: with one that isn't kept; 2: in place; 3: of sums that are kept.
Quantization quantize(const Kernels& kernels, const std::vector<float>& values,
                      const std::vector<float>& residual, int way, float m, bool maps) {
  const auto count = static_cast<std::uint32_t>(values.size());
  Guarded<float> in = copied(values, count);
  Guarded<float> before = copied(residual, count / 2);
  Guarded<std::byte> packed(packed_bytes(count), count, std::byte{0});
  Guarded<std::byte> nonzero(map_bytes(count), count / 3, std::byte{9});
  Guarded<std::byte> negative(map_bytes(count), count / 5, std::byte{9});
  QuantizeInput input{in.data(), nullptr, nullptr, count, scale_for(m, 1)};
  if (way == 1 || way == 2) input.residual = before.data();
  if (way == 2) input.left = before.data();
  if (way == 3) input.left = in.data();
  DigitMaps digits;
  if (maps) digits = {nonzero.data(), negative.data()};
  const Quantized quantized = kernels.quantize(input, packed.data(), digits);
  EXPECT_TRUE(in.intact() && before.intact() && packed.intact() && nonzero.intact() && negative.intact());
  std::vector<float> left = in.values();
  const std::vector<float> kept = before.values();
  left.insert(left.end(), kept.begin(), kept.end());
  return {quantized, packed.values(), nonzero.values(), negative.values(), left};
}

// The maps of a chunk of which `share` of the digits aren't 0.
Quantization drawn_maps(std::uint32_t count, double share, std::uint64_t seed) {
  const std::vector<float> none(count, 0.0F);
  return quantize(kernels_for(TargetId::kReference), mixed_values(count, share, seed), none, 0, 1, true);
}

std::vector<std::byte> chunk_of_mode(ChunkMode mode, const std::vector<std::byte>& body) {
  std::vector<std::byte> chunk(1, static_cast<std::byte>(mode));
  chunk.insert(chunk.end(), body.begin(), body.end());
  return chunk;
}

// A quantized chunk in each of its modes.
std::vector<std::vector<std::byte>> chunks_of(const Quantization& quantized, std::uint32_t count,
                                              unsigned parameter) {
  const Kernels& reference = kernels_for(TargetId::kReference);
  const auto plain = static_cast<std::uint32_t>(quantized.packed.size());
  std::vector<std::byte> runs(plain);
  runs.resize(reference.zero_runs(quantized.packed.data(), plain, runs.data()));
  std::vector<std::byte> nonzero = quantized.nonzero;
  std::vector<std::byte> negative = quantized.negative;
  std::vector<std::byte> rice(6 * count + 20);
  rice.resize(reference.rice({nonzero.data(), negative.data()}, count,
                             {quantized.quantized.nonzeros, parameter}, rice.data(),
                             static_cast<std::uint32_t>(rice.size())));
  return {chunk_of_mode(ChunkMode::kBase3, quantized.packed), chunk_of_mode(ChunkMode::kZeroRuns, runs),
          chunk_of_mode(ChunkMode::kRice, rice)};
}

TEST_P(ThreelcKernels, Quantize) {
  for (const std::uint32_t count : chunk_sizes()) {
    const std::vector<float> values = mixed_values(count, kShares[count % std::size(kShares)], count);
    const std::vector<float> residual = mixed_values(count, 0.01, count + 1);
    for (const int way : {0, 1, 2, 3}) {
      for (const bool maps : {false, true}) {
        const float m = count % 7 == 0 ? 0.0F : 1.0F;
        ASSERT_TRUE(quantize(kernels_, values, residual, way, m, maps) ==
                    quantize(reference_, values, residual, way, m, maps))
            << count << " way " << way;
      }
    }
  }
}

// Runs of all lengths up to 100 zero bytes, some far longer, and literals between them.
std::vector<std::byte> bytes_with_runs(std::size_t size, std::uint64_t longest, std::uint64_t seed) {
  CounterRng random(seed);
  std::vector<std::byte> bytes;
  while (bytes.size() < size) {
    bytes.insert(bytes.end(), random.next() % (longest + 1), kZeroByte);
    for (std::uint64_t literals = random.next() % 4; literals > 0; --literals) {
      bytes.push_back(static_cast<std::byte>(random.next() % 243));
    }
  }
  bytes.resize(size);
  return bytes;
}

TEST_P(ThreelcKernels, ZeroRunsThereAndBack) {
  for (std::uint32_t i = 0; i < 1500; ++i) {
    const std::uint32_t size = i < 400 ? i + 1 : 1 + i * 2654435761U % 8192;
    constexpr std::uint64_t kLongest[] = {0, 1, 2, 5, 13, 16, 40, 100, 5000};
    const std::vector<std::byte> packed = bytes_with_runs(size, kLongest[i % std::size(kLongest)], i);
    std::vector<std::byte> expected(size);
    expected.resize(reference_.zero_runs(packed.data(), size, expected.data()));
    Guarded<std::byte> out(size, i, std::byte{0});
    ASSERT_EQ(kernels_.zero_runs(packed.data(), size, out.data()), expected.size()) << size;
    std::vector<std::byte> coded = out.values();
    coded.resize(expected.size());
    ASSERT_EQ(coded, expected);
    ASSERT_TRUE(out.intact());
  }
}

TEST_P(ThreelcKernels, RiceWithEveryParameterAndLimit) {
  for (const std::uint32_t count : {1U, 63U, 64U, 65U, 1000U, 5000U, 40960U}) {
    for (const double share : kShares) {
      Quantization maps = drawn_maps(count, share, count);
      const DigitMaps digits = {maps.nonzero.data(), maps.negative.data()};
      for (unsigned parameter = 0; parameter <= kRiceMaxParameter; ++parameter) {
        const RiceCode code{maps.quantized.nonzeros, parameter};
        std::vector<std::byte> expected(6 * count + 20);
        const std::uint32_t bytes = reference_.rice(digits, count, code, expected.data(),
                                                    static_cast<std::uint32_t>(expected.size()));
        expected.resize(bytes);
        for (const std::uint32_t limit : {bytes / 2 + 4, bytes, bytes + 1, bytes + 9}) {
          if (limit <= kRiceHeaderBytes) continue;
          Guarded<std::byte> out(limit, limit, std::byte{0});
          const std::uint32_t written = kernels_.rice(digits, count, code, out.data(), limit);
          ASSERT_EQ(written, std::min(bytes, limit)) << count << " " << share << " " << parameter;
          ASSERT_TRUE(out.intact());
          if (written == limit) continue;
          std::vector<std::byte> coded = out.values();
          coded.resize(written);
          ASSERT_EQ(coded, expected);
        }
      }
    }
  }
}

// Decodes into memory whose values' bits may be any: -0, and NaN that arithmetic would change.
struct Decoded {
  Fault fault;
  std::vector<float> values;
};

Decoded decode(const Kernels& kernels, const std::vector<std::byte>& chunk, std::uint32_t count,
               bool accumulate, bool streamed, std::size_t offset) {
  Guarded<float> slot(count, offset, -0.0F);
  for (std::uint32_t i = 0; i < count; i += 3) slot.data()[i] = std::bit_cast<float>(0x7F800001U + i);
  for (std::uint32_t i = 1; i < count; i += 3) slot.data()[i] = 0.1F;
  std::vector<std::byte> bytes(offset % 64 + chunk.size());  // sanitizers see what is read behind them
  std::copy(chunk.begin(), chunk.end(), bytes.end() - static_cast<std::ptrdiff_t>(chunk.size()));
  const DecodeTarget target{slot.data(), count, 0.3F, false, accumulate, streamed};
  const Fault fault =
      kernels.decode({bytes.data() + offset % 64, static_cast<std::uint32_t>(chunk.size())}, target);
  EXPECT_TRUE(slot.intact());
  return {fault, slot.values()};
}

void expect_same_decoding(const Kernels& kernels, const std::vector<std::byte>& chunk, std::uint32_t count) {
  for (const bool accumulate : {false, true}) {
    const Decoded expected = decode(kernels_for(TargetId::kReference), chunk, count, accumulate, false, 0);
    for (const std::size_t offset : {std::size_t{0}, std::size_t{count}}) {
      for (const bool streamed : {false, true}) {
        const Decoded found = decode(kernels, chunk, count, accumulate, streamed, offset);
        ASSERT_EQ(found.fault, expected.fault) << count;
        if (found.fault != nullptr) continue;
        ASSERT_TRUE(testing::same_bits(found.values, expected.values)) << count << " at " << offset;
      }
    }
  }
}

// Digits that aren't 0, behind gaps.
struct Digits {
  std::vector<float> values;

  void append(std::uint64_t gap, bool negative) {
    values.insert(values.end(), gap, 0.0F);
    values.push_back(negative ? -1.0F : 1.0F);
  }
  std::uint32_t count() const { return static_cast<std::uint32_t>(values.size()); }
};

Quantization maps_of(const Digits& digits) {
  return quantize(kernels_for(TargetId::kReference), digits.values, digits.values, 0, 1, true);
}

void expect_same_coding(const Kernels& kernels, Quantization maps, std::uint32_t count, unsigned parameter,
                        const std::vector<std::byte>& chunk) {
  std::vector<std::byte> coded(chunk.size());
  coded.resize(kernels.rice({maps.nonzero.data(), maps.negative.data()}, count,
                            {maps.quantized.nonzeros, parameter}, coded.data(),
                            static_cast<std::uint32_t>(coded.size())));
  ASSERT_EQ(chunk_of_mode(ChunkMode::kRice, coded), chunk) << count << " parameter " << parameter;
}

TEST_P(ThreelcKernels, DecodeEverySize) {
  for (const std::uint32_t count : chunk_sizes()) {
    const double share = kShares[count % std::size(kShares)];
    for (const auto& chunk : chunks_of(drawn_maps(count, share, count), count, count % 16)) {
      ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, chunk, count));
    }
  }
}

TEST_P(ThreelcKernels, DecodeEveryDensityAndParameter) {
  for (const double share : kShares) {
    for (unsigned parameter = 0; parameter <= kRiceMaxParameter; ++parameter) {
      for (const auto& chunk : chunks_of(drawn_maps(5000, share, parameter), 5000, parameter)) {
        ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, chunk, 5000));
      }
    }
  }
}

// Codes as long as they get before they are escapes, one or two in a row, then many short ones.
TEST_P(ThreelcKernels, LongCodes) {
  for (unsigned i = 0; i < testing::whole_or_brief(330U, 110U); ++i) {
    const unsigned parameter = i % 11;
    CounterRng random(i);
    Digits digits;
    while (digits.count() < 20000) {
      for (unsigned code = 0; code < 12; ++code) {
        const bool is_long = code < 1 + i % 2 && digits.count() < 30000;
        const std::uint64_t unary = 23 + random.next() % 16 / 15;
        const std::uint64_t short_gap = random.next() % 4 + (random.next() % 8 == 0 ? 16 : 0);
        const std::uint64_t long_gap = unary << parameter | random.next() % (1U << parameter);
        digits.append(std::min<std::uint64_t>(is_long ? long_gap : short_gap, 9000), random.next() % 2 != 0);
      }
    }
    ASSERT_LE(digits.count(), kChunkElements);
    const Quantization maps = maps_of(digits);
    const std::vector<std::byte> chunk = chunks_of(maps, digits.count(), parameter)[2];
    if (i < 33) {
      ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, chunk, digits.count()));
    }
    ASSERT_NO_FATAL_FAILURE(expect_same_coding(kernels_, maps, digits.count(), parameter, chunk));
  }
}

// A chunk that promises so many digits, and is filled with one byte.
std::vector<std::byte> promising_chunk(unsigned parameter, std::uint32_t nonzeros, unsigned fill,
                                       std::size_t bytes) {
  std::vector<std::byte> chunk(bytes, static_cast<std::byte>(fill));
  chunk[0] = static_cast<std::byte>(ChunkMode::kRice);
  chunk[1] = static_cast<std::byte>(parameter);
  chunk[2] = static_cast<std::byte>(nonzeros % 256);
  chunk[3] = static_cast<std::byte>(nonzeros / 256);
  return chunk;
}

// Positions that a stream of few bytes promises and doesn't have, and some outside the chunk: nothing else is
// read or written, as the sanitizers see. Every other combination is left out, so that all of any three
// remain; in brief a third of them is decoded.
TEST_P(ThreelcKernels, PromisedPositions) {
  bool is_due = false;
  unsigned due = 0;
  for (const unsigned parameter : {0U, 1U, 7U, 15U}) {
    is_due = !is_due;  // the others have 100 combinations, an even number
    for (const std::uint32_t nonzeros : {40U, 700U, 3000U, 40960U}) {
      for (const unsigned fill : {0x00U, 0x55U, 0xAAU, 0xFEU, 0xFFU}) {
        for (const std::size_t bytes : {4U, 5U, 8U, 1000U, 8000U}) {
          is_due = !is_due;
          if (!is_due || due++ % testing::whole_or_brief(1U, 3U) != 0) continue;
          const std::vector<std::byte> chunk = promising_chunk(parameter, nonzeros, fill, bytes);
          ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, chunk, kChunkElements));
        }
      }
    }
  }
}

TEST_P(ThreelcKernels, DigitsWithoutM) {
  for (const double share : {0.0, 0.01, 0.5}) {
    for (const auto& chunk : chunks_of(drawn_maps(1000, share, 3), 1000, 0)) {
      std::vector<float> slot(1000);
      const DecodeTarget target{slot.data(), 1000, 0, true, false, false};
      const ChunkBytes bytes{chunk.data(), static_cast<std::uint32_t>(chunk.size())};
      EXPECT_EQ(kernels_.decode(bytes, target), share > 0 ? &faults::kNonzeroWithoutM : nullptr);
    }
  }
}

TEST_P(ThreelcKernels, ASplitRunIsRefusedInEveryPlace) {
  for (const int second : {121, 243, 255}) {
    for (std::uint32_t at = 0; at < 200; ++at) {
      std::vector<std::byte> codes(200, std::byte{7});
      codes.insert(codes.begin() + at, {std::byte{244}, static_cast<std::byte>(second)});
      const std::uint32_t zeros = second == 121 ? 1 : static_cast<std::uint32_t>(second) - 241;
      const std::vector<std::byte> chunk = chunk_of_mode(ChunkMode::kZeroRuns, codes);
      const std::uint32_t count = (200 + 3 + zeros) * kDigitsPerByte;
      ASSERT_EQ(decode(kernels_, chunk, count, false, false, 0).fault, &faults::kSplitRun) << at;
    }
  }
}

TEST_P(ThreelcKernels, EveryByte) {
  std::vector<std::byte> packed(256);
  for (std::size_t i = 0; i < packed.size(); ++i) packed[i] = static_cast<std::byte>(i % 243);
  expect_same_decoding(kernels_, chunk_of_mode(ChunkMode::kBase3, packed), 1280);
  for (std::size_t i = 0; i < packed.size(); ++i) {
    std::vector<std::byte> bad = packed;
    bad[i] = static_cast<std::byte>(243 + i % 13);
    expect_same_decoding(kernels_, chunk_of_mode(ChunkMode::kBase3, bad), 1280);
  }
}

TEST_P(ThreelcKernels, DamagedChunks) {
  CounterRng random(11);
  for (const std::uint32_t count : {300U, 1000U, 3000U}) {
    for (const double share : kShares) {
      for (const auto& chunk : chunks_of(drawn_maps(count, share, 5), count, share < 0.3 ? 4 : 0)) {
        for (int i = 0; i < testing::whole_or_brief(40, 12); ++i) {
          std::vector<std::byte> damaged = chunk;
          const std::uint64_t draw = random.next();
          if (i % 4 != 1) damaged[draw % damaged.size()] ^= static_cast<std::byte>(1U << draw / 65536 % 8);
          if (i % 4 == 0) damaged.resize(draw / 7 % (damaged.size() + 1));
          if (i % 4 == 1)
            damaged.insert(damaged.end(), draw / 7 % 3, static_cast<std::byte>(draw / 64 % 2 * 85));
          ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, damaged, count));
        }
      }
    }
  }
}

// Gaps around the shortest escape between short ones, often and seldom: they begin at every bit of a word.
TEST_P(ThreelcKernels, EscapesAmongDenseCodes) {
  for (std::uint64_t seed = 0; seed < testing::whole_or_brief(900U, 300U); ++seed) {
    const auto parameter = static_cast<unsigned>(seed % 3);
    const std::uint64_t rarity = seed / 3 % 3 == 0 ? 16 : 512;  // often none or a single one in a chunk
    CounterRng random(seed);
    Digits digits;
    while (digits.count() < 1500U << parameter) {
      const std::uint64_t draw = random.next();
      const std::uint64_t low = draw / 7 % (1U << parameter);
      const std::uint64_t unary = draw % rarity == 0 ? 20 + draw / 512 % 20 : draw / 512 % 3;
      digits.append(unary << parameter | low, draw / 65536 % 2 == 0);
    }
    const Quantization maps = maps_of(digits);
    const std::vector<std::byte> chunk = chunks_of(maps, digits.count(), parameter)[2];
    ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, chunk, digits.count()));
    ASSERT_NO_FATAL_FAILURE(expect_same_coding(kernels_, maps, digits.count(), parameter, chunk));
  }
}

// Streams of every length: the last code ends at every bit of a word, some just where it ends. With a header
// that says one digit more or less, a byte less or more, a bit set behind the end, and elements that end
// before the last digit.
TEST_P(ThreelcKernels, LastCodes) {
  for (const unsigned parameter : {0U, 1U, 2U, 3U, 7U, 15U}) {
    CounterRng random(parameter);
    Digits digits;
    for (unsigned codes = 1; codes <= 130; ++codes) {
      const std::uint64_t draw = random.next();
      const std::uint64_t most = std::min(2U << parameter, 300U);
      digits.append(draw % (most + 1), draw >> 63 != 0);
      const std::uint32_t count = digits.count();
      const Quantization maps = maps_of(digits);
      const std::vector<std::byte> chunk = chunks_of(maps, count, parameter)[2];
      ASSERT_NO_FATAL_FAILURE(expect_same_coding(kernels_, maps, count, parameter, chunk));
      for (const std::uint32_t elements : {count, count + 1, count - 1, count / 2}) {
        if (elements == 0) continue;
        ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, chunk, elements));
      }
      for (const int digits_more : {-1, 1}) {
        std::vector<std::byte> other = chunk;
        other[2] = static_cast<std::byte>(static_cast<int>(codes) + digits_more);
        ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, other, count));
      }
      std::vector<std::byte> other = chunk;
      other.back() |= std::byte{0x80};
      ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, other, count));
      other = chunk;
      other.pop_back();
      ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, other, count));
      other = chunk;
      other.insert(other.end(), 1 + codes % 20, std::byte{0});
      ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, other, count));
    }
  }
}

// Ones alone, zeros alone, and both in turn, behind a header that promises many digits: no kernel goes on for
// ever, or beyond its memory.
TEST_P(ThreelcKernels, StreamsWithoutAnEnd) {
  for (unsigned parameter = 0; parameter <= 4; ++parameter) {
    for (const unsigned fill : {0x00U, 0xFFU, 0x01U, 0x7FU, 0xAAU}) {
      for (const std::uint32_t nonzeros : {1U, 3U, 64U, 2000U}) {
        const std::vector<std::byte> chunk = promising_chunk(parameter, nonzeros, fill, 600);
        for (const std::uint32_t count : {2000U, 4000U, 40960U}) {
          ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, chunk, count));
        }
      }
    }
  }
}

// A few codes, bit by bit, as spec.md has them.
TEST(RiceBytes, ABytesBitsOneByOne) {
  constexpr const RiceBytes<1>& kTable = kRiceBytes<1>;
  const auto next = [](unsigned byte, unsigned place) {
    return static_cast<unsigned>(kTable.next[byte] >> (place * kPlaceBits) & 0xFFFF) / kPlaceBits;
  };
  const auto digits = [](unsigned byte, unsigned place) {
    const unsigned found = byte * kMostPlaces + place;
    return std::vector<int>(kTable.digits[found], kTable.digits[found] + kTable.elements[found]);
  };
  // 1, 0 1 1: two zeros, a low bit of one, the sign of -1; then 0 0 0: +1 at once; then 1: two zeros.
  EXPECT_EQ(digits(0b1000'1101, 0), (std::vector<int>{0, 0, 0, kNegativeDigit, kPositiveDigit, 0, 0}));
  EXPECT_EQ(next(0b1000'1101, 0), 0U);
  // From before a sign: -1, then six pairs of zeros and what ends them; a low bit is next.
  std::vector<int> zeros(13, 0);
  zeros[0] = kNegativeDigit;
  EXPECT_EQ(digits(0b0111'1111, 2), zeros);
  EXPECT_EQ(next(0b0111'1111, 2), 1U);
  EXPECT_EQ(digits(0xFF, 0), std::vector<int>(16, 0));
}

}  // namespace
}  // namespace deltawire::threelc::threelc_kernels_test
