// The number of threads changes no byte, no residual, no value and no fault.
#include <bit>
#include <cstring>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/random.h"
#include "codecs/gcomp/gcomp_testing.h"
#include "deltawire/workers.h"

namespace deltawire::gcomp_threads_test {
namespace {

using testing::codec_of;
using testing::Encoded;

struct Input {
  std::vector<float> values;
  std::vector<float> significance;
  std::vector<float> residual;
};

// Of all modes: blocks of zeros, of random bits (stored) and of ordinary values.
Input input_of(std::size_t count) {
  CounterRng random(count);
  Input input{std::vector<float>(count), std::vector<float>(count), std::vector<float>(count)};
  for (std::size_t i = 0; i < count; ++i) {
    const auto noise = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()) & 0xBFFFFFFF);
    const auto ordinary = static_cast<float>(random.next_uniform() - 0.5);
    const std::size_t kind = i / 32768 % 3;
    input.values[i] = kind == 0 ? ordinary : kind == 1 ? noise : 0.0F;
    input.significance[i] = static_cast<float>(1e6 * random.next_uniform());
    input.residual[i] = kind == 2 ? 0.0F : 1e-3F * ordinary;
  }
  return input;
}

struct Outcome {
  std::vector<std::byte> payload;
  std::vector<std::uint32_t> chunk_ends;
  std::vector<std::uint32_t> chunk_sums;
  std::vector<float> residual;
  bool operator==(const Outcome&) const = default;
};

Outcome encode(const Codec& codec, const Input& input, bool with_residual, Workers* workers = nullptr) {
  TensorView part{input.values.data(), input.values.size(), DType::kF32};
  part.significance = input.significance.data();
  const Sizes sizes = codec.sizes(part);
  Outcome outcome{std::vector<std::byte>(sizes.payload_bytes), std::vector<std::uint32_t>(sizes.chunks),
                  std::vector<std::uint32_t>(sizes.chunks),
                  with_residual ? input.residual : std::vector<float>{}};
  std::vector<std::byte> scratch(sizes.scratch_bytes);
  const auto encoded =
      codec
          .encode(part, outcome.residual, {outcome.payload, outcome.chunk_ends, outcome.chunk_sums},
                  {0, scratch, workers})
          .value();
  outcome.payload.resize(encoded.payload_bytes);
  EXPECT_EQ(encoded.has_sums, input.values.size() > 32768);
  if (!encoded.has_sums) return outcome;
  std::uint32_t begin = 0;
  for (std::size_t i = 0; i < outcome.chunk_ends.size(); ++i) {
    const std::uint32_t bytes = outcome.chunk_ends[i] - begin;
    EXPECT_EQ(outcome.chunk_sums[i], crc32c(Bytes(outcome.payload).subspan(begin, bytes))) << i;
    begin = outcome.chunk_ends[i];
  }
  return outcome;
}

class GcompThreads : public ::testing::TestWithParam<int> {};

TEST_P(GcompThreads, ChangeNoByteAndNoValue) {
  Workers workers(GetParam());
  for (const char* spec : {"gcomp", "gcomp:cut=12", "gcomp:lossless=on"}) {
    const auto codec = codec_of(spec);
    for (const std::size_t count : {1U, 32768U, 32769U, 262144U, 262145U, 300001U}) {
      const Input input = input_of(count);
      const Outcome alone = encode(*codec, input, true);
      const PartView view{alone.payload, alone.chunk_ends, 0};
      std::vector<float> one(count, 0.25F);
      std::vector<float> shared = one;
      ASSERT_TRUE(codec->decode(view, {one.data(), count, DType::kF32}, Into::kAccumulate, 0.5F));
      ASSERT_TRUE(encode(*codec, input, true, &workers) == alone) << spec << ", " << count;
      ASSERT_TRUE(codec->decode(view, {shared.data(), count, DType::kF32}, Into::kAccumulate, 0.5F,
                                {.workers = &workers}));
      ASSERT_EQ(std::memcmp(one.data(), shared.data(), 4 * count), 0) << spec << ", " << count;
    }
  }
}

TEST_P(GcompThreads, NameTheSameFault) {
  constexpr std::size_t kCount = 5 * 32768;
  Workers workers(GetParam());
  const auto codec = codec_of("gcomp");
  const Outcome good = encode(*codec, input_of(kCount), false);
  CounterRng random(7);
  std::vector<float> slot(kCount);
  int faults = 0;
  for (int trial = 0; trial < 300; ++trial) {
    Outcome bad = good;
    // Two places, so that blocks before and behind one another are broken.
    for (int i = 0; i < 2; ++i) {
      bad.payload[random.next() % bad.payload.size()] ^= static_cast<std::byte>(1U << random.next() % 8);
    }
    const PartView view{bad.payload, bad.chunk_ends, 0};
    const TensorSlot into{slot.data(), kCount, DType::kF32};
    const Status alone = codec->decode(view, into, Into::kOverwrite, 1);
    const Status shared = codec->decode(view, into, Into::kOverwrite, 1, {.workers = &workers});
    ASSERT_EQ(alone.has_value(), shared.has_value()) << trial;
    if (alone) continue;
    ++faults;
    ASSERT_EQ(alone.error().message, shared.error().message) << trial;
  }
  EXPECT_GT(faults, 50);
}

INSTANTIATE_TEST_SUITE_P(Threads, GcompThreads, ::testing::Values(2, 3, 16));

// Its bytes go past the caches, and are summed before.
TEST(GcompSums, OfALargePartAreThoseOfItsBytes) {
  const Input input = input_of((std::size_t{4} << 20) + 40000);
  for (const char* spec : {"gcomp", "gcomp:cut=12"}) encode(*codec_of(spec), input, false);
}

// Chunks of zeros alone, of random bits alone and of both have no table.
TEST(GcompSums, OfChunksWithoutATableAreThoseOfTheirBytes) {
  Workers workers(2);
  for (const int kind : {0, 1, 2}) {
    Input input = input_of(262144);
    CounterRng random(5);
    for (std::size_t i = 0; i < input.values.size(); ++i) {
      const bool zero = kind == 0 || (kind == 2 && i / 32768 % 2 == 0);
      const auto noise = static_cast<std::uint32_t>(random.next()) & 0xBFFFFFFF;
      input.values[i] = zero ? 0.0F : std::bit_cast<float>(noise);
    }
    ASSERT_TRUE(encode(*codec_of("gcomp"), input, false) ==
                encode(*codec_of("gcomp"), input, false, &workers));
  }
}

}  // namespace
}  // namespace deltawire::gcomp_threads_test
