// Kernels of every target against the reference's, where the vector kernels have edges: sizes around
// stretches and blocks, values and significances of all kinds, broken bytes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/little_endian.h"
#include "base/random.h"
#include "codecs/codec_testing.h"
#include "codecs/spec_on_target_testing.h"

namespace deltawire::gcomp_targets_test {
namespace {

using testing::Encoded;
using testing::same_bits;

struct Input {
  std::vector<float> values;
  std::vector<float> significance;
  std::vector<float> residual;
};

float from_bits(std::uint64_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

// One value in `rare` is anything at all, the others lie close together. Significances lie around the places
// where levels begin, or are special. Drawn once for all specs and targets.
const Input& input_of(std::size_t count, std::uint64_t rare) {
  static std::map<std::pair<std::size_t, std::uint64_t>, Input> drawn;
  const auto [place, is_new] = drawn.try_emplace({count, rare});
  Input& input = place->second;
  if (!is_new) return input;
  CounterRng random(count + rare);
  const std::vector<float> normal = testing::normal_values(count, 1);
  input = {normal, normal, std::vector<float>(count, 0.0F)};
  const std::uint32_t odd[] = {0,          0x80000000, 1,          0x80000001, 0x007FFFFF,
                               0x00800000, 0x00FFFFFF, 0x7F7FFFFF, 0x7F000000, 0x7EFFFFFF,
                               0x7F800000, 0xFF800000, 0x7F800001, 0xFFC00000, 0x3FFFFFFF,
                               0xBF820000, 0x477FE000, 0xC7780000, 0x46FFE000};
  for (std::size_t i = 0; i < count; ++i) {
    if (random.next() % rare == 0) input.values[i] = from_bits(random.next());
    if (random.next() % (2 * rare) == 0) input.values[i] = from_bits(odd[random.next() % std::size(odd)]);
    const int exponent = std::isnormal(input.values[i]) ? std::ilogb(input.values[i]) : 0;
    input.significance[i] = std::ldexp(normal[i], exponent + static_cast<int>(random.next() % 26) - 2);
    if (random.next() % 64 == 0) input.significance[i] = from_bits(random.next());
    if (random.next() % 64 == 0) input.significance[i] = from_bits(odd[random.next() % std::size(odd)]);
    if (random.next() % 3 == 0) input.residual[i] = std::ldexp(normal[count - 1 - i], -9);
  }
  return input;
}

constexpr std::size_t kLong = 20'000;  // elements, of which in brief two of four ways to decode will do

class GcompTargets : public testing::OnTarget {
 protected:
  static Encoded encode(const Codec& codec, const Input& input, std::span<float> residual,
                        DType summed = DType::kF32) {
    TensorView part{input.values.data(), input.values.size(), DType::kF32};
    part.summed_dtype = summed;
    part.significance = input.significance.data();
    return testing::encode_view(codec, part, residual).value();
  }

  Encoded encode_both(const Input& input) const {
    const Encoded alone = encode(*reference_, input, {});
    EXPECT_EQ(encode(*other_, input, {}).payload, alone.payload);
    const Encoded of_sums = encode(*reference_, input, {}, DType::kF16);
    EXPECT_EQ(encode(*other_, input, {}, DType::kF16).payload, of_sums.payload);
    std::vector<float> residual = input.residual;
    std::vector<float> other_residual = input.residual;
    const Encoded part = encode(*reference_, input, residual);
    const Encoded other = encode(*other_, input, other_residual);
    EXPECT_EQ(part.payload, other.payload);
    EXPECT_TRUE(same_bits(residual, other_residual));
    return part;
  }

  // Into slots at several distances from a vector's boundary; what lies around them stays.
  void decode_both(const Encoded& part, std::size_t count) const {
    std::vector<float> expected;
    std::vector<float> slot;
    const auto decode = [&](const Codec& codec, Into into, float scale, std::size_t offset, auto& values) {
      values.assign(count + 40, 0.7F);
      return codec.decode(part.view(), {values.data() + 20 + offset, count, DType::kF32}, into, scale);
    };
    for (const Into into : {Into::kOverwrite, Into::kAccumulate}) {
      for (const float scale : {1.0F, -0.3F}) {
        const bool is_other = (into == Into::kOverwrite) != (scale == 1.0F);
        if (count > kLong && is_other && testing::whole_or_brief(false, true)) continue;
        const Status status = decode(*reference_, into, scale, 0, expected);
        for (const std::size_t offset : {0U, 3U}) {
          const Status other = decode(*other_, into, scale, offset, slot);
          ASSERT_EQ(status.has_value(), other.has_value());
          if (status.has_value()) {
            ASSERT_TRUE(same_bits(std::span(expected).subspan(20, count),
                                  std::span(slot).subspan(20 + offset, count)));
          } else {
            ASSERT_EQ(status.error().message, other.error().message);
          }
          for (std::size_t i = 0; i < 20 + offset; ++i) ASSERT_EQ(slot[i], 0.7F);
          for (std::size_t i = count + 20 + offset; i < count + 40; ++i) ASSERT_EQ(slot[i], 0.7F);
        }
      }
    }
  }

  // Of the lanes of a coded block.
  static std::size_t states_bytes() {
    const std::string& spec = std::get<0>(GetParam());
    return spec == "gcomp:cut=0" || spec == "gcomp:lossless=on" ? 4 * 64 : 4 * (64 + 16);
  }
};

TEST_P(GcompTargets, SizesAndValues) {
  for (const std::size_t more : {0U, 1U, 15U, 16U, 17U, 63U, 64U, 65U, 127U, 128U, 129U}) {
    for (const std::uint64_t rare : {7U, 500U}) {
      const std::size_t count = 4096 + more;
      decode_both(encode_both(input_of(count, rare)), count);
    }
  }
  for (const std::size_t count : {4095U, 32768U, 32769U, 2 * 32768U + 20000U}) {
    decode_both(encode_both(input_of(count, 1000)), count);
  }
}

TEST_P(GcompTargets, TwoChunks) {
  const std::size_t count = 262144 + 17000;
  decode_both(encode_both(input_of(count, 1000)), count);
}

// What lossless=on codes by levels.
TEST_P(GcompTargets, LowZeros) {
  for (const std::size_t count : {4096U, 32768U + 5000U}) {
    Input input = input_of(count, 1000);
    for (std::size_t i = 0; i < count; ++i) {
      const float value = std::fabs(input.values[i]) < 1 ? input.values[i] : 0.5F;
      input.values[i] = (1 + value) - 1;
    }
    decode_both(encode_both(input), count);
  }
}

TEST_P(GcompTargets, ZerosAndNoise) {
  const std::size_t count = 3 * 32768;
  Input input = input_of(count, 1);
  for (std::size_t i = 0; i < 32768; ++i) input.values[i] = input.residual[i] = 0;
  decode_both(encode_both(input), count);
  for (std::size_t i = 0; i < count; ++i) input.values[i] = i % 2 == 0 ? 0.0F : 1e-3F * input.significance[i];
  decode_both(encode_both(input), count);
}

// Nothing is gained by coding, so all is stored: whole vectors, and what is left behind them. Residuals and
// cuts are in the rest alone.
TEST_P(GcompTargets, StoredRests) {
  CounterRng random(9);
  for (const std::size_t more : {0U, 1U, 7U, 8U, 9U, 15U, 16U, 17U, 31U}) {
    const std::size_t whole = 4096;
    const std::size_t count = whole + more;
    Input input = input_of(count, 1);
    for (float& value : input.values) value = from_bits(random.next());
    for (std::size_t i = 0; i < count; ++i) {
      input.significance[i] = i < whole ? 0.0F : 0x1p120F;
      input.residual[i] = i < whole ? 0.0F : 0x1p10F;
    }
    const Encoded part = encode_both(input);
    const std::string& spec = std::get<0>(GetParam());
    if (spec != "gcomp:cut=6" && spec.find("values=") == std::string::npos) {
      EXPECT_EQ(part.payload.size(), 1 + 4 * count);
    }
    decode_both(part, count);
  }
}

TEST_P(GcompTargets, BrokenBytes) {
  CounterRng random(3);
  // Two whole blocks may be decoded by turns.
  for (const auto& [count, rounds] : {std::pair{4096U + 100U, 60}, std::pair{2 * 32768U, 30}}) {
    const Encoded good = encode_both(input_of(count, 300));
    for (int round = 0; round < testing::whole_or_brief(rounds, rounds / 5); ++round) {
      Encoded bad = good;
      for (int i = 0; i <= round % 3; ++i) {
        // Every other time near the beginning of the stream, which is read last.
        const std::size_t bytes = round % 2 == 0 ? bad.payload.size() : 200;
        bad.payload[random.next() % bytes] ^= static_cast<std::byte>(1U << random.next() % 8);
      }
      decode_both(bad, count);
    }
  }
}

// The states of the last block's lanes stand at its end.
TEST_P(GcompTargets, BrokenLanes) {
  const std::size_t count = 4096;
  const Encoded good = encode_both(input_of(count, 500));
  for (std::size_t back = 1; back <= 80; back += testing::whole_or_brief(1U, 4U)) {
    for (const std::uint32_t state : {0U, 0xFFFFU, 0x10000U, 0x80000000U, 0xFFFFFFFFU}) {
      Encoded bad = good;
      store_le(bad.payload.data() + bad.payload.size() - 4 * back, state);
      decode_both(bad, count);
    }
  }
}

// All 1.0, so that blocks are equal and codes are a single bit, 0.
Input ones(std::size_t count) {
  return {std::vector<float>(count, 1.0F), std::vector<float>(count, 0.0F), std::vector<float>(count, 0.0F)};
}

// One bit more in each lane, a 0, delays no refill of such codes, and is still there at the end.
void lengthen_lanes(std::byte* states) {
  for (std::size_t lane = 0; lane < 64; ++lane) {
    store_le(states + 4 * lane, load_le<std::uint32_t>(states + 4 * lane) << 1);
  }
}

TEST_P(GcompTargets, LanesThatEndWithMore) {
  const std::size_t count = 4096;
  Encoded bad = encode_both(ones(count));
  lengthen_lanes(bad.payload.data() + bad.payload.size() - states_bytes());
  decode_both(bad, count);
}

// Either of two blocks that may be decoded by turns has more in its lanes, or a byte more.
TEST_P(GcompTargets, TwoBlocksWithMore) {
  const std::size_t count = 2 * 32768;
  const Encoded good = encode_both(ones(count));
  const std::size_t alone = encode_both(ones(count / 2)).payload.size();
  const std::size_t bytes = good.payload.size() - alone - 4;  // of a block
  for (const std::size_t block : {0U, 1U}) {
    const std::size_t begin = good.payload.size() - (2 - block) * bytes;
    Encoded bad = good;
    lengthen_lanes(bad.payload.data() + begin + bytes - states_bytes());
    decode_both(bad, count);
    bad = good;
    bad.payload.insert(bad.payload.begin() + static_cast<std::ptrdiff_t>(begin) + 3, std::byte{0});
    store_le(bad.payload.data() + begin, load_le<std::uint32_t>(bad.payload.data() + begin) + 4);
    const std::size_t index = good.payload.size() - 2 * bytes - 4;
    const auto end = static_cast<std::uint32_t>(bytes + 1 - block);
    store_le(bad.payload.data() + index, end);
    ++bad.chunk_ends.back();
    decode_both(bad, count);
  }
}

// A subnormal number whose bits are all 0.
TEST_P(GcompTargets, TinyZeros) {
  const std::size_t count = 4096;
  const std::uint32_t tiny = 0x002BCDEF;
  Input input{std::vector<float>(count, 1.0F), std::vector<float>(count, 0.0F),
              std::vector<float>(count, 0.0F)};
  for (std::size_t i = 0; i < count; i += 50) input.values[i] = from_bits(tiny);
  Encoded bad = encode_both(input);
  const std::vector<std::byte> bytes{std::byte{tiny & 255}, std::byte{tiny >> 8 & 255},
                                     std::byte{tiny >> 16}};
  const auto found = std::search(bad.payload.begin(), bad.payload.end(), bytes.begin(), bytes.end());
  if (found != bad.payload.end()) std::fill_n(found, bytes.size(), std::byte{0});
  decode_both(bad, count);
}

INSTANTIATE_TEST_SUITE_P(Targets, GcompTargets,
                         ::testing::ValuesIn(testing::on_every_target(
                             {"gcomp", "gcomp:levels=4", "gcomp:cut=0", "gcomp:cut=6", "gcomp:lossless=on",
                              "gcomp:lossless=on,values=bf16", "gcomp:lossless=on,values=fp16",
                              "gcomp:values=fp16", "gcomp:cut=18,values=fp16"})),
                         testing::spec_on_target_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GcompTargets);  // a build may have the reference alone

}  // namespace
}  // namespace deltawire::gcomp_targets_test
