// Every target's kernels of fastsgd give what the reference's do, where vectors, words and chunks end.
// Ordinary parts and hostile bytes: EveryTarget (dispatch_test.cc).
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/random.h"
#include "codecs/codec_testing.h"
#include "codecs/dispatch.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/fastsgd/fastsgd_threshold.h"
#include "codecs/target_testing.h"

namespace deltawire::fastsgd_targets_test {
namespace {

using Floats = std::vector<float>;
using Keys = std::vector<std::uint32_t>;

class FastsgdTargets : public ::testing::TestWithParam<TargetId> {
 protected:
  void SetUp() override { testing::skip_unless_runnable(GetParam()); }

  // Bytes, and what they decode to, dense and as pairs.
  static void expect_equal(const std::string& spec, const TensorView& view, Floats left = {}) {
    const auto reference = *make_codec(spec, TargetId::kReference);
    const auto other = *make_codec(spec, GetParam());
    Floats other_left = left;
    const auto part = testing::encode_view(*reference, view, left);
    const auto other_part = testing::encode_view(*other, view, other_left);
    ASSERT_TRUE(part && other_part);
    ASSERT_EQ(part->payload, other_part->payload);
    ASSERT_EQ(part->chunk_ends, other_part->chunk_ends);
    ASSERT_TRUE(testing::same_bits(left, other_left)) << "residual";
    const std::uint64_t elements = view.elements();
    expect_equal_pairs(*reference, *other, *part, view);
    if (elements > 1000000) return;
    const auto back = testing::decode(*other, part->view(), elements, Into::kAccumulate, 0.3F, 0.7F);
    ASSERT_TRUE(back);
    ASSERT_TRUE(testing::same_bits(
        *back, *testing::decode(*reference, part->view(), elements, Into::kAccumulate, 0.3F, 0.7F)));
  }

  static void expect_equal_pairs(const Codec& reference, const Codec& other, const testing::Encoded& part,
                                 const TensorView& view) {
    const std::uint64_t room = view.count + 100;  // what lies behind the pairs stays
    Floats values[2] = {Floats(room), Floats(room)};
    Keys keys[2] = {Keys(room), Keys(room)};
    for (const float scale : {0.3F, -1.0F}) {
      for (const std::size_t i : {0U, 1U}) {
        const TensorSlot slot{values[i].data(), room, DType::kF32, keys[i].data(), view.elements()};
        ASSERT_TRUE((i == 0 ? reference : other).decode_pairs(part.view(), slot, scale));
      }
      ASSERT_TRUE(testing::same_bits(values[0], values[1])) << scale;
      ASSERT_EQ(keys[0], keys[1]) << scale;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, FastsgdTargets, ::testing::ValuesIn(testing::beyond_reference()),
                         testing::target_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FastsgdTargets);

// The values of all codes and their neighbours among the floats, each in every lane of a vector: a logarithm
// that is off by more than it may be takes one of them for the next.
TEST_P(FastsgdTargets, CodesBesideTheirThresholds) {
  for (const float b : {1.02F, 1.1F, 1.5F, 2.0F}) {
    std::vector<double> powers(fastsgd::kCodes, 1.0);
    for (std::size_t code = 1; code < powers.size(); ++code)
      powers[code] = powers[code - 1] * static_cast<double>(b);
    for (const float sum : {1.0F, 3.3e38F, 0x1.fffffep0F, 7.77F, 1e-25F, 0x1p-126F, 0x1p-140F}) {
      const fastsgd::CodeScale scale{static_cast<double>(sum), powers.data()};
      for (const std::uint32_t limit : {1U, 128U, 2047U}) {
        const std::uint32_t last = fastsgd::last_code(scale, limit);
        std::vector<std::uint32_t> values(fastsgd::kCodes);
        std::vector<std::uint16_t> starts(fastsgd::kStarts);
        const fastsgd::Codebook book = fastsgd::make_codebook(scale, last, values, starts);
        Keys bits;
        for (std::uint32_t code = 0; code <= last; ++code) {
          for (const int off : {-1, 0, 1}) {
            const std::uint32_t magnitude = values[code] + static_cast<std::uint32_t>(off);
            if (magnitude < values[last] || magnitude > values[0]) continue;
            bits.push_back(magnitude | (bits.size() % 5 == 0 ? 0x80000000 : 0));
          }
        }
        const auto pairs = static_cast<std::uint32_t>(bits.size());
        ASSERT_LE(pairs, fastsgd::kChunkPairs);
        Floats magnitudes;
        for (const std::uint32_t each : bits) magnitudes.push_back(std::bit_cast<float>(each));
        Keys keys(pairs);
        std::vector<std::uint16_t> codes[2];
        fastsgd::CodeRange ranges[2];
        for (const std::size_t i : {0U, 1U}) {
          codes[i].resize(pairs + fastsgd::kVectorSlack);
          const auto& kernels = fastsgd::kernels_for(i == 0 ? TargetId::kReference : GetParam());
          ranges[i] = kernels.quantize({}, book, {keys.data(), magnitudes.data(), pairs}, codes[i].data());
          codes[i].resize(pairs);
        }
        ASSERT_EQ(codes[0], codes[1]) << "b " << b << ", sum " << sum << ", codes up to " << last;
        ASSERT_EQ(ranges[0].lowest, ranges[1].lowest);
        ASSERT_EQ(ranges[0].highest, ranges[1].highest);
      }
    }
  }
}

TEST_P(FastsgdTargets, WhereVectorsAndChunksEnd) {
  std::vector<std::size_t> counts(140);
  std::iota(counts.begin(), counts.end(), 1);
  for (const std::size_t edge : {256U, 512U, 16384U, 32768U}) {
    for (const std::size_t near : {edge - 65, edge - 1, edge, edge + 1, edge + 9}) counts.push_back(near);
  }
  for (const std::size_t count : counts) {
    SCOPED_TRACE("count " + std::to_string(count));
    const Floats values = testing::normal_values(count, 1);
    const TensorView view{values.data(), count, DType::kF32};
    expect_equal("fastsgd:keep=0.3", view);
    expect_equal("fastsgd:keep=0.9999", view);
    expect_equal("fastsgd:b=1.02,keep=0.3,keys=auto", view);
    expect_equal("fastsgd:keep=0.1,residual=on", view, testing::normal_values(count, 2));
    Keys keys(count);
    for (std::size_t i = 0; i < count; ++i) keys[i] = static_cast<std::uint32_t>(i * 7 + i % 5);
    expect_equal("fastsgd", {values.data(), count, DType::kF32, keys.data(), 7 * count});
    expect_equal("fastsgd:keys=auto", {values.data(), count, DType::kF32, keys.data(), 7 * count});
  }
}

// The ends of groups and tiles of gaps, for each of the numbers that gaps are held in.
TEST_P(FastsgdTargets, WhereTilesOfGapsEnd) {
  CounterRng random(12);
  for (const unsigned key_bits : {3U, 7U, 8U, 9U, 14U, 15U, 16U, 17U, 23U}) {
    std::vector<std::size_t> counts(36);
    std::iota(counts.begin(), counts.end(), 1);
    for (const std::size_t tile : {256U, 512U}) {
      for (const std::size_t near : {tile - 16, tile - 1, tile, tile + 1, tile + 2, tile + 17}) {
        counts.push_back(near);
      }
    }
    for (const std::size_t count : counts) {
      const Floats values = testing::normal_values(count, count);
      Keys keys(count);
      std::uint64_t key = 5;
      for (std::uint32_t& each : keys) {
        each = static_cast<std::uint32_t>(key);
        const std::uint64_t gap = random.next() % (std::uint64_t{1} << key_bits);
        // Most are short, as few long ones fit into a tensor.
        key += 1 + (random.next() % 4 == 0 ? gap : gap >> key_bits / 2);
      }
      SCOPED_TRACE("M " + std::to_string(key_bits) + ", count " + std::to_string(count));
      const TensorView view{values.data(), count, DType::kF32, keys.data(), key + 1};
      constexpr const char* kSpecs[] = {"fastsgd:l=1", "fastsgd", "fastsgd:l=3"};
      expect_equal(kSpecs[(count + key_bits) % 3], view);
    }
  }
}

// Longest gaps of 0 to 32 bits, codes of 1 to 12 bits, whatever their flags.
TEST_P(FastsgdTargets, EveryWidth) {
  CounterRng random(4);
  for (unsigned flag_bits = 1; flag_bits <= 5; ++flag_bits) {
    for (unsigned key_bits = 0; key_bits <= 32; ++key_bits) {
      constexpr std::size_t kCount = 300;
      Floats values(kCount);
      Keys keys;
      std::uint64_t key = random.next() % 9;
      for (std::size_t i = 0; i < kCount; ++i) {
        values[i] =
            std::ldexp(i % 3 == 0 ? -1.5F : 1.0F, -static_cast<int>(random.next() % (2 + 2 * key_bits)));
        const unsigned bits =
            key_bits == 0 ? 0 : static_cast<unsigned>(random.next() % (key_bits > 8 ? 9 : key_bits + 1));
        const std::uint64_t longest = std::uint64_t{1} << (i == 150 ? key_bits : bits);
        if (i > 0) key += 1 + (i == 150 ? longest / 2 : random.next() % longest);
        if (key > 0xFFFFFFFE) break;
        keys.push_back(static_cast<std::uint32_t>(key));
      }
      SCOPED_TRACE("l " + std::to_string(flag_bits) + ", M " + std::to_string(key_bits));
      const TensorView view{values.data(), keys.size(), DType::kF32, keys.data(), 0xFFFFFFFF};
      expect_equal("fastsgd:b=1.02,tau=2047,l=" + std::to_string(flag_bits), view);
      expect_equal("fastsgd:b=1.5,tau=2000,l=" + std::to_string(flag_bits), view);
    }
  }
}

// A chunk of pairs that are up to `gap` apart, with codes of 40 to 89.
struct DrawnChunk {
  Keys keys;
  std::vector<std::uint16_t> codes;
  fastsgd::CodeRange range{40, 40};

  DrawnChunk(std::uint32_t pairs, std::uint32_t gap, CounterRng& random)
      : keys(pairs), codes(pairs + fastsgd::kVectorSlack) {
    std::uint32_t key = 3;
    for (std::uint32_t i = 0; i < pairs; ++i) {
      keys[i] = key += 1 + static_cast<std::uint32_t>(random.next() % gap);
      const auto code = static_cast<std::uint32_t>(i == 0 ? 0 : random.next() % 50);
      codes[i] = static_cast<std::uint16_t>((40 + code) | (random.next() % 2) << 15);
      range.highest = std::max(range.highest, 40 + code);
    }
  }

  std::vector<std::byte> bytes(unsigned flag_bits) const {
    std::vector<std::byte> written(9 + 10 * keys.size() + fastsgd::kStoreSlack);
    const auto pairs = static_cast<std::uint32_t>(keys.size());
    const auto& kernels = fastsgd::kernels_for(TargetId::kReference);
    written.resize(kernels.write({keys.data(), codes.data(), pairs, range}, flag_bits, written.data()));
    return written;
  }
};

// A sum of gaps beyond 2^32 would be a key inside the tensor.
TEST_P(FastsgdTargets, KeysThatWrapAroundAreOutside) {
  const std::vector<double> powers(fastsgd::kCodes, 1.0);
  const auto fault_of = [&](const Keys& keys) {
    const auto pairs = static_cast<std::uint32_t>(keys.size());
    const std::vector<std::uint16_t> codes(pairs + fastsgd::kVectorSlack, 40);
    std::vector<std::byte> bytes(64 + std::size_t{10} * pairs);
    const auto& reference = fastsgd::kernels_for(TargetId::kReference);
    bytes.resize(reference.write({keys.data(), codes.data(), pairs, {40, 40}}, 2, bytes.data()));
    const ChunkBytes chunk{bytes.data(), static_cast<std::uint32_t>(bytes.size())};
    fastsgd::DecodeTarget target{{.dimension = 0xFFFFFFFF}};
    const fastsgd::DecodeRules rules{1.0, powers.data(), 95, 2};
    return fastsgd::kernels_for(GetParam()).decode({&chunk, 1}, rules, target).fault;
  };
  for (const std::uint32_t pairs : {2U, 20U, 257U, 600U}) {
    Keys keys(pairs);
    for (std::uint32_t i = 0; i < pairs; ++i) keys[i] = 0xFFFFFFF0 - (pairs - 2) + i;
    for (const std::uint32_t gap : {200U, 60000U, 1U << 22}) {
      keys.back() = keys[pairs - 2] + gap;
      EXPECT_EQ(fault_of(keys), &fastsgd::faults::kKey) << gap << " " << pairs;
    }
  }
  // As many as are read together, and all of them round to where they began.
  for (const unsigned bits : {24U, 25U, 28U}) {
    Keys keys{5};
    while (keys.size() < 257) keys.push_back(keys.back() + (1U << bits));
    EXPECT_EQ(fault_of(keys), &fastsgd::faults::kKey) << bits;
  }
}

TEST_P(FastsgdTargets, ChunksCutOrDamagedHaveTheSameFaults) {
  std::vector<double> powers(fastsgd::kCodes, 1.0);
  for (std::size_t code = 1; code < powers.size(); ++code) powers[code] = powers[code - 1] * 1.1;
  CounterRng random(9);
  for (const auto& [pairs, gap, flag_bits] : {std::tuple{3U, 5U, 2U},
                                              {500U, 100U, 2U},
                                              {3000U, 2U, 1U},
                                              {2000U, 900U, 3U},
                                              {700U, 3U, 2U},
                                              {600U, 60000U, 2U},
                                              {300U, 150000U, 2U}}) {
    const DrawnChunk chunk(pairs, gap, random);
    const std::vector<std::byte> bytes = chunk.bytes(flag_bits);
    const std::uint32_t key = chunk.keys.back();
    fastsgd::DecodeRules rules{1.0, powers.data(), 95, flag_bits};
    std::uint64_t dimension = key + std::uint64_t{1};
    Floats slot(dimension);
    Keys places(pairs);
    const auto expect_same = [&](const std::vector<std::byte>& damaged, Sink sink) {
      const ChunkBytes view{damaged.data(), static_cast<std::uint32_t>(damaged.size())};
      fastsgd::DecodeTarget targets[2];
      Fault faults[2];
      for (const std::size_t i : {0U, 1U}) {
        targets[i] = {{.sink = sink,
                       .values = slot.data(),
                       .keys = places.data(),
                       .capacity = pairs,
                       .dimension = dimension}};
        faults[i] = fastsgd::kernels_for(i == 0 ? TargetId::kReference : GetParam())
                        .decode({&view, 1}, rules, targets[i])
                        .fault;
      }
      ASSERT_EQ(faults[0], faults[1]);
      if (faults[0] != nullptr) return;
      ASSERT_EQ(targets[0].least_key, targets[1].least_key);
    };
    for (const auto sink : {Sink::kNothing, Sink::kDense, Sink::kDenseAdd, Sink::kPairs}) {
      expect_same(bytes, sink);
      for (int i = 0; i < testing::whole_or_brief(300, 75); ++i) {
        std::vector<std::byte> damaged = bytes;
        const std::uint64_t draw = random.next();
        damaged[draw % bytes.size()] ^= static_cast<std::byte>(1U << draw / bytes.size() % 8);
        expect_same(damaged, sink);
        damaged = bytes;
        damaged.resize(bytes.size() - draw % std::min<std::size_t>(bytes.size(), 40));
        expect_same(damaged, sink);
        dimension = key + 1 - draw % 3;
        expect_same(bytes, sink);
        dimension = key + std::uint64_t{1};
        rules.last_code = chunk.range.highest - static_cast<std::uint32_t>(draw % 2);
        expect_same(bytes, sink);
        rules.last_code = 95;
      }
    }
  }
}

}  // namespace
}  // namespace deltawire::fastsgd_targets_test
