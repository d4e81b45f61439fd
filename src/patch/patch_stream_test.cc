// Patches that are made and applied piece by piece, against those of whole tensors.
#include "patch/patch_stream.h"

#include <algorithm>

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/disk_file.h"
#include "base/little_endian.h"
#include "base/refusal_testing.h"
#include "patch/patch_testing.h"

namespace deltawire::patch_stream_test {
namespace {

using namespace testing;

constexpr std::uint64_t kOffset = 5;  // before the patch there are other bytes

std::uint64_t piece_bytes(WeightType type) {
  return patch::kPieceElements * weight_bytes(type);
}

Bytes piece(const ByteVector& weights, std::uint64_t at, WeightType type) {
  return Bytes(weights).subspan(at, std::min<std::uint64_t>(piece_bytes(type), weights.size() - at));
}

struct Written {
  Descriptor file;
  ByteVector patch;
};

Written written(const WeightPair& pair, WeightType type) {
  Written made{*make_unnamed_file(), {}};
  auto writer = patch::PatchWriter::begin(made.file.get(), kOffset, pair.from.size(), type);
  EXPECT_TRUE(writer);
  for (std::uint64_t at = 0; at < pair.from.size(); at += piece_bytes(type)) {
    EXPECT_TRUE(writer->add(piece(pair.from, at, type), piece(pair.to, at, type), {}));
  }
  const auto bytes = writer->finish();
  EXPECT_TRUE(bytes);
  EXPECT_LE(*bytes, patch::most_patch_bytes(pair.from.size() / weight_bytes(type), type));
  made.patch.resize(*bytes);
  EXPECT_EQ(read_at(made.file.get(), made.patch, kOffset), *bytes);
  return made;
}

Status applied(patch::StoredPatch& stored, const ByteVector& from, WeightType type, std::byte* out) {
  for (std::uint64_t at = 0; at < from.size(); at += piece_bytes(type)) {
    const Status done = stored.apply(piece(from, at, type), out == nullptr ? nullptr : out + at, {});
    if (!done) return done;
  }
  return stored.finish();
}

void expect_like_a_whole_tensor(const PairCase& wanted) {
  const WeightPair pair = testing::make_pair(wanted, 7);
  const Written made = written(pair, wanted.type);
  const auto whole = make_patch(pair.from, pair.to, wanted.type);
  ASSERT_TRUE(whole);
  ASSERT_TRUE(made.patch == *whole) << weight_type_name(wanted.type) << " " << wanted.count;
  auto stored = patch::StoredPatch::open(made.file.get(), kOffset, made.patch.size());
  ASSERT_TRUE(stored) << stored.error().message;
  ByteVector out(pair.from.size());
  ASSERT_TRUE(applied(*stored, pair.from, wanted.type, out.data()));
  EXPECT_TRUE(out == pair.to);
  ByteVector in_place = pair.from;
  stored = patch::StoredPatch::open(made.file.get(), kOffset, made.patch.size());
  ASSERT_TRUE(applied(*stored, in_place, wanted.type, in_place.data()));
  EXPECT_TRUE(in_place == pair.to);
  auto again = patch::StoredPatch::open(made.file.get(), kOffset, made.patch.size());
  EXPECT_TRUE(applied(*again, pair.from, wanted.type, nullptr));
  const auto info = patch::StoredPatch::open(made.file.get(), kOffset, made.patch.size())->inspect();
  const auto expected = inspect_patch(made.patch);
  ASSERT_TRUE(info && expected);
  EXPECT_EQ(info->changes, expected->changes);
  EXPECT_EQ(info->changed_chunks, expected->changed_chunks);
  EXPECT_EQ(info->full_chunks, expected->full_chunks);
  EXPECT_EQ(info->chunks, expected->chunks);
  EXPECT_EQ(info->new_digest, expected->new_digest);
}

TEST(PatchStream, PiecesMakeThePatchOfTheWholeTensor) {
  constexpr std::uint64_t kPiece = patch::kPieceElements;
  for (const std::uint64_t count :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{65536}, kPiece, kPiece + 70'000}) {
    expect_like_a_whole_tensor(
        {WeightType::kFloat8E4M3, count, 0.01, OldWeights::kBell, Change::kOneUnit, count == kPiece});
  }
  expect_like_a_whole_tensor({WeightType::kFloat32, 200'003, 1.0, OldWeights::kRandomBits,
                              Change::kRandomBits, false});  // full chunks
}

class PatchStreamDamage : public ::testing::Test {
 protected:
  static constexpr auto kType = WeightType::kBFloat16;
  const WeightPair pair_ = testing::make_pair({kType, 200'000, 0.02}, 3);
  const Written made_ = written(pair_, kType);

  ErrorCode code_of(std::uint64_t bytes) const {
    const auto stored = patch::StoredPatch::open(made_.file.get(), kOffset, bytes);
    return stored ? ErrorCode{} : stored.error().code;
  }
};

TEST_F(PatchStreamDamage, OtherWeightsAreAMismatch) {
  auto stored = patch::StoredPatch::open(made_.file.get(), kOffset, made_.patch.size());
  ByteVector out(pair_.to.size());
  testing::expect_refused(applied(*stored, pair_.to, kType, out.data()), ErrorCode::kMismatch);
}

TEST_F(PatchStreamDamage, AFlippedBitAndACutAreSeen) {
  EXPECT_EQ(code_of(made_.patch.size()), ErrorCode{});
  EXPECT_EQ(code_of(10), ErrorCode::kTruncated);
  EXPECT_EQ(code_of(made_.patch.size() - 1), ErrorCode::kTruncated);
  EXPECT_EQ(code_of(made_.patch.size() + 1), ErrorCode::kCorrupt);
  for (std::uint64_t at = 0; at < made_.patch.size(); at += 97) {
    const std::byte flipped = made_.patch[at] ^ std::byte{4};
    ASSERT_TRUE(write_at(made_.file.get(), Bytes(&flipped, 1), kOffset + at));
    EXPECT_NE(code_of(made_.patch.size()), ErrorCode{}) << at;
    ASSERT_TRUE(write_at(made_.file.get(), Bytes(&made_.patch[at], 1), kOffset + at));
  }
}

TEST_F(PatchStreamDamage, ABrokenChunkIsNamedAfterItsDigest) {
  ByteVector broken = made_.patch;
  broken[56 + load_le<std::uint32_t>(broken.data() + 12)] = std::byte{2};  // a form that doesn't exist
  store_le(broken.data() + 48, crc32c(Bytes(broken).subspan(56)));
  store_le(broken.data() + 52, crc32c(Bytes(broken).first(52)));
  ASSERT_TRUE(write_at(made_.file.get(), broken, kOffset));
  const auto open = [&] { return patch::StoredPatch::open(made_.file.get(), kOffset, broken.size()); };
  auto stored = open();
  ASSERT_TRUE(stored);
  const Status named = applied(*stored, pair_.from, kType, nullptr);
  EXPECT_NE(named.error().message.find("chunk 0 of the patch has a form"), std::string::npos);
  stored = open();
  EXPECT_EQ(applied(*stored, pair_.to, kType, nullptr).error().code, ErrorCode::kMismatch);
}

TEST_F(PatchStreamDamage, AFullDiskIsAnError) {
  const Descriptor full(::open("/dev/full", O_RDWR));
  auto writer = patch::PatchWriter::begin(full.get(), 0, pair_.from.size(), kType);
  testing::expect_refused(writer->add(pair_.from, pair_.to, {}), ErrorCode::kIo);
}

}  // namespace
}  // namespace deltawire::patch_stream_test
