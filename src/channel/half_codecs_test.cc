// docs/reference/format.md, section 10: no codec takes more than the 16 bits of a tensor's own values.
#include "channel/half_codecs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/float16.h"
#include "base/float_environment.h"
#include "base/random.h"
#include "base/refusal_testing.h"
#include "channel/channel_testing.h"
#include "channel/message_testing.h"
#include "deltawire/channel.h"
#include "wire/frame_testing.h"

namespace deltawire::half_codecs_test {
namespace {

using namespace testing;
using Halves = std::vector<std::uint16_t>;

constexpr std::uint64_t kCount = 5000;
constexpr std::uint64_t kHeads = 200;  // bytes of frames, besides the values

Values drawn(std::uint64_t count) {
  CounterRng rng(17);
  Values values(count);
  for (float& value : values) value = static_cast<float>(rng.next_uniform() - 0.5);
  return values;
}

Halves halves_of(const Values& values, DType dtype) {
  const FloatEnvironment environment;
  Halves halves(values.size());
  narrow(values.data(), values.size(), dtype, halves.data());
  return halves;
}

Values widened(const Halves& halves, DType dtype) {
  const FloatEnvironment environment;
  Values values(halves.size());
  widen(halves.data(), dtype, halves.size(), values.data());
  return values;
}

void set_version(std::vector<std::byte>& message, std::uint8_t version) {
  message[4] = std::byte{version};
  repair_crc(message);
}

std::vector<std::byte> encoded(Channel& channel, const Named& part) {
  const auto pieces = channel.encode(std::span(&part, 1), kId);
  EXPECT_TRUE(pieces) << pieces.error().message;
  std::vector<std::byte> message;
  if (!pieces) return message;
  for (const Bytes piece : *pieces) message.insert(message.end(), piece.begin(), piece.end());
  return message;
}

struct Case {
  std::string spec;
  DType dtype = DType::kBF16;
};

std::vector<Case> cases(bool lossless_only) {
  std::vector<Case> all;
  for (const CodecInfo* info : registered_codecs()) {
    std::vector<std::string_view> specs(info->examples.begin(), info->examples.end());
    specs.insert(specs.begin(), info->name);
    for (const std::string_view spec : specs) {
      const bool is_lossless =
          spec == "fp32" || spec == "zstd" || spec == "zlib" || spec == "gcomp:lossless=on";
      if (info->sparse || (lossless_only && !is_lossless)) continue;
      for (const DType dtype : {DType::kBF16, DType::kF16}) all.push_back({std::string(spec), dtype});
    }
  }
  return all;
}

class HalfTensors : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(DTypes, HalfTensors, ::testing::Values(DType::kBF16, DType::kF16));

TEST(HalfTensorsOfAllCodecs, TakeNoMoreThanTheirBytes) {
  const auto all = cases(false);
  EXPECT_GT(all.size(), 30U);
  for (const Case& each : all) {
    SCOPED_TRACE(each.spec + " of " + std::string(dtype_name(each.dtype)));
    Halves halves = halves_of(drawn(kCount), each.dtype);
    const Named part{"w", {halves.data(), kCount, each.dtype}, 0};
    EXPECT_LE(encoded(*channel(each.spec, Revert::kExact), part).size(), 2 * kCount + kHeads);
  }
}

TEST(HalfTensorsOfAllCodecs, ArriveAsTheyWereThroughLosslessCodecs) {
  for (const Case& each : cases(true)) {
    SCOPED_TRACE(each.spec + " of " + std::string(dtype_name(each.dtype)));
    Values values = drawn(kCount);
    values[3] = -0.0F;
    values[4] = 0x1p-24F;  // a subnormal of float16
    const Halves sent = halves_of(values, each.dtype);
    Halves halves = sent;
    const Named part{"w", {halves.data(), kCount, each.dtype}, 0};
    const auto message = encoded(*channel(each.spec, Revert::kExact), part);
    halves.assign(kCount, 0x1234);
    const auto receiver = channel(each.spec, Revert::kExact);
    Status decoded = receiver->decode(message, std::span(&part, 1), kId, Into::kOverwrite, 1.0F);
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(halves, sent);
  }
}

// Such parts are among the raw ones, too.
TEST_P(HalfTensors, GoRawIn16Bits) {
  Halves halves = halves_of(drawn(100), GetParam());
  const Halves sent = halves;
  const Named part{"w", {halves.data(), 100, GetParam()}, 0};
  const auto sender = channel("3lc", Revert::kExact, 256);
  const auto message = encoded(*sender, part);
  EXPECT_LE(message.size(), 200 + 60U);
  halves.assign(100, 0);
  ASSERT_TRUE(sender->decode(message, std::span(&part, 1), kId, Into::kOverwrite, 1.0F));
  EXPECT_EQ(halves, sent);
}

// What the codec fp16 refuses, and NaN's sign; NaN travels as the quiet one.
TEST_P(HalfTensors, CarryWhatIsNotFinite) {
  Values values = drawn(kCount);
  values[1] = std::numeric_limits<float>::infinity();
  values[2] = -std::numeric_limits<float>::infinity();
  values[3] = -std::numeric_limits<float>::quiet_NaN();
  Halves halves = halves_of(values, GetParam());
  const Halves sent = halves;
  const Named part{"w", {halves.data(), kCount, GetParam()}, 0};
  const auto sender = channel("fp32", Revert::kExact);
  const auto message = encoded(*sender, part);
  EXPECT_EQ(message.size() > 4 * kCount, GetParam() == DType::kF16);
  halves.assign(kCount, 0);
  ASSERT_TRUE(sender->decode(message, std::span(&part, 1), kId, Into::kOverwrite, 1.0F));
  EXPECT_EQ(halves, sent);
}

// float32 sums of 16-bit values: rounded once, where the codec would take more than 16 bits.
TEST_P(HalfTensors, SumsAreRoundedToTheirDType) {
  Values sums = drawn(kCount);
  const Named part{.name = "w", .tensor = {sums.data(), kCount, DType::kF32}, .summed_dtype = GetParam()};
  for (const std::string spec : {"fp32", "gcomp:cut=0", "zstd"}) {
    SCOPED_TRACE(spec);
    const auto sender = channel(spec, Revert::kExact);
    const auto message = encoded(*sender, part);
    EXPECT_LE(message.size(), 2 * kCount + kHeads);
    Values slot(kCount, 7.0F);
    const Named into{.name = "w", .tensor = {slot.data(), kCount, DType::kF32}, .summed_dtype = GetParam()};
    ASSERT_TRUE(sender->decode(message, std::span(&into, 1), kId, Into::kOverwrite, 1.0F));
    EXPECT_TRUE(same_bits(slot, widened(halves_of(sums, GetParam()), GetParam())));
  }
}

TEST_P(HalfTensors, SumsBeyondTheirDTypeStayFloat32) {
  Values sums = drawn(kCount);
  sums[kCount - 1] = GetParam() == DType::kF16 ? 65520.0F : std::numeric_limits<float>::max();
  const Values expected = sums;
  const Named part{.name = "w", .tensor = {sums.data(), kCount, DType::kF32}, .summed_dtype = GetParam()};
  const auto sender = channel("fp32", Revert::kExact);
  const auto message = encoded(*sender, part);
  sums.assign(kCount, 0.0F);
  ASSERT_TRUE(sender->decode(message, std::span(&part, 1), kId, Into::kOverwrite, 1.0F));
  EXPECT_TRUE(same_bits(sums, expected));
}

// What a folded step left is no sum of 16-bit values, and would be lost if it was rounded.
TEST_P(HalfTensors, WhatWaitsIsNotRounded) {
  const Values values = drawn(kCount);
  Halves halves = halves_of(values, GetParam());
  const Named part{"w", {halves.data(), kCount, GetParam()}, 0};
  const auto sender = channel("fp32", Revert::kFold);
  encoded(*sender, part);
  sender->revert();
  const Values waiting = widened(halves, GetParam());
  std::ranges::copy(halves_of(Values(kCount, 100.0F), GetParam()), halves.begin());
  const auto message = encoded(*sender, part);
  Values sums(kCount);
  const Named into{.name = "w", .tensor = {sums.data(), kCount, DType::kF32}, .summed_dtype = GetParam()};
  const MessageLayout layout(std::span(&into, 1), MessageLayout::hash_of(std::span(&part, 1)));
  ASSERT_TRUE(sender->decode(message, layout, kId, Into::kOverwrite, 1.0F));
  for (std::uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(sums[i], 100.0F + waiting[i]);
}

// In more chunks than the part's codec has, and in several frames.
TEST_P(HalfTensors, MayBeLong) {
  constexpr std::uint64_t kLong = 600'001;
  Halves halves = halves_of(drawn(kLong), GetParam());
  const Halves sent = halves;
  const Named part{"w", {halves.data(), kLong, GetParam()}, 0};
  for (const std::string spec : {"gcomp:cut=0", "zstd", "fp32"}) {
    SCOPED_TRACE(spec);
    const auto sender = channel(spec, Revert::kExact);
    const auto message = encoded(*sender, part);
    EXPECT_LE(message.size(), 2 * kLong + 2 * kHeads);
    halves.assign(kLong, 0);
    ASSERT_TRUE(sender->decode(message, std::span(&part, 1), kId, Into::kOverwrite, 1.0F));
    EXPECT_TRUE(halves == sent);
    halves = sent;
  }
}

// What a sparse codec leaves out is not sent, whatever it takes: its receivers, and momentum, go by that.
TEST_P(HalfTensors, StaySparse) {
  Halves halves = halves_of(drawn(kCount), GetParam());
  const Named part{"w", {halves.data(), kCount, GetParam()}, 0};
  const auto sender = make_channel("topk:k=90%,values=fp32", {.policy = {0}, .error_feedback = false});
  ASSERT_TRUE(sender) << sender.error().message;
  const auto message = encoded(**sender, part);
  EXPECT_GT(message.size(), 3 * kCount);
  halves.assign(kCount, 0);
  ASSERT_TRUE((*sender)->decode(message, std::span(&part, 1), kId, Into::kOverwrite, 1.0F));
  EXPECT_EQ(std::ranges::count(halves, 0), kCount / 10);
}

// gcomp's form for these tensors, and the lowest version of frames that have it.
struct Form {
  const char* spec;
  std::uint8_t version;
};
constexpr Form kForms[] = {{"gcomp", kHalfFormVersion}, {"gcomp:lossless=on", kLosslessHalfFormVersion}};

// Without significances gcomp keeps every bit of these values, in two thirds of a bfloat16's bytes; sums are
// rounded.
TEST_P(HalfTensors, HaveTheirOwnFormOfGcomp) {
  const Values values = drawn(kCount);
  for (const Form& form : kForms) {
    Halves halves = halves_of(values, GetParam());
    const Halves sent = halves;
    const Named part{"w", {halves.data(), kCount, GetParam()}, 0};
    const auto sender = channel(form.spec, Revert::kExact);
    const auto message = encoded(*sender, part);
    EXPECT_EQ(FrameReader::open(message)->version(), form.version);
    EXPECT_LT(message.size(), (GetParam() == DType::kBF16 ? 1.35 : 1.75) * kCount);
    halves.assign(kCount, 0);
    ASSERT_TRUE(sender->decode(message, std::span(&part, 1), kId, Into::kOverwrite, 1.0F));
    EXPECT_EQ(halves, sent);

    Values sums = values;
    const Named sum{.name = "w", .tensor = {sums.data(), kCount, DType::kF32}, .summed_dtype = GetParam()};
    const auto of_sums = encoded(*channel(form.spec, Revert::kExact), sum);
    EXPECT_LT(of_sums.size(), message.size() + 8);
    ASSERT_TRUE(sender->decode(of_sums, std::span(&sum, 1), kId, Into::kOverwrite, 1.0F));
    EXPECT_TRUE(same_bits(sums, widened(sent, GetParam())));
  }
}

// A sum that 16 bits don't hold, and what waits from a folded step, keep gcomp's form of float32.
TEST_P(HalfTensors, KeepFloat32sFormOfGcompWhereTheyMust) {
  Values sums = drawn(kCount);
  sums[7] = GetParam() == DType::kF16 ? 65520.0F : std::numeric_limits<float>::max();
  const Values expected = sums;
  const Named part{.name = "w", .tensor = {sums.data(), kCount, DType::kF32}, .summed_dtype = GetParam()};
  const auto sender = channel("gcomp", Revert::kExact);
  const auto message = encoded(*sender, part);
  EXPECT_EQ(FrameReader::open(message)->version(), kFrameVersion);
  sums.assign(kCount, 0.0F);
  ASSERT_TRUE(sender->decode(message, std::span(&part, 1), kId, Into::kOverwrite, 1.0F));
  EXPECT_TRUE(same_bits(sums, expected));

  const auto folding = channel("gcomp", Revert::kFold);
  Halves halves = halves_of(drawn(kCount), GetParam());
  const Named half{"w", {halves.data(), kCount, GetParam()}, 0};
  encoded(*folding, half);
  folding->revert();
  EXPECT_EQ(FrameReader::open(encoded(*folding, half))->version(), kFrameVersion);
}

// Every finite float16, as a tensor and as a sum of such: what a receiver writes back is finite, too, and
// those from 32,768 on are as they were.
TEST(HalfTensorsOfAllCodecs, StayInFloat16sRangeThroughGcomp) {
  Halves all;
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    if ((half & 0x7C00) != 0x7C00) all.push_back(static_cast<std::uint16_t>(half));
  }
  const Values values = widened(all, DType::kF16);
  const Values seen(all.size(), std::numeric_limits<float>::infinity());
  const auto check = [&](const std::string& spec, const float* significance, bool of_sum) {
    SCOPED_TRACE(spec + (of_sum ? " of a sum" : "") + (significance != nullptr ? " with significances" : ""));
    Values sums = values;
    Halves halves = all;
    Named part{"w", {halves.data(), all.size(), DType::kF16}, 0};
    const Named into = part;
    if (of_sum)
      part = {.name = "w", .tensor = {sums.data(), all.size(), DType::kF32}, .summed_dtype = DType::kF16};
    part.tensor.significance = significance;
    const auto sender = channel(spec, Revert::kExact);
    const auto message = encoded(*sender, part);
    halves.assign(all.size(), 0x7C00);
    const MessageLayout layout(std::span(&into, 1), MessageLayout::hash_of(std::span(&part, 1)));
    const Status decoded = sender->decode(message, layout, kId, Into::kOverwrite, 1.0F);
    ASSERT_TRUE(decoded) << decoded.error().message;
    const Values back = widened(halves, DType::kF16);
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(std::isfinite(back[i])) << values[i];
      const float most = std::fabs(values[i]) >= 32768 ? 0.0F : std::fabs(values[i]) / 8;
      ASSERT_LE(std::fabs(back[i] - values[i]), most) << values[i];
    }
  };
  for (const bool of_sum : {false, true}) {
    for (const char* spec : {"gcomp", "gcomp:cut=6", "gcomp:cut=12", "gcomp:cut=18"})
      check(spec, nullptr, of_sum);
    for (const char* spec : {"gcomp", "gcomp:levels=4"}) check(spec, seen.data(), of_sum);
  }
}

// Of a sum that 16 bits don't hold the mean may be one: float32's form keeps it whole.
TEST(HalfTensorsOfAllCodecs, KeepMeansInFloat16sRangeThroughGcomp) {
  const Values sums{131008.0F, -131008.0F, 126976.0F, 65520.0F};
  const Values seen(sums.size(), std::numeric_limits<float>::infinity());
  for (const std::string spec : {"gcomp", "gcomp:cut=18"}) {
    Values values = sums;
    Named part{
        .name = "w", .tensor = {values.data(), values.size(), DType::kF32}, .summed_dtype = DType::kF16};
    part.tensor.significance = spec == "gcomp" ? seen.data() : nullptr;
    const auto sender = channel(spec, Revert::kExact);
    const auto message = encoded(*sender, part);
    ASSERT_TRUE(sender->decode(message, std::span(&part, 1), kId, Into::kOverwrite, 0.5F)) << spec;
    EXPECT_EQ(values, (Values{65504.0F, -65504.0F, 63488.0F, 32760.0F})) << spec;
  }
}

// Chunks of zeros and stored ones have no halves, and need no newer frames.
TEST_P(HalfTensors, TakeNoNewerFramesThanTheirChunksNeed) {
  const auto version_of = [](const std::string& spec, Halves halves) {
    const Halves sent = halves;
    const Named part{"w", {halves.data(), halves.size(), GetParam()}, 0};
    const auto sender = channel(spec, Revert::kExact);
    const auto message = encoded(*sender, part);
    halves.assign(halves.size(), 0x1234);
    const Status decoded = sender->decode(message, std::span(&part, 1), kId, Into::kOverwrite, 1.0F);
    EXPECT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(halves, sent);
    return FrameReader::open(message)->version();
  };
  for (const Form& form : kForms) {
    EXPECT_EQ(version_of(form.spec, Halves(kCount, 0)), kFrameVersion);
    EXPECT_EQ(version_of(form.spec, Halves(kCount, 0x3C00)), form.version);
    // One value is stored: in 4 bytes where the codec fp16 refuses it.
    if (GetParam() == DType::kF16) {
      EXPECT_EQ(version_of(form.spec, {0x7E00}), kFrameVersion);
    }
  }
}

// Readers of older versions know no such chunks: there they are corrupt.
TEST_P(HalfTensors, HaveNoFormInOlderFrames) {
  Halves halves = halves_of(drawn(kCount), GetParam());
  const Named part{"w", {halves.data(), kCount, GetParam()}, 0};
  for (const Form& form : kForms) {
    const auto sender = channel(form.spec, Revert::kExact);
    std::vector<std::byte> message = encoded(*sender, part);
    ASSERT_TRUE(sender->decode(message, std::span(&part, 1), kId, Into::kOverwrite, 1.0F));
    for (std::uint8_t version = kFrameVersion; version < form.version; ++version) {
      set_version(message, version);
      testing::expect_refused(sender->decode(message, std::span(&part, 1), kId, Into::kOverwrite, 1.0F),
                              ErrorCode::kCorrupt, "of no known mode");
    }
  }
}

TEST_P(HalfTensors, KeepTheirCodecWhereItTakesLess) {
  Halves halves(kCount, 0x3C00);
  const Named part{"w", {halves.data(), kCount, GetParam()}, 0};
  const auto message = encoded(*channel("zstd", Revert::kExact), part);
  EXPECT_LT(message.size(), kCount);
  EXPECT_EQ(FrameReader::open(message)->version(), kFrameVersion);
}

TEST(HalfTensorsOfAllCodecs, AreNoFloat32Tensors) {
  Values values(kCount, 0.5F);  // which 16 bits would hold
  const Named part{"w", {values.data(), kCount, DType::kF32}, 0};
  const auto message = encoded(*channel("fp32", Revert::kExact), part);
  EXPECT_GT(message.size(), 4 * kCount);
  EXPECT_EQ(FrameReader::open(message)->version(), kFrameVersion);
}

}  // namespace
}  // namespace deltawire::half_codecs_test
