// That the encoding kernels of every target are the reference's, at the edges which whole parts seldom reach:
// sizes around vectors and rows, memory of any alignment with guards around it, every density.
#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/threelc/threelc_testing.h"

namespace deltawire::threelc::threelc_encode_kernels_test {
namespace {

using testing::bits_of;

class ThreelcEncodeKernels : public KernelsOfTarget {};

INSTANTIATE_TEST_SUITE_P(Targets, ThreelcEncodeKernels, ::testing::ValuesIn(testing::beyond_reference()),
                         testing::target_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ThreelcEncodeKernels);  // a build may have the reference alone

TEST_P(ThreelcEncodeKernels, TheLargestIsFoundInEveryPlace) {
  for (std::size_t count = 0; count <= 150; ++count) {
    for (const std::size_t largest_at : {std::size_t{0}, count / 3, count - 1}) {
      if (largest_at >= count) continue;
      std::vector<float> in(count, -0.25F);
      in[largest_at] = -3.5F;
      const std::vector<float> residual(count, -0.125F);
      Guarded<float> sum(count, count, 0);
      for (const bool streamed : {false, true}) {
        EXPECT_EQ(kernels_.largest({in.data(), residual.data(), sum.data(), count, streamed}),
                  bits_of(3.625F));
        ASSERT_TRUE(sum.intact()) << count;
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(sum.values()[i], in[i] + residual[i]) << i;
      }
      EXPECT_EQ(kernels_.largest({in.data(), residual.data(), nullptr, count, true}), bits_of(3.625F));
      EXPECT_EQ(kernels_.largest({in.data(), nullptr, nullptr, count, true}), bits_of(3.5F));
    }
  }
}

TEST_P(ThreelcEncodeKernels, NaNIsTheLargest) {
  std::vector<float> in(100, std::numeric_limits<float>::infinity());
  in[70] = -std::numeric_limits<float>::quiet_NaN();
  EXPECT_GT(kernels_.largest({in.data(), nullptr, nullptr, in.size(), false}), kInfinityBits);
}

TEST_P(ThreelcEncodeKernels, Quantize) {
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

TEST_P(ThreelcEncodeKernels, ZeroRunsThereAndBack) {
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

TEST_P(ThreelcEncodeKernels, RiceWithEveryParameterAndLimit) {
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

}  // namespace
}  // namespace deltawire::threelc::threelc_encode_kernels_test
