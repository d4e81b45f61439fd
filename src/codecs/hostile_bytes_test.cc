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
  EXPECT_EQ(code(PartView{}, slot), ErrorCode::kCorrupt);
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

// Of codecs whose chunks follow the data and name the elements that are sent, by a spec that sends all.
class SparseChunks : public ::testing::TestWithParam<const char*> {
 protected:
  static Bytes chunk_of(const Encoded& part, std::size_t i) {
    const std::uint32_t begin = i == 0 ? 0 : part.chunk_ends[i - 1];
    return Bytes(part.payload).subspan(begin, part.chunk_ends[i] - begin);
  }

  ErrorCode verdict(std::initializer_list<Bytes> chunks) const {
    Encoded part{{}, {}, whole_.scalar, whole_.scalar2};
    for (const Bytes chunk : chunks) {
      part.payload.insert(part.payload.end(), chunk.begin(), chunk.end());
      part.chunk_ends.push_back(static_cast<std::uint32_t>(part.payload.size()));
    }
    return testing::verdict_of(GetParam(), part, kCount);
  }

  static constexpr std::size_t kFull = 16384;
  static constexpr std::size_t kCount = 2 * kFull + 100;
  const Encoded whole_ = coded(GetParam(), Floats(kCount, 1.0F));
};

INSTANTIATE_TEST_SUITE_P(Codecs, SparseChunks,
                         ::testing::Values("fastsgd:b=2,tau=100", "fastsgd:b=2,tau=100,keys=auto",
                                           "sbc:p=0.99999", "topk:k=0.99999", "topk:k=0.99999,values=int8",
                                           "threshold:t=0.5", "logquant"));

TEST_P(SparseChunks, FollowEachOther) {
  ASSERT_EQ(whole_.chunk_ends.size(), 3U);
  const Bytes first = chunk_of(whole_, 0);
  const Bytes second = chunk_of(whole_, 1);
  const Bytes third = chunk_of(whole_, 2);
  ASSERT_EQ(verdict({first, second, third}), kAccepted);
  EXPECT_EQ(verdict({second, first, third}), ErrorCode::kCorrupt);
  Floats later(kCount, 1.0F);
  later[0] = 0;
  const Encoded shifted = coded(GetParam(), later);
  EXPECT_EQ(verdict({chunk_of(shifted, 0), chunk_of(shifted, 1), chunk_of(shifted, 2)}), kAccepted);
  EXPECT_EQ(verdict({chunk_of(shifted, 0), second, third}), ErrorCode::kCorrupt) << "an element twice";
}

TEST_P(SparseChunks, AreFullBeforeOthers) {
  const Encoded few = coded(GetParam(), Floats(kFull - 1, 1.0F));
  const Encoded none = coded(GetParam(), Floats(5, 0.0F));
  EXPECT_EQ(verdict({chunk_of(whole_, 0), chunk_of(whole_, 1)}), kAccepted);
  EXPECT_EQ(verdict({few.payload, chunk_of(whole_, 1)}), ErrorCode::kCorrupt) << "one too few";
  EXPECT_EQ(verdict({chunk_of(whole_, 0), none.payload}), ErrorCode::kCorrupt) << "an empty one behind";
  Floats rest(kFull, 1.0F);
  rest.resize(kFull + 100, 0.0F);
  EXPECT_EQ(coded(GetParam(), rest).chunk_ends.size(), 1U) << "nothing follows a full one";
}

}  // namespace
}  // namespace deltawire::hostile_bytes_test
