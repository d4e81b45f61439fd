// Bytes that are no patch: an error that says what is wrong, and weights that stay as they were.
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/refusal_testing.h"
#include "deltawire/patch.h"
#include "patch/patch_coding.h"
#include "patch/patch_testing.h"

namespace deltawire::patch_hostile_test {
namespace {

using namespace testing;

constexpr WeightType kType = WeightType::kBFloat16;
constexpr std::size_t kHead = 56;

// Both checksums as they ought to be, so that what they would catch is seen by the checks behind them.
void repair(ByteVector& patch) {
  if (patch.size() < kHead) return;
  store_le(patch.data() + 48, crc32c(Bytes(patch).subspan(kHead)));
  store_le(patch.data() + 52, crc32c(Bytes(patch).first(52)));
}

struct Sample {
  WeightPair pair;
  ByteVector patch;
};

Sample sample(double share, std::uint64_t count = 500, unsigned chunk_bits = 8) {
  Sample made{testing::make_pair({kType, count, share, OldWeights::kBell, Change::kFewUnits, false}, 1), {}};
  made.patch = *patch::make({made.pair.from, kType}, made.pair.to, chunk_bits, {});
  return made;
}

Status applied(const Sample& made, const ByteVector& patch) {
  ByteVector weights = made.pair.from;
  const Status status = apply_patch(patch, weights, kType, weights);
  if (status) {
    EXPECT_TRUE(weights == made.pair.to) << "other weights without an error";
  } else {
    EXPECT_TRUE(weights == made.pair.from) << "an error, and weights that changed";
    EXPECT_FALSE(status.error().message.empty());
  }
  return status;
}

TEST(PatchHostile, EveryByteCounts) {
  for (const double share : {0.02, 0.4, 1.0}) {
    const Sample made = sample(share);
    for (std::size_t at = 0; at < made.patch.size(); ++at) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        ByteVector broken = made.patch;
        broken[at] ^= static_cast<std::byte>(1U << bit);
        EXPECT_FALSE(applied(made, broken)) << at << ":" << bit;
        EXPECT_FALSE(inspect_patch(broken)) << at << ":" << bit;
      }
    }
  }
}

// With sound checksums an error may be found by the digest of the new weights alone. Few changes make
// another patch with the same meaning: an encoder chooses the parameters of some codes.
TEST(PatchHostile, SoundChecksumsLetNoOtherWeightsThrough) {
  std::size_t refused = 0;
  std::size_t tried = 0;
  for (const double share : {0.02, 0.4, 1.0}) {
    const Sample made = sample(share);
    for (std::size_t at = 8; at < made.patch.size(); ++at) {
      if (at >= 48 && at < kHead) continue;
      for (unsigned bit = 0; bit < 8; ++bit) {
        ByteVector broken = made.patch;
        broken[at] ^= static_cast<std::byte>(1U << bit);
        repair(broken);
        refused += applied(made, broken) ? 0U : 1U;
        ++tried;
        (void)inspect_patch(broken);
      }
    }
  }
  EXPECT_GT(refused + tried / 100, tried);
}

TEST(PatchHostile, ACutIsAnError) {
  const Sample made = sample(0.1);
  for (std::size_t bytes = 0; bytes < made.patch.size(); ++bytes) {
    ByteVector cut(made.patch.begin(), made.patch.begin() + static_cast<std::ptrdiff_t>(bytes));
    testing::expect_refused(applied(made, cut), ErrorCode::kTruncated);
    repair(cut);
    EXPECT_FALSE(applied(made, cut)) << bytes;
  }
  ByteVector longer = made.patch;
  longer.push_back(std::byte{0});
  EXPECT_EQ(applied(made, longer).error().code, ErrorCode::kCorrupt);
}

// The code of the error of a patch whose field says something else.
template <class Number>
ErrorCode code_with(std::size_t at, Number number) {
  Sample made = sample(0.1);
  store_le(made.patch.data() + at, number);
  repair(made.patch);
  const Status status = applied(made, made.patch);
  const auto info = inspect_patch(made.patch);
  EXPECT_FALSE(status);
  EXPECT_EQ(info ? ErrorCode::kMismatch : info.error().code, status.error().code);
  return status.error().code;
}

TEST(PatchHostile, FieldsThatLie) {
  EXPECT_EQ(code_with(0, std::uint8_t{'d'}), ErrorCode::kCorrupt);
  EXPECT_EQ(code_with(8, std::uint16_t{2}), ErrorCode::kUnsupportedVersion);
  EXPECT_EQ(code_with(10, std::uint8_t{0}), ErrorCode::kCorrupt);
  EXPECT_EQ(code_with(10, std::uint8_t{9}), ErrorCode::kCorrupt);
  EXPECT_EQ(code_with(10, std::uint8_t{3}), ErrorCode::kMismatch);
  EXPECT_EQ(code_with(11, std::uint8_t{5}), ErrorCode::kCorrupt);
  EXPECT_EQ(code_with(11, std::uint8_t{17}), ErrorCode::kCorrupt);
  EXPECT_EQ(code_with(12, std::uint32_t{1}), ErrorCode::kCorrupt);
  EXPECT_EQ(code_with(12, UINT32_MAX), ErrorCode::kTruncated);
  EXPECT_EQ(code_with(16, kPatchMaxElements), ErrorCode::kCorrupt);
  EXPECT_EQ(code_with(16, kPatchMaxElements + 1), ErrorCode::kLimit);
  EXPECT_EQ(code_with(24, UINT64_MAX), ErrorCode::kTruncated);
  EXPECT_EQ(code_with(24, std::uint64_t{0}), ErrorCode::kCorrupt);
  EXPECT_EQ(code_with(32, std::uint64_t{1}), ErrorCode::kMismatch);
}

TEST(PatchHostile, ANewDigestThatIsNotMet) {
  Sample made = sample(0.1);
  store_le(made.patch.data() + 40, std::uint64_t{1});
  repair(made.patch);
  EXPECT_EQ(applied(made, made.patch).error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(inspect_patch(made.patch));
}

// A patch for 500 weights in chunks of 256, with this table and payload.
ByteVector with_body(const Sample& made, const std::vector<unsigned>& table,
                     const std::vector<unsigned>& payload) {
  ByteVector patch(made.patch.begin(), made.patch.begin() + kHead);
  for (const unsigned byte : table) patch.push_back(static_cast<std::byte>(byte));
  for (const unsigned byte : payload) patch.push_back(static_cast<std::byte>(byte));
  store_le(patch.data() + 12, static_cast<std::uint32_t>(table.size()));
  store_le(patch.data() + 24, std::uint64_t{payload.size()});
  repair(patch);
  return patch;
}

std::string text_of(const Sample& made, const std::vector<unsigned>& table,
                    const std::vector<unsigned>& payload) {
  const Status status = applied(made, with_body(made, table, payload));
  EXPECT_FALSE(status);
  return status ? "" : status.error().message;
}

TEST(PatchHostile, TablesThatLie) {
  const Sample made = sample(0.1);
  EXPECT_NE(text_of(made, {}, {}).find("ends before the tensor"), std::string::npos);
  EXPECT_NE(text_of(made, {1, 1}, {}).find("two runs"), std::string::npos);
  EXPECT_NE(text_of(made, {5}, {}).find("more chunks"), std::string::npos);
  EXPECT_NE(text_of(made, {3, 0}, {0}).find("more chunks"), std::string::npos);
  EXPECT_NE(text_of(made, {1, 2}, {0}).find("claims more bytes"), std::string::npos);
  EXPECT_NE(text_of(made, {1, 0}, {0, 0}).find("leaves bytes over"), std::string::npos);
  EXPECT_NE(text_of(made, {0x83, 0}, {}).find("longer than it needs"), std::string::npos);
  EXPECT_NE(text_of(made, {0x83}, {}).find("cut off"), std::string::npos);
}

// Chunk 1 of the 500 weights has this code, chunk 0 has none.
std::string text_of_code(const std::vector<unsigned>& code) {
  const Sample made = sample(0.1);
  const unsigned entry = static_cast<unsigned>(code.size() - 1) << 1;
  if (entry < 128) return text_of(made, {1, entry}, code);
  return text_of(made, {1, entry % 128 + 128, entry / 128}, code);
}

// Bits from left to right, the first one the lowest of the first byte.
std::vector<unsigned> code_of(std::string_view bits) {
  std::vector<unsigned> code;
  unsigned at = 0;
  for (const char bit : bits) {
    if (bit == ' ') continue;
    if (at % 8 == 0) code.push_back(0);
    code.back() |= static_cast<unsigned>(bit == '1') << at++ % 8;
  }
  return code;
}

// The weights are another version's, of 244 weights in the chunk: the digest would be seen first, were it the
// wrong base.
TEST(PatchHostile, ChunksThatLie) {
  const auto has = [](const std::string& text, const char* what) {
    EXPECT_NE(text.find("chunk 1"), std::string::npos) << text;
    EXPECT_NE(text.find(what), std::string::npos) << text;
  };
  has(text_of_code(code_of("01")), "form");
  has(text_of_code(code_of("10 00000001")), "ends before");  // classes, and no counts
  has(text_of_code(code_of("00 11111110")), "no changes");   // width 0
  has(text_of_code(code_of("00 111111111111 000000")), "longer code");
  has(text_of_code(code_of("00 111111110 1111111")), "more than there are weights");  // 255 of 244
  // Class 0, of the largest exponent, has no member, and one change.
  has(text_of_code(code_of("10 11111111 111110 10 0000000000")), "more than there are weights");
  has(text_of_code(code_of("00 111111111111 111111")), "out of range");  // width 63
  has(text_of_code(code_of("00 1111111110")), "out of range");           // width 4 - 5
  // Width 15, and then 3 more.
  const std::string width_18 = "10 00000001 111111111111 111100 00000000000000 1111110";
  has(text_of_code(code_of(width_18 + std::string(30, '0'))), "out of range");
}

// One change among 244 weights: the parameter of its position is 7.
constexpr std::string_view kOneChange = "00 111110 ";

std::string text_of_change(const std::string& bits) {
  return text_of_code(code_of(std::string(kOneChange) + bits));
}

TEST(PatchHostile, PositionsThatLie) {
  EXPECT_NE(text_of_change("10 1111111").find("behind its last one"), std::string::npos);  // 255
  const std::string raw(24, '1');
  EXPECT_NE(text_of_change(raw + "0010011000000000 0 0").find("longer code"), std::string::npos);  // 100
  EXPECT_NE(text_of_change("0 0000000 0 11111110 1").find("bits behind its end"), std::string::npos);
}

TEST(PatchHostile, LongStepsThatLie) {
  const std::string at_0_up = "0 0000000 0 ";
  const std::string at_0_down = "0 0000000 1 ";
  const auto has = [](const std::string& text, const char* what) {
    EXPECT_NE(text.find(what), std::string::npos) << text;
  };
  has(text_of_change(at_0_up + "1110 0"), "more than there are weights");  // 2 of 1 are long
  const std::string one = "111110 ";
  has(text_of_change(at_0_up + one + "10"), "out of range");                   // parameter 0 - 1
  has(text_of_change(at_0_up + one + "111111111111 000001"), "out of range");  // 32
  const std::string of_15 = one + "111111111111 111100 ";
  has(text_of_change(at_0_up + of_15 + "10 111111111111111"), "longer than weights can take");  // 65537
  has(text_of_change(at_0_down + of_15 + "10 111111111111111"), "longer than weights can take");
  // 2^15: a step down may be as long, a step up not.
  has(text_of_change(at_0_up + of_15 + "0 011111111111111"), "longer than weights can take");
  has(text_of_change(at_0_down + of_15 + "0 011111111111111"), "does not make the weights");
}

TEST(PatchHostile, FullChunksThatLie) {
  std::vector<unsigned> code(1 + 2 * 244, 0);
  code[0] = 3;
  EXPECT_NE(text_of_code(code).find("does not make the weights"), std::string::npos);
  code[0] = 7;
  EXPECT_NE(text_of_code(code).find("bits behind its end"), std::string::npos);
  code[0] = 3;
  code.push_back(0);
  EXPECT_NE(text_of_code(code).find("bits behind its end"), std::string::npos);
  code.resize(code.size() - 2);
  EXPECT_NE(text_of_code(code).find("ends before"), std::string::npos);
}

// Integers have no exponent, and float8_e4m3 has none above 15.
TEST(PatchHostile, ClassesThatTheWeightsDoNotHave) {
  for (const auto& [type, bits] : {std::pair(WeightType::kInt8, "10 00000000 111110 10 0000000000"),
                                   std::pair(WeightType::kFloat8E4M3, "10 00001000 111110 10 0000000000")}) {
    const WeightPair pair =
        testing::make_pair({type, 500, 0.1, OldWeights::kBell, Change::kFewUnits, false}, 1);
    const Sample made{pair, *patch::make({pair.from, type}, pair.to, 8, {})};
    const std::vector<unsigned> code = code_of(bits);
    const ByteVector patch = with_body(made, {1, static_cast<unsigned>(code.size() - 1) << 1}, code);
    const Status status = verify_patch(patch, pair.from, type);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("a form that doesn't exist"), std::string::npos)
        << status.error().message;
  }
}

}  // namespace
}  // namespace deltawire::patch_hostile_test
