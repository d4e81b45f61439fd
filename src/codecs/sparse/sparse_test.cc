// What several codecs share: positions between their neighbours, against a slow and recursive writer.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "base/bits.h"
#include "base/random.h"
#include "codecs/codec_testing.h"
#include "codecs/sparse/sparse_part.h"
#include "codecs/target_testing.h"

namespace deltawire::sparse_test {
namespace {

namespace faults = sparse::faults;
using Positions = std::vector<std::uint32_t>;

const sparse::Kernels& kernels() {
  return sparse::kernels_for(TargetId::kReference);
}

std::vector<std::byte> interpolated(const Positions& positions) {
  std::vector<std::byte> bytes(sparse::kMaxChunkOverhead + 7 * positions.size());
  bytes.resize(kernels().interpolate_chunk(positions.data(), static_cast<std::uint32_t>(positions.size()),
                                           bytes.data(), bytes.size()));
  return bytes;
}

// src/codecs/sbc/spec.md, section 2, once more.
void write_between(BitWriter& out, std::span<const std::uint32_t> positions, std::uint64_t low,
                   std::uint64_t high) {
  if (positions.empty()) return;
  const std::size_t below = positions.size() / 2;
  const std::uint64_t places = high - low + 1 - (positions.size() - 1);
  unsigned bits = 0;
  while (std::uint64_t{2} << bits <= places) ++bits;
  const std::uint64_t shorter = (std::uint64_t{2} << bits) - places;
  const std::uint64_t turn = (places - shorter) / 2;
  const std::uint64_t place = positions[below] - low - below;
  const std::uint64_t number = (place + places - turn) % places;
  if (number < shorter) {
    out.put(number, bits);
  } else {
    out.put((number + shorter) / 2, bits);
    out.put((number + shorter) % 2, 1);
  }
  write_between(out, positions.first(below), low, positions[below] - 1);
  write_between(out, positions.subspan(below + 1), std::uint64_t{positions[below]} + 1, high);
}

Positions drawn(std::uint32_t count, std::uint64_t among, std::uint64_t seed) {
  CounterRng random(seed);
  Positions positions;
  for (std::uint64_t at = 0; at < among && positions.size() < count; ++at) {
    const double due = static_cast<double>(count - positions.size()) / static_cast<double>(among - at);
    if (random.next_uniform() < due) positions.push_back(static_cast<std::uint32_t>(at));
  }
  return positions;
}

std::vector<Positions> shapes() {
  std::vector<Positions> all = {
      {0, 1}, {5, 0xFFFFFFFE}, {0, 0x80000000, 0xFFFFFFFE}, {7, 8, 9}, {1, 2, 9, 10}};
  for (std::uint32_t count = 3; count < 40; ++count) all.push_back(drawn(count, 100, count));
  all.push_back(drawn(16384, 16384, 1));
  all.push_back(drawn(16384, 20000, 2));
  all.push_back(drawn(1000, 1000000, 3));
  Positions ends(300);
  std::iota(ends.begin(), ends.begin() + 150, 0);
  std::iota(ends.begin() + 150, ends.end(), 1U << 30);
  all.push_back(ends);
  return all;
}

TEST(SparsePositions, InterpolatedAsASlowWriterDoes) {
  for (const Positions& positions : shapes()) {
    const auto bytes = interpolated(positions);
    std::vector<std::byte> wanted(bytes.size() + 8);
    BitWriter out(wanted.data(), wanted.size());
    const std::span<const std::uint32_t> inner(positions.begin() + 1, positions.end() - 1);
    write_between(out, inner, std::uint64_t{positions.front()} + 1, std::uint64_t{positions.back()} - 1);
    wanted.resize(out.finish());
    ASSERT_EQ(std::vector<std::byte>(bytes.begin() + 11, bytes.end()), wanted) << positions.size();
    EXPECT_EQ(bytes[0], std::byte{31});
  }
}

TEST(SparsePositions, ComeBackInEitherCode) {
  for (const Positions& positions : shapes()) {
    const auto count = static_cast<std::uint32_t>(positions.size());
    const std::uint64_t among = std::uint64_t{positions.back()} + 1;
    for (const auto encode : {kernels().interpolate_chunk, kernels().encode_chunk}) {
      std::vector<std::byte> bytes(sparse::positions_bound(count, among));
      bytes.resize(encode(positions.data(), count, bytes.data(), bytes.size()));
      for (const TargetId target : testing::runnable_targets()) {
        const auto& decoding = sparse::kernels_for(target);
        Positions back(sparse::kChunkPositions);
        const ChunkBytes chunk{bytes.data(), static_cast<std::uint32_t>(bytes.size())};
        const auto content =
            decoding.decode_chunk(chunk, positions.front(), {.count = among, .positions = back.data()});
        ASSERT_EQ(content.fault, nullptr) << count;
        EXPECT_EQ(content.next, among);
        back.resize(content.positions);
        ASSERT_EQ(back, positions);
        EXPECT_NE(decoding.decode_chunk(chunk, 0, {.count = among - 1}).fault, nullptr);
        EXPECT_NE(decoding.decode_chunk(chunk, positions.front() + 1, {.count = among}).fault, nullptr);
      }
    }
  }
}

TEST(SparsePositions, InterpolatedBytesThatNobodyWrites) {
  const auto fault = [](std::vector<int> bytes, std::uint64_t count) {
    const auto part = testing::one_chunk(std::move(bytes), 0);
    return kernels()
        .decode_chunk({part.payload.data(), static_cast<std::uint32_t>(part.payload.size())}, 1,
                      {.count = count})
        .fault;
  };
  EXPECT_EQ(fault({31, 2, 0, 1, 0, 0, 0, 8, 0, 0, 0}, 9), nullptr);
  EXPECT_EQ(fault({31, 2, 0, 1, 0, 0, 0, 8, 0, 0, 0}, 8), &faults::kPosition);
  EXPECT_EQ(fault({31, 2, 0, 0, 0, 0, 0, 8, 0, 0, 0}, 9), &faults::kOrder);
  EXPECT_EQ(fault({31, 2, 0, 9, 0, 0, 0, 8, 0, 0, 0}, 9), &faults::kPosition);
  EXPECT_EQ(fault({31, 2, 0, 3, 0, 0, 0, 3, 0, 0, 0}, 9), &faults::kLast);
  EXPECT_EQ(fault({31, 3, 0, 3, 0, 0, 0, 4, 0, 0, 0}, 9), &faults::kLast);
  EXPECT_EQ(fault({31, 3, 0, 3, 0, 0, 0, 5, 0, 0, 0}, 9), nullptr);  // one place: no bits
  EXPECT_EQ(fault({31, 3, 0, 3, 0, 0, 0, 5, 0, 0, 0, 0}, 9), &faults::kPadding);
  EXPECT_EQ(fault({31, 3, 0, 3, 0, 0, 0, 6, 0, 0, 0}, 9), &faults::kTruncated);
  EXPECT_EQ(fault({31, 3, 0, 3, 0, 0, 0, 6, 0, 0, 0, 1}, 9), nullptr);
  EXPECT_EQ(fault({31, 3, 0, 3, 0, 0, 0, 6, 0, 0, 0, 2}, 9), &faults::kPadding);
  EXPECT_EQ(fault({31, 1, 0, 3, 0, 0, 0, 3, 0, 0, 0}, 9), &faults::kUnusedCode);
  EXPECT_EQ(fault({31, 0, 0}, 9), &faults::kUnusedCode);
  EXPECT_EQ(fault({31, 1, 64, 1, 0, 0, 0, 8, 0, 0, 0}, 1 << 20), &faults::kCount);
  EXPECT_EQ(fault({31, 2, 0, 1, 0, 0, 0, 8, 0, 0}, 9), &faults::kTruncated);
  EXPECT_EQ(fault({31, 2}, 9), &faults::kTruncated);
  EXPECT_EQ(fault({63, 2, 0, 1, 0, 0, 0, 8, 0, 0, 0}, 9), &faults::kParameter);
}

// On random positions within 5 % of what Golomb's code takes; shorter where they come in groups.
TEST(SparsePositions, InterpolatedSizes) {
  constexpr std::uint64_t kAmong = 1000000;
  for (const double share : {0.001, 0.01}) {
    const Positions positions = drawn(static_cast<std::uint32_t>(share * kAmong), kAmong, 1);
    const double bits = static_cast<double>(interpolated(positions).size() * 8);
    const double b = std::floor(std::log2(std::log((std::sqrt(5) - 1) / 2) / std::log(1 - share))) + 1;
    const double golomb = b + 1 / (1 - std::pow(1 - share, std::pow(2, b)));
    EXPECT_LT(bits / static_cast<double>(positions.size()), 1.05 * golomb) << share;
  }
  Positions grouped;
  for (std::uint32_t row = 0; row < 1000; row += 10) {
    for (std::uint32_t i = 0; i < 100; ++i) grouped.push_back(row * 1000 + i * 3);
  }
  EXPECT_LT(static_cast<double>(interpolated(grouped).size() * 8), 4.0 * static_cast<double>(grouped.size()));
}

TEST(SparsePositions, TheShorterCodeIsTaken) {
  std::vector<Positions> all = shapes();
  all.push_back({});
  all.push_back({17});
  int interpolated_ones = 0;
  for (const Positions& positions : all) {
    const auto count = static_cast<std::uint32_t>(positions.size());
    std::vector<std::byte> golomb(sparse::kMaxChunkOverhead + 7 * positions.size());
    std::vector<std::byte> shorter = golomb;
    golomb.resize(kernels().encode_chunk(positions.data(), count, golomb.data(), golomb.size()));
    EXPECT_EQ(kernels().golomb_bytes(positions.data(), count), golomb.size());
    shorter.resize(sparse::write_positions(kernels(), sparse::PositionCode::kShorter, positions, shorter));
    const auto wanted = count > 1 ? std::min(golomb.size(), interpolated(positions).size()) : golomb.size();
    EXPECT_EQ(shorter.size(), wanted);
    const bool is_other = count > 1 && interpolated(positions).size() < golomb.size();
    EXPECT_EQ(shorter, is_other ? interpolated(positions) : golomb);
    interpolated_ones += is_other ? 1 : 0;
  }
  EXPECT_GT(interpolated_ones, 2);
  EXPECT_LT(interpolated_ones, static_cast<int>(all.size()) - 2);
}

}  // namespace
}  // namespace deltawire::sparse_test
