// That the decoding kernels of every target are the reference's, values and faults, and that Rice codes which
// are hard to make are made alike.
#include <algorithm>
#include <bit>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/threelc/threelc_testing.h"

namespace deltawire::threelc::threelc_decode_kernels_test {
namespace {

class ThreelcDecodeKernels : public KernelsOfTarget {};

INSTANTIATE_TEST_SUITE_P(Targets, ThreelcDecodeKernels, ::testing::ValuesIn(testing::beyond_reference()),
                         testing::target_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ThreelcDecodeKernels);  // a build may have the reference alone

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
  Guarded<std::byte> bytes(chunk.size(), offset, std::byte{0});
  std::copy(chunk.begin(), chunk.end(), bytes.data());
  const DecodeTarget target{slot.data(), count, 0.3F, false, accumulate, streamed};
  const Fault fault = kernels.decode({bytes.data(), static_cast<std::uint32_t>(chunk.size())}, target);
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
        if (found.fault != Fault::kNone) continue;
        ASSERT_TRUE(testing::same_bits(found.values, expected.values)) << count << " at " << offset;
      }
    }
  }
}

TEST_P(ThreelcDecodeKernels, DecodeEverySize) {
  for (const std::uint32_t count : chunk_sizes()) {
    const double share = kShares[count % std::size(kShares)];
    for (const auto& chunk : chunks_of(drawn_maps(count, share, count), count, count % 16)) {
      ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, chunk, count));
    }
  }
}

TEST_P(ThreelcDecodeKernels, DecodeEveryDensityAndParameter) {
  for (const double share : kShares) {
    for (unsigned parameter = 0; parameter <= kRiceMaxParameter; ++parameter) {
      for (const auto& chunk : chunks_of(drawn_maps(5000, share, parameter), 5000, parameter)) {
        ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, chunk, 5000));
      }
    }
  }
}

// Codes as long as they get before they are escapes, one or two in a row, then many short ones.
TEST_P(ThreelcDecodeKernels, LongCodes) {
  for (unsigned i = 0; i < 330; ++i) {
    const unsigned parameter = i % 11;
    CounterRng random(i);
    std::vector<float> values;
    while (values.size() < 20000) {
      for (unsigned code = 0; code < 12; ++code) {
        const bool is_long = code < 1 + i % 2 && values.size() < 30000;
        const std::uint64_t unary = 23 + random.next() % 16 / 15;
        const std::uint64_t short_gap = random.next() % 4 + (random.next() % 8 == 0 ? 16 : 0);
        const std::uint64_t long_gap = unary << parameter | random.next() % (1U << parameter);
        const std::uint64_t gap = is_long ? long_gap : short_gap;
        values.insert(values.end(), std::min<std::uint64_t>(gap, 9000), 0.0F);
        values.push_back(random.next() % 2 == 0 ? 1.0F : -1.0F);
      }
    }
    const auto count = static_cast<std::uint32_t>(values.size());
    ASSERT_LE(count, kChunkElements);
    Quantization maps = quantize(reference_, values, values, 0, 1, true);
    const std::vector<std::byte> chunk = chunks_of(maps, count, parameter)[2];
    if (i < 33) {
      ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, chunk, count));
    }
    std::vector<std::byte> coded(chunk.size());
    coded.resize(kernels_.rice({maps.nonzero.data(), maps.negative.data()}, count,
                               {maps.quantized.nonzeros, parameter}, coded.data(),
                               static_cast<std::uint32_t>(coded.size())));
    ASSERT_EQ(chunk_of_mode(ChunkMode::kRice, coded), chunk) << parameter;
  }
}

// Positions that a stream of few bytes promises and doesn't have, and some outside the chunk: nothing else is
// read or written, as the sanitizers see.
TEST_P(ThreelcDecodeKernels, PromisedPositions) {
  for (const unsigned parameter : {0U, 1U, 7U, 15U}) {
    for (const std::uint32_t nonzeros : {40U, 700U, 3000U, 40960U}) {
      for (const unsigned fill : {0x00U, 0x55U, 0xAAU, 0xFEU, 0xFFU}) {
        std::vector<std::byte> chunk(8, static_cast<std::byte>(fill));
        chunk[0] = static_cast<std::byte>(ChunkMode::kRice);
        chunk[1] = static_cast<std::byte>(parameter);
        chunk[2] = static_cast<std::byte>(nonzeros % 256);
        chunk[3] = static_cast<std::byte>(nonzeros / 256);
        for (const std::size_t bytes : {4U, 5U, 8U, 1000U, 8000U}) {
          chunk.resize(bytes, static_cast<std::byte>(fill));
          ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, chunk, kChunkElements));
        }
      }
    }
  }
}

TEST_P(ThreelcDecodeKernels, DigitsWithoutM) {
  for (const double share : {0.0, 0.01, 0.5}) {
    for (const auto& chunk : chunks_of(drawn_maps(1000, share, 3), 1000, 0)) {
      std::vector<float> slot(1000);
      const DecodeTarget target{slot.data(), 1000, 0, true, false, false};
      const ChunkBytes bytes{chunk.data(), static_cast<std::uint32_t>(chunk.size())};
      EXPECT_EQ(kernels_.decode(bytes, target), share > 0 ? Fault::kNonzeroWithoutM : Fault::kNone);
    }
  }
}

TEST_P(ThreelcDecodeKernels, ASplitRunIsRefusedInEveryPlace) {
  for (const int second : {121, 243, 255}) {
    for (std::uint32_t at = 0; at < 200; ++at) {
      std::vector<std::byte> codes(200, std::byte{7});
      codes.insert(codes.begin() + at, {std::byte{244}, static_cast<std::byte>(second)});
      const std::uint32_t zeros = second == 121 ? 1 : static_cast<std::uint32_t>(second) - 241;
      const std::vector<std::byte> chunk = chunk_of_mode(ChunkMode::kZeroRuns, codes);
      const std::uint32_t count = (200 + 3 + zeros) * kDigitsPerByte;
      ASSERT_EQ(decode(kernels_, chunk, count, false, false, 0).fault, Fault::kSplitRun) << at;
    }
  }
}

TEST_P(ThreelcDecodeKernels, EveryByte) {
  std::vector<std::byte> packed(256);
  for (std::size_t i = 0; i < packed.size(); ++i) packed[i] = static_cast<std::byte>(i % 243);
  expect_same_decoding(kernels_, chunk_of_mode(ChunkMode::kBase3, packed), 1280);
  for (std::size_t i = 0; i < packed.size(); ++i) {
    std::vector<std::byte> bad = packed;
    bad[i] = static_cast<std::byte>(243 + i % 13);
    expect_same_decoding(kernels_, chunk_of_mode(ChunkMode::kBase3, bad), 1280);
  }
}

TEST_P(ThreelcDecodeKernels, DamagedChunks) {
  CounterRng random(11);
  for (const std::uint32_t count : {300U, 1000U, 3000U}) {
    for (const double share : kShares) {
      for (const auto& chunk : chunks_of(drawn_maps(count, share, 5), count, share < 0.3 ? 4 : 0)) {
        for (int i = 0; i < 40; ++i) {
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

}  // namespace
}  // namespace deltawire::threelc::threelc_decode_kernels_test
