// Bytes that no encoder wrote: a value or a typed error, and never a byte outside.
#include <algorithm>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/random.h"
#include "codecs/codec_testing.h"

namespace deltawire::hostile_bytes_test {
namespace {

using namespace testing;

class HostileBytes : public ::testing::TestWithParam<std::string> {
 protected:
  // Both ways of decoding and describe agree on whether the bytes are a part; each from memory of exactly
  // their size, so that a sanitizer sees a read past the end.
  bool accepted(const Encoded& part, std::uint64_t count) {
    const auto overwrite = testing::decode(*codec_, part.view(), count);
    const auto accumulate = testing::decode(*codec_, part.view(), count, Into::kAccumulate, 0.5F, 2);
    std::vector<Section> sections;
    const auto described = codec_->describe(part.view(), count, sections);
    EXPECT_EQ(overwrite.has_value(), accumulate.has_value());
    EXPECT_EQ(overwrite.has_value(), described.has_value());
    if (!overwrite) {
      const ErrorCode code = overwrite.error().code;
      EXPECT_TRUE(code == ErrorCode::kTruncated || code == ErrorCode::kCorrupt) << overwrite.error().message;
      EXPECT_FALSE(overwrite.error().message.empty());
    }
    std::uint64_t bits = 0;
    for (const Section& section : sections) bits += section.bits;
    EXPECT_EQ(bits, described ? part.payload.size() * 8 : 0);
    return overwrite.has_value();
  }

  // Small parts in every chunk coding that the codec has.
  std::vector<std::pair<Encoded, std::uint64_t>> samples() const {
    std::vector<std::pair<Encoded, std::uint64_t>> parts;
    for (const std::uint64_t count : {1U, 7U, 33U, 325U, 700U}) {
      for (const double share : {0.8, 0.05, 0.0}) {
        parts.emplace_back(*testing::encode(*codec_, testing::sparse_values(count, share, count)), count);
      }
    }
    return parts;
  }

  std::unique_ptr<const Codec> codec_ = codec_of(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Codecs, HostileBytes, ::testing::ValuesIn(testing::conformance_specs()),
                         [](const auto& param) { return testing::test_name(param.param); });

// In brief every ninth, and others in each sample.
TEST_P(HostileBytes, EverySingleBitFlip) {
  const auto every = whole_or_brief<unsigned>(1, 9);
  unsigned first = 0;
  for (const auto& [part, count] : samples()) {
    ASSERT_TRUE(accepted(part, count));
    first = (first + 1) % every;
    for (std::size_t bit = first; bit < std::min<std::size_t>(part.payload.size(), 100) * 8; bit += every) {
      Encoded flipped = part;
      flipped.payload[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      accepted(flipped, count);
    }
    for (unsigned bit = first; bit < 32; bit += every) {
      Encoded flipped = part;
      flipped.scalar ^= 1U << bit;
      accepted(flipped, count);
      flipped = part;
      flipped.scalar2 ^= 1U << bit;
      accepted(flipped, count);
      flipped = part;
      flipped.chunk_ends[0] ^= 1U << bit;
      EXPECT_FALSE(accepted(flipped, count));
    }
  }
}

TEST_P(HostileBytes, AScalarThatTheCodecHasNotIsRefused) {
  const Encoded part = *testing::encode(*codec_, testing::sparse_values(33, 0.8, 1));
  std::vector<float> back(33);
  const TensorSlot slot{back.data(), back.size(), DType::kF32};
  const TensorSlot empty{back.data(), 0, DType::kF32};
  const auto code = [&](const PartView& view, const TensorSlot& into) {
    std::vector<std::byte> scratch(codec_->decode_scratch(into));
    const Status status = codec_->decode(view, into, Into::kOverwrite, 1, {.scratch = scratch});
    return status ? ErrorCode{} : status.error().code;
  };
  const int scalars = codec_->info().scalars;
  PartView view = part.view();
  view.scalar2 = 1;
  if (scalars < 2) {
    EXPECT_EQ(code(view, slot), ErrorCode::kCorrupt);
  }
  view = part.view();
  view.scalar = 1;
  if (scalars < 1) {
    EXPECT_EQ(code(view, slot), ErrorCode::kCorrupt);
  }
  EXPECT_EQ(code(PartView{{}, {}, 1, 0}, empty), ErrorCode::kCorrupt);
  EXPECT_EQ(code(PartView{{}, {}, 0, 1}, empty), ErrorCode::kCorrupt);
  EXPECT_EQ(code(PartView{}, empty), ErrorCode{});
}

// In brief every fifth, and others in each sample.
TEST_P(HostileBytes, EveryTruncationIsRefused) {
  const auto every = whole_or_brief<std::size_t>(1, 5);
  std::size_t first = 0;
  for (const auto& [part, count] : samples()) {
    first = (first + 1) % every;
    for (std::size_t bytes = first; bytes < std::min<std::size_t>(part.payload.size(), 200); bytes += every) {
      Encoded cut = part;
      cut.payload.resize(bytes);
      cut.payload.shrink_to_fit();
      EXPECT_FALSE(accepted(cut, count));
      if (bytes == 0) continue;
      cut.chunk_ends[0] = static_cast<std::uint32_t>(bytes);
      EXPECT_FALSE(accepted(cut, count)) << bytes << " of " << part.payload.size();
    }
  }
}

// The specs of one codec share the rounds, and none draws what another drew.
TEST_P(HostileBytes, RandomBytes) {
  const std::vector<std::string> specs = testing::conformance_specs();
  const auto index = std::find(specs.begin(), specs.end(), GetParam()) - specs.begin();
  const auto shared_by = std::count_if(specs.begin(), specs.end(), [&](const std::string& spec) {
    return codec_of(spec)->info().id == codec_->info().id;
  });
  CounterRng random(11 + static_cast<std::uint64_t>(index));
  for (std::int64_t round = 0; round < whole_or_brief(4000, 1200) / shared_by; ++round) {
    Encoded part;
    const std::uint64_t count = random.next() % (round % 100 == 0 ? 42000 : 400);
    const std::uint64_t bytes = random.next() % 90;
    for (std::uint64_t i = 0; i < bytes; ++i)
      part.payload.push_back(static_cast<std::byte>(random.next() & 0xFF));
    // Most codings fail at the first byte unless that one is plausible.
    if (bytes > 0) part.payload[0] = static_cast<std::byte>(random.next() % 4);
    if (bytes > 3) part.payload[3] = std::byte{0};
    part.scalar = static_cast<std::uint32_t>(random.next()) & (round % 3 == 0 ? 0U : 0x7FFFFFFFU);
    if (codec_->info().scalars == 2) part.scalar2 = static_cast<std::uint32_t>(random.next());
    if (count > 0 && bytes > 0) part.chunk_ends = {static_cast<std::uint32_t>(bytes)};
    if (count > 40960)
      part.chunk_ends = {static_cast<std::uint32_t>(bytes / 2), static_cast<std::uint32_t>(bytes)};
    accepted(part, count);
  }
}

TEST_P(HostileBytes, CountsBeyondMemoryAreRefusedByTheIndex) {
  const Encoded part = testing::one_chunk({0, 121}, 0);
  std::vector<Section> sections;
  for (const std::uint64_t count : {std::uint64_t{1} << 32, std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    EXPECT_FALSE(codec_->describe(part.view(), count, sections));
    EXPECT_FALSE(codec_->decode(part.view(), {nullptr, count, DType::kF32}, Into::kOverwrite, 1));
    const Sizes sizes = codec_->sizes({nullptr, count, DType::kF32});
    EXPECT_EQ(codec_->encode({nullptr, count, DType::kF32}, {}, {}, {}).error().code,
              sizes.payload_bytes > 0xFFFFFFFF ? ErrorCode::kLimit : ErrorCode::kOutputTooSmall);
  }
}

}  // namespace
}  // namespace deltawire::hostile_bytes_test
