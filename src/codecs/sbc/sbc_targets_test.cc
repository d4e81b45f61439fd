// Every target's kernels of sbc give what the reference's do, where vectors end, and where values are made to
// mislead a guess. Ordinary parts and hostile bytes: EveryTarget (dispatch_test.cc); long ones:
// TargetStreams.
#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "base/bits.h"
#include "base/brief_testing.h"
#include "base/little_endian.h"
#include "base/random.h"
#include "codecs/codec_testing.h"
#include "codecs/dispatch.h"
#include "codecs/sparse/sparse_ops.h"
#include "codecs/target_testing.h"

namespace deltawire::sbc_targets_test {
namespace {

using namespace testing;

class SbcTargets : public ::testing::TestWithParam<TargetId> {
 protected:
  void SetUp() override { testing::skip_unless_runnable(GetParam()); }

  // Bytes, residual and decoded values, with error feedback and without.
  static void expect_equal(const std::string& spec, const Floats& values, const Floats& residual) {
    const auto reference = *make_codec(spec, TargetId::kReference);
    const auto other = *make_codec(spec, GetParam());
    for (const bool feedback : {false, true}) {
      Floats left = feedback ? residual : Floats{};
      Floats other_left = left;
      const auto part = testing::encode(*reference, values, left);
      const auto other_part = testing::encode(*other, values, other_left);
      ASSERT_EQ(part.has_value(), other_part.has_value());
      ASSERT_TRUE(testing::same_bits(left, other_left)) << "residual";
      if (!part) continue;
      ASSERT_EQ(part->payload, other_part->payload);
      ASSERT_EQ(part->scalar, other_part->scalar);
      const auto back = testing::decode(*other, part->view(), values.size(), Into::kAccumulate, 0.3F, 0.7F);
      ASSERT_TRUE(back);
      ASSERT_TRUE(testing::same_bits(
          *back, *testing::decode(*reference, part->view(), values.size(), Into::kAccumulate, 0.3F, 0.7F)));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Targets, SbcTargets, ::testing::ValuesIn(testing::beyond_reference()),
                         testing::target_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SbcTargets);

TEST_P(SbcTargets, WhereVectorsAndBlocksEnd) {
  std::vector<std::size_t> counts(140);
  std::iota(counts.begin(), counts.end(), 1);
  for (const std::size_t edge : {1024U, 2048U, 4096U}) {
    for (const std::size_t near : {edge - 17, edge - 1, edge, edge + 1, edge + 8, edge + 65})
      counts.push_back(near);
  }
  for (const std::size_t count : counts) {
    Floats values = testing::normal_values(count, 1);
    for (const char* spec : {"sbc:p=0.001", "sbc:p=0.03", "sbc:p=0.4"}) {
      SCOPED_TRACE(std::string(spec) + ", count " + std::to_string(count));
      expect_equal(spec, values, testing::normal_values(count, 2));
    }
    values[count - 1] = -kInf;  // the last one is looked at, too
    expect_equal("sbc:p=0.03", values, Floats(count, 1.0F));
  }
}

// Equal magnitudes, ordered ones, zeros of both signs, subnormals, one sign alone, a tail that is larger than
// all that samples saw, and neighbours among the floats.
TEST_P(SbcTargets, ValuesThatMislead) {
  for (const std::size_t count : {5000U, 140001U}) {
    std::vector<Floats> inputs(9, Floats(count));
    CounterRng random(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto place = static_cast<float>(i);
      const float sign = i % 2 == 0 ? 1.0F : -1.0F;
      const auto bits = static_cast<std::uint32_t>(random.next());
      inputs[0][i] = 1;
      inputs[1][i] = sign * place;
      inputs[2][i] = sign * (static_cast<float>(count) - place);
      inputs[3][i] = i % 3 == 0 ? 0.0F : -0.0F;
      inputs[4][i] = sign * std::bit_cast<float>(bits % 5);
      inputs[5][i] = -place;
      inputs[6][i] = i > count - count / 50 ? 1000 + place : sign;
      inputs[7][i] = std::bit_cast<float>((bits & 0x80000000U) + 0x3F800000U + bits % 700);
      inputs[8][i] = static_cast<float>(bits % 3) - 1;
    }
    for (std::size_t n = 0; n < inputs.size(); ++n) {
      for (const std::size_t which : {0U, 1U, 2U}) {
        if (count > 5000 && which != n % 3 && testing::whole_or_brief(false, true)) continue;
        const char* spec = std::array{"sbc:p=0.0001", "sbc:p=0.01", "sbc:p=0.3"}[which];
        SCOPED_TRACE(std::string(spec) + ", input " + std::to_string(n) + " of " + std::to_string(count));
        expect_equal(spec, inputs[n], Floats(count, -0.0F));
      }
    }
  }
}

// All are candidates here, and are cut down when they are 6,144. Of every sixth of them the thresholds are
// guessed; they are all larger than the others, or all smaller.
TEST_P(SbcTargets, ASampleOfCandidatesThatMisleads) {
  constexpr std::size_t kCount = 8192;
  for (const bool are_large : {true, false}) {
    Floats values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      values[i] = static_cast<float>(1 + i * 37 % kCount) + ((i % 6 == 0) == are_large ? 1e5F : 0.0F);
    }
    expect_equal("sbc:p=0.3", values, Floats(kCount, 0.0F));
  }
}

// Escapes, and gaps of all lengths in chunks of one, four and eight lanes, to the last position of the part.
TEST_P(SbcTargets, GapsOfAllLengths) {
  for (const std::size_t sent : {2U, 33U, 600U, 5000U, 17000U}) {
    for (const std::uint64_t longest : {1U, sent > 600 ? 8U : 300U}) {
      CounterRng random(sent * 1000 + longest);
      Floats values;
      for (std::size_t i = 0; i < sent; ++i) {
        const std::uint64_t gap = random.next() % (i % 97 == 0 ? 20 * longest : longest);
        values.resize(values.size() + gap, 0.0F);
        values.push_back(2);
      }
      SCOPED_TRACE(std::to_string(sent) + " gaps up to " + std::to_string(longest));
      expect_equal("sbc:p=0.9999", values, Floats(values.size(), 0.0F));
    }
  }
}

TEST_P(SbcTargets, ChunksCutOrDamagedHaveTheSameFaults) {
  const sparse::Kernels& reference = sparse::kernels_for(TargetId::kReference);
  const sparse::Kernels& other = sparse::kernels_for(GetParam());
  CounterRng random(3);
  for (const std::uint32_t sent : {2U, 400U, 3000U, 8000U}) {
    std::vector<std::uint32_t> positions(sent);
    std::uint32_t next = 0;
    for (std::uint32_t& position : positions)
      next = 1 + (position = next + static_cast<std::uint32_t>(random.next() % 60));
    std::vector<std::byte> bytes(sparse::kMaxChunkOverhead + 7 * sent);
    bytes.resize(reference.encode_chunk(positions.data(), sent, bytes.data(), bytes.size()));
    Floats slot(next);
    const auto expect_same_fault = [&](const std::vector<std::byte>& chunk, std::uint64_t count) {
      const ChunkBytes view{chunk.data(), static_cast<std::uint32_t>(chunk.size())};
      const auto expected = reference.decode_chunk(view, 0, {.slot = nullptr, .count = count});
      const auto content = other.decode_chunk(view, 0, {.slot = slot.data(), .count = count, .value = 1});
      ASSERT_EQ(content.fault, expected.fault);
      if (expected.fault != nullptr) return;
      ASSERT_EQ(content.next, expected.next);
      ASSERT_EQ(content.code_bits, expected.code_bits);
    };
    expect_same_fault(bytes, next);
    for (int i = 0; i < testing::whole_or_brief(400, 100); ++i) {
      std::vector<std::byte> damaged = bytes;
      const std::uint64_t draw = random.next();
      damaged[draw % bytes.size()] ^= static_cast<std::byte>(1U << draw / bytes.size() % 8);
      expect_same_fault(damaged, next);
      damaged = bytes;
      damaged.resize(bytes.size() - draw % std::min<std::size_t>(bytes.size(), 150));
      expect_same_fault(damaged, next);
      expect_same_fault(bytes, next - draw % next);
    }
  }
}

sparse::ChunkContent decoded(TargetId target, const std::vector<std::byte>& bytes, std::uint64_t count) {
  const ChunkBytes chunk{bytes.data(), static_cast<std::uint32_t>(bytes.size())};
  return sparse::kernels_for(target).decode_chunk(chunk, 0, {.slot = nullptr, .count = count});
}

// A lane that ends too early, in front of others that are whole, with so much behind the last that all of it
// is read in batches.
TEST_P(SbcTargets, ALaneThatEndsInsideABatch) {
  std::vector<std::uint32_t> positions(4097);
  for (std::uint32_t i = 0; i < positions.size(); ++i) positions[i] = 50 * i + i % 7;
  std::vector<std::byte> bytes(sparse::kMaxChunkOverhead + 7 * positions.size());
  const auto count = static_cast<std::uint32_t>(positions.size());
  bytes.resize(sparse::kernels_for(TargetId::kReference)
                   .encode_chunk(positions.data(), count, bytes.data(), bytes.size()));
  bytes.resize(bytes.size() + 200);
  EXPECT_EQ(decoded(GetParam(), bytes, 1U << 20).fault, &sparse::faults::kPadding);
  const std::size_t head = sparse::kHeadBytes + sparse::kLaneLengthBytes * 7;
  const auto length = load_le<std::uint16_t>(bytes.data() + sparse::kHeadBytes);
  store_le(bytes.data() + sparse::kHeadBytes, static_cast<std::uint16_t>(length - 1));
  bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(head + length - 1));
  EXPECT_EQ(decoded(TargetId::kReference, bytes, 1U << 20).fault, &sparse::faults::kTruncated);
  EXPECT_EQ(decoded(GetParam(), bytes, 1U << 20).fault, &sparse::faults::kTruncated);
}

TEST_P(SbcTargets, ARawGapThatHasAShorterCode) {
  std::vector<std::byte> bytes(1000);
  bytes[0] = std::byte{3};
  store_le(bytes.data() + 1, std::uint16_t{301});
  BitWriter codes(bytes.data() + sparse::kHeadBytes, bytes.size() - sparse::kHeadBytes);
  for (int i = 0; i < 300; ++i) {
    const RiceBits code = rice_bits_of(i == 40 ? 24 << 3 : 5, 3, sparse::kEscapeBits);
    codes.put(code.value, code.bits);
  }
  bytes.resize(sparse::kHeadBytes + codes.finish());
  EXPECT_EQ(decoded(GetParam(), bytes, 1U << 20).fault, nullptr);
  // The raw gap, 24 * 8, is the least that has no shorter code: a bit less, and it has one.
  const std::size_t raw_bit = 40 * 4 + 24 + 6;
  bytes[sparse::kHeadBytes + raw_bit / 8] ^= static_cast<std::byte>(1U << raw_bit % 8);
  EXPECT_EQ(decoded(TargetId::kReference, bytes, 1U << 20).fault, &sparse::faults::kEscape);
  EXPECT_EQ(decoded(GetParam(), bytes, 1U << 20).fault, &sparse::faults::kEscape);
}

// A chunk of lanes with any parameter: encoders take the one that suits the gaps.
std::vector<std::byte> chunk_of(const std::vector<std::uint32_t>& gaps, unsigned parameter, unsigned lanes) {
  std::vector<std::byte> bytes(sparse::kHeadBytes + sparse::kLaneLengthBytes * (lanes - 1));
  bytes[0] =
      static_cast<std::byte>(std::countr_zero(lanes) << sparse::kLaneShift | static_cast<int>(parameter));
  store_le(bytes.data() + 1, static_cast<std::uint16_t>(gaps.size() + 1));
  for (unsigned lane = 0; lane < lanes; ++lane) {
    std::vector<std::byte> stream(7 * gaps.size() + 8);
    BitWriter codes(stream.data(), stream.size());
    for (std::size_t i = lane; i < gaps.size(); i += lanes) {
      const RiceBits code = rice_bits_of(gaps[i], parameter, sparse::kEscapeBits);
      codes.put(code.value, code.bits);
    }
    stream.resize(codes.finish());
    if (lane + 1 < lanes) {
      store_le(bytes.data() + sparse::kHeadBytes + sparse::kLaneLengthBytes * lane,
               static_cast<std::uint16_t>(stream.size()));
    }
    bytes.insert(bytes.end(), stream.begin(), stream.end());
  }
  return bytes;
}

// Several codes are read from one word: all lengths that they may have together, wherever the word begins.
TEST_P(SbcTargets, CodesThatFillAWord) {
  constexpr std::size_t kGaps = 1200;
  CounterRng random(9);
  for (unsigned parameter = 0; parameter <= 17; ++parameter) {  // the positions stay below 2^32
    for (const unsigned ones : {3U, 8U, 15U, 25U}) {
      std::vector<std::uint32_t> gaps(kGaps);
      for (std::uint32_t& gap : gaps) {
        gap =
            static_cast<std::uint32_t>(random.next() % ones << parameter | random.next() % (1U << parameter));
      }
      for (const unsigned lanes : {4U, 8U}) {
        const std::vector<std::byte> bytes = chunk_of(gaps, parameter, lanes);
        const ChunkBytes chunk{bytes.data(), static_cast<std::uint32_t>(bytes.size())};
        std::vector<std::uint32_t> expected(sparse::kChunkPositions);
        std::vector<std::uint32_t> found(sparse::kChunkPositions);
        ASSERT_EQ(sparse::kernels_for(TargetId::kReference)
                      .decode_chunk(chunk, 0, {.count = sparse::kMaxElements, .positions = expected.data()})
                      .fault,
                  nullptr);
        sparse::kernels_for(GetParam())
            .decode_chunk(chunk, 0, {.count = sparse::kMaxElements, .positions = found.data()});
        ASSERT_EQ(found, expected) << parameter << ", " << ones << ", " << lanes;
      }
    }
  }
}

TEST_P(SbcTargets, AChunkIsWrittenInsideItsBytes) {
  CounterRng random(8);
  for (const std::uint32_t sent : {2U, 3U, 50U, 600U, 5000U}) {
    std::vector<std::uint32_t> positions(sent);
    std::uint32_t next = 0;
    for (std::uint32_t& position : positions)
      next = 1 + (position = next + static_cast<std::uint32_t>(random.next() % 90));
    std::vector<std::byte> bytes(sparse::kMaxChunkOverhead + 7 * sent + 8, std::byte{0xA5});
    const auto& kernels = sparse::kernels_for(GetParam());
    const std::uint32_t size = kernels.encode_chunk(positions.data(), sent, bytes.data(), bytes.size());
    std::vector<std::byte> exact(size + 8, std::byte{0xA5});
    ASSERT_EQ(kernels.encode_chunk(positions.data(), sent, exact.data(), size), size);
    ASSERT_TRUE(std::equal(exact.begin(), exact.begin() + size, bytes.begin()));
    ASSERT_EQ(std::count(exact.begin() + size, exact.end(), std::byte{0xA5}), 8) << sent;
  }
}

}  // namespace
}  // namespace deltawire::sbc_targets_test
