// docs/reference/format.md, section 3: segments without chunks. Where they may stand, which codecs may send
// them, what they stand for; each rule is broken behind good checksums. The frame's own rules for them are in
// wire/frame_rules_test.cc.
#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/little_endian.h"
#include "channel/message_testing.h"
#include "codecs/codec_testing.h"
#include "deltawire/file.h"

namespace deltawire::bare_rules_test {
namespace {

using namespace testing;

constexpr Policy kPass{kPolicy.min_elements, NonFinite::kPass};
constexpr SegmentState kBoth[] = {SegmentState::kNothing, SegmentState::kNotFinite};

Status decode(const std::string& spec, const Policy& policy, const std::vector<Piece>& pieces, Parts& parts,
              Into into = Into::kOverwrite) {
  const auto named = parts.named();
  const auto channel = make_channel(spec, {.policy = policy, .revert = Revert::kFold});
  return (*channel)->decode(message_of(header_of(named, kId, spec, policy), pieces), named, kId, into, 1.0F);
}

TEST(BareRules, OnePartEach) {
  struct Rule {
    std::string name;
    std::vector<Piece> pieces;
    std::optional<ErrorCode> error;
  };
  for (const SegmentState state : kBoth) {
    const auto bare = [state](Piece piece) {
      piece.state = state;
      return piece;
    };
    const std::vector<Rule> rules{
        {"none", {kLargeBegin, kLargeRest, kSmall}, std::nullopt},
        {"a whole part", {bare(kLarge), kSmall}, std::nullopt},
        {"in a frame of its own", {bare(kLarge), in_new_frame(kSmall)}, std::nullopt},
        {"the begin", {bare(kLargeBegin), kLargeRest, kSmall}, ErrorCode::kCorrupt},
        {"the rest", {kLargeBegin, bare(kLargeRest), kSmall}, ErrorCode::kCorrupt},
        {"the rest, in a frame of its own",
         {kLargeBegin, in_new_frame(bare(kLargeRest)), in_new_frame(kSmall)},
         ErrorCode::kCorrupt},
        {"begin and rest", {bare(kLargeBegin), bare(kLargeRest), kSmall}, ErrorCode::kCorrupt},
        {"one element less", {bare({0, kInt8, 0, 69999}), kSmall}, ErrorCode::kCorrupt},
        {"one element more", {bare({0, kInt8, 0, 70001}), kSmall}, ErrorCode::kCorrupt},
        {"from element 1 on", {bare({0, kInt8, 1, 69999}), kSmall}, ErrorCode::kCorrupt},
        {"of the part without elements", {kLarge, bare({1, kInt8, 0, 1}), kSmall}, ErrorCode::kCorrupt},
        {"of the part that is raw", {kLarge, bare({2, kInt8, 0, 3})}, ErrorCode::kCorrupt},
        {"of a part that is not due", {bare({2, kInt8, 0, 70000}), kSmall}, ErrorCode::kCorrupt},
        {"twice", {bare(kLarge), bare(kLarge), kSmall}, ErrorCode::kCorrupt},
        {"and coded too", {bare(kLarge), kLarge, kSmall}, ErrorCode::kCorrupt},
        {"behind the last part", {kLarge, kSmall, bare(kLarge)}, ErrorCode::kCorrupt},
        {"alone", {bare(kLarge)}, ErrorCode::kTruncated},
    };
    for (const Rule& rule : rules) {
      SCOPED_TRACE(rule.name + (state == SegmentState::kNothing ? ": nothing" : ": not finite"));
      Parts parts;
      expect_code(decode("int8", kPass, rule.pieces, parts), rule.error);
    }
  }
}

TEST(BareRules, OnlyWhereTheCodecMaySendThem) {
  std::set<std::pair<bool, bool>> kinds;
  for (const std::string& spec : every_spec()) {
    const auto codec = make_codec(spec);
    const CodecInfo& info = (*codec)->info();
    kinds.emplace(info.error_feedback, info.finite_only);
    for (const SegmentState state : kBoth) {
      const bool is_nothing = state == SegmentState::kNothing;
      for (const NonFinite nonfinite : {NonFinite::kError, NonFinite::kPass}) {
        const bool passes = nonfinite == NonFinite::kPass;
        SCOPED_TRACE(spec + (is_nothing ? ": nothing" : ": not finite") + (passes ? ", pass" : ""));
        const bool may = is_nothing ? info.error_feedback : info.finite_only && passes;
        Piece bare = kLarge;
        bare.state = state;
        Parts parts;
        expect_code(decode(spec, {kPolicy.min_elements, nonfinite}, {bare, kSmall}, parts),
                    may ? std::nullopt : std::optional(ErrorCode::kCorrupt));
      }
    }
  }
  const std::set<std::pair<bool, bool>> wanted{{false, false}, {false, true}, {true, true}};
  EXPECT_EQ(kinds, wanted) << "codecs of all kinds: with error feedback, which refuse NaN";
}

// Bit by bit: a -0 or another NaN would differ from rank to rank.
TEST(BareRules, WhatTheyStandFor) {
  constexpr std::uint32_t kNan = 0x7FC00000;
  const auto all = [](SegmentState state, Into into, float before) {
    Piece bare = kLarge;
    bare.state = state;
    Parts parts;
    parts.large.assign(parts.large.size(), before);
    expect_code(decode("3lc", kPass, {bare, kSmall}, parts, into), std::nullopt);
    const auto bits = std::bit_cast<std::uint32_t>(parts.large.front());
    for (const float value : parts.large) EXPECT_EQ(std::bit_cast<std::uint32_t>(value), bits);
    return bits;
  };
  const float odd_nan = std::bit_cast<float>(0x7FA00001);
  EXPECT_EQ(all(SegmentState::kNothing, Into::kOverwrite, -1.5F), 0u);
  for (const float before : {-0.0F, 2.5F, odd_nan}) {
    EXPECT_EQ(all(SegmentState::kNothing, Into::kAccumulate, before), std::bit_cast<std::uint32_t>(before));
    EXPECT_EQ(all(SegmentState::kNotFinite, Into::kOverwrite, before), kNan);
    EXPECT_EQ(all(SegmentState::kNotFinite, Into::kAccumulate, before), kNan);
  }
}

// Who keeps no residuals may receive from who does.
TEST(BareRules, WhateverTheReceiverKeeps) {
  int codecs = 0;
  for (const std::string& spec : every_spec()) {
    if (!(*make_codec(spec))->info().error_feedback) continue;
    SCOPED_TRACE(spec);
    ++codecs;
    const auto sender = make_channel(spec, {.policy = kPolicy});
    std::vector<float> zeros(70000, 0.0F);
    const std::vector<Named> part{{"w", {zeros.data(), zeros.size(), DType::kF32}, 0}};
    const auto pieces = (*sender)->encode(part, kId);
    ASSERT_TRUE(pieces) << pieces.error().message;
    ASSERT_TRUE(pieces->back().empty()) << "nothing is sent";
    for (const bool error_feedback : {true, false}) {
      const auto receiver = make_channel(spec, {.policy = kPolicy, .error_feedback = error_feedback});
      zeros.assign(zeros.size(), 1.0F);
      const Status decoded = (*receiver)->decode(pieces->front(), part, kId, Into::kOverwrite, 1.0F);
      ASSERT_TRUE(decoded) << decoded.error().message;
      EXPECT_EQ(std::ranges::count(zeros, 0.0F), std::ssize(zeros));
    }
  }
  EXPECT_GT(codecs, 5);
}

// And what an encoder makes of NaN, and of zeros.
TEST(BareRules, ComeFromEncoders) {
  const auto channel = make_channel("3lc", {.policy = kPass, .revert = Revert::kFold});
  std::vector<float> values(70000, 0.0F);
  const std::vector<Named> part{{"w", {values.data(), values.size(), DType::kF32}, 0}};
  for (const float first : {0.0F, std::bit_cast<float>(0x7FA00001)}) {
    values.assign(values.size(), 0.0F);
    values[0] = first;
    const auto pieces = (*channel)->encode(part, kId);
    ASSERT_TRUE(pieces) << pieces.error().message;
    EXPECT_EQ(pieces->size(), 2u) << "a head, and no byte of payload";
    EXPECT_TRUE(pieces->back().empty());
    values.assign(values.size(), 1.0F);
    expect_code((*channel)->decode(*pieces, part, kId, Into::kOverwrite, 1.0F), std::nullopt);
    for (const float value : values) EXPECT_EQ(std::isnan(value), std::isnan(first));
    EXPECT_TRUE(std::isnan(first) || values == std::vector<float>(values.size(), 0.0F));
  }
}

// Lists of keys and values can say nothing, but not that values are missing.
TEST(BareRules, InKeyValueForm) {
  for (const SegmentState state : kBoth) {
    Piece bare = kLarge;
    bare.state = state;
    Parts parts;
    const auto named = parts.named();
    const auto channel = make_channel("sbc", {.policy = kPass, .revert = Revert::kFold});
    std::vector<Pairs> means(3, Pairs{{7}, {7.0F}});
    const auto message = message_of(header_of(named, kId, "sbc", kPass), {bare, kSmall});
    const Status decoded = (*channel)->decode_pairs(message, named, kId, 1.0F, means);
    if (state == SegmentState::kNotFinite) {
      expect_code(decoded, ErrorCode::kNotFinite);
      continue;
    }
    expect_code(decoded, std::nullopt);
    EXPECT_TRUE(means[0].keys.empty() && means[0].values.empty());
    EXPECT_EQ(means[2].keys, (std::vector<std::uint32_t>{0, 1, 2}));
  }
}

// A file's part has no residual in which it could wait, and a count without bytes is only claimed.
TEST(BareRules, NotInAFile) {
  std::vector<float> values(300, 0.0F);
  const std::vector<std::uint64_t> shape{300};
  const TensorView tensor{values.data(), values.size(), DType::kF32};
  const TensorSlot slot{values.data(), values.size(), DType::kF32};
  const std::vector<Named> part{{"tensor", slot, 0}};
  const Policy policy;
  for (const std::string spec : {"3lc", "sbc", "int8", "fastsgd:residual=on", "fastsgd"}) {
    SCOPED_TRACE(spec);
    const auto good = encode_file(tensor, shape, spec, policy);
    ASSERT_TRUE(good) << good.error().message;
    expect_code(decode_file(*good, slot), std::nullopt);
    for (const SegmentState state : kBoth) {
      const Piece bare{0, 0, 0, 300, state};
      const auto frame = message_of(header_of(part, MessageId{}, spec, policy), {bare});
      auto file = *good;
      file.resize(load_le<std::uint32_t>(file.data() + 12));
      file.insert(file.end(), frame.begin(), frame.end());
      expect_code(decode_file(file, slot), ErrorCode::kCorrupt);
    }
  }
}

}  // namespace
}  // namespace deltawire::bare_rules_test
