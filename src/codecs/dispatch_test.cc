// Which kernels codecs run, and that whichever they are, bytes, residuals, values and errors are the
// reference's.
#include "codecs/dispatch.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <map>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/random.h"
#include "codecs/codec_testing.h"
#include "codecs/halves/halves_ops.h"
#include "codecs/int8/int8_ops.h"
#include "codecs/spec_on_target_testing.h"
#include "codecs/target_testing.h"

namespace deltawire::dispatch_test {
namespace {

using namespace testing;

constexpr std::uint64_t kLong = 100'000;  // elements, of which two of four ways to decode will do
constexpr std::uint64_t kCounts[] = {0, 1, 33, 321, 16385, 270001};

// Any bits: every exponent, NaN, Inf, subnormals; among them zeros of both signs and ties.
std::vector<float> any_values(std::uint64_t count, bool finite) {
  constexpr float kSome[] = {0.0F, -0.0F, 1.0F, -1.0F, 0.5F, -0.5F, 0x1p-149F, 2.5F};
  CounterRng random(count);
  std::vector<float> values(count);
  for (float& value : values) {
    const std::uint64_t draw = random.next();
    const auto bits = static_cast<std::uint32_t>(draw >> 32) & (finite ? 0xBFFFFFFF : 0xFFFFFFFF);
    value = draw % 4 == 0 ? kSome[draw / 4 % 8] : std::bit_cast<float>(bits);
  }
  return values;
}

// Values of so many elements: drawn once, for all specs and targets.
const std::vector<std::vector<float>>& values_of(std::uint64_t count) {
  static std::map<std::uint64_t, std::vector<std::vector<float>>> drawn;
  auto& values = drawn[count];
  if (values.empty()) {
    values = {testing::normal_values(count, 2), testing::sparse_values(count, 0.02, 3),
              std::vector<float>(count, 0.0F), any_values(count, true), any_values(count, false)};
  }
  return values;
}

class EveryTarget : public OnTarget {
 protected:
  template <class T>
  void expect_same(const Result<T>& reference, const Result<T>& other) const {
    ASSERT_EQ(reference.has_value(), other.has_value());
    if (reference) return;
    EXPECT_EQ(reference.error().code, other.error().code);
    EXPECT_EQ(reference.error().message, other.error().message);
  }

  // Returns the part, without content where it was refused.
  Encoded encode_both(const TensorView& view, std::vector<float> residual = {}) const {
    std::vector<float> other_residual = residual;
    const auto part = testing::encode_view(*reference_, view, residual);
    const auto other = testing::encode_view(*other_, view, other_residual);
    expect_same(part, other);
    EXPECT_TRUE(testing::same_bits(residual, other_residual)) << "the residuals differ";
    if (!part || !other) return {};
    EXPECT_EQ(part->payload, other->payload);
    EXPECT_EQ(part->chunk_ends, other->chunk_ends);
    EXPECT_EQ(part->scalar, other->scalar);
    EXPECT_EQ(part->scalar2, other->scalar2);
    return *part;
  }

  void decode_both(const Encoded& part, std::uint64_t count) const {
    for (const Into into : {Into::kOverwrite, Into::kAccumulate}) {
      for (const float scale : {1.0F, 0.3F}) {
        if (count > kLong && (into == Into::kOverwrite) != (scale == 1.0F)) continue;
        const auto values = testing::decode(*reference_, part.view(), count, into, scale, 0.7F);
        const auto other = testing::decode(*other_, part.view(), count, into, scale, 0.7F);
        expect_same(values, other);
        EXPECT_TRUE(!values || !other || testing::same_bits(*values, *other)) << "decoded values differ";
      }
    }
    std::vector<Section> sections;
    std::vector<Section> other_sections;
    expect_same(reference_->describe(part.view(), count, sections),
                other_->describe(part.view(), count, other_sections));
    ASSERT_EQ(sections.size(), other_sections.size());
    for (std::size_t i = 0; i < sections.size(); ++i) EXPECT_EQ(sections[i].bits, other_sections[i].bits);
  }

  void compare_pairs() const {
    for (const std::uint32_t count : {0U, 1U, 700U, 40000U}) {
      const std::uint64_t dimension = 3 * std::uint64_t{count} + 1;
      CounterRng random(count);
      std::vector<std::uint32_t> keys(count);
      for (std::uint32_t i = 0; i < count; ++i)
        keys[i] = 3 * i + static_cast<std::uint32_t>(random.at(i) % 3);
      const std::vector<float> values = testing::normal_values(count, 5);
      const Encoded part = encode_both({values.data(), count, DType::kF32, keys.data(), dimension});
      decode_both(part, dimension);
      std::vector<float> back[2];
      std::vector<std::uint32_t> places[2];
      for (const std::size_t i : {0U, 1U}) {
        back[i].resize(dimension);
        places[i].resize(dimension);
        const auto& codec = i == 0 ? reference_ : other_;
        ASSERT_TRUE(codec->decode_pairs(
            part.view(), {back[i].data(), dimension, DType::kF32, places[i].data(), dimension}, 0.3F));
      }
      EXPECT_TRUE(testing::same_bits(back[0], back[1]));
      EXPECT_EQ(places[0], places[1]);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Codecs, EveryTarget, ::testing::ValuesIn(on_every_target(conformance_specs())),
                         spec_on_target_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryTarget);  // a build may have the reference alone

// In brief long ones with residuals and significances alone.
TEST_P(EveryTarget, Parts) {
  if (reference_->info().key_value) compare_pairs();
  for (const std::uint64_t count : kCounts) {
    const std::vector<float> residual = testing::normal_values(count, 1);
    for (const std::vector<float>& values : values_of(count)) {
      TensorView view{values.data(), count, DType::kF32};
      if (count < kLong || whole_or_brief(true, false)) decode_both(encode_both(view), count);
      view.significance = residual.data();
      decode_both(encode_both(view, residual), count);
    }
  }
}

TEST_P(EveryTarget, HostileBytes) {
  for (const double share : {0.9, 0.01}) {
    const Encoded part = *testing::encode(*reference_, testing::sparse_values(3000, share, 6));
    CounterRng random(7);
    for (int i = 0; i < whole_or_brief(200, 25) && !part.payload.empty(); ++i) {
      Encoded damaged = part;
      for (std::uint64_t flips = random.next() % 3; flips < 3; ++flips) {
        const std::uint64_t place = random.next() % std::min<std::size_t>(part.payload.size(), 400);
        damaged.payload[place] ^= static_cast<std::byte>(1U << random.next() % 8);
      }
      decode_both(damaged, 3000);
    }
  }
}

TEST(Dispatch, ATargetIsOfTheBuildAndOfTheCpu) {
  const auto targets = kernel_targets();
  EXPECT_EQ(targets[0].name, "reference");
  EXPECT_TRUE(targets[0].runs_here);
#if defined(__x86_64__)
  constexpr std::string_view kNames[] = {"reference", "avx2", "avx512", "avx512vbmi"};
  ASSERT_EQ(targets.size(), std::size(kNames));
  for (std::size_t i = 0; i < targets.size(); ++i) EXPECT_EQ(targets[i].name, kNames[i]);
  EXPECT_EQ(targets[1].runs_here, __builtin_cpu_supports("avx2") != 0 &&
                                      __builtin_cpu_supports("f16c") != 0 &&
                                      __builtin_cpu_supports("bmi2") != 0);
  EXPECT_NE(halves::kernels_for(TargetId{1}).bf16.encode,
            halves::kernels_for(TargetId::kReference).bf16.encode);
#elif defined(__aarch64__)
  ASSERT_EQ(targets.size(), 2U);
  EXPECT_EQ(targets[1].name, "neon");
  EXPECT_TRUE(targets[1].runs_here);
  EXPECT_NE(int8::kernels_for(TargetId{1}).encode, int8::kernels_for(TargetId::kReference).encode);
#endif
}

// bf16's for AVX2 serve where there are no better ones; for NEON it has none.
TEST(Dispatch, ATargetWithoutKernelsOfItsOwnHasThoseOfTheOneBefore) {
#if defined(__x86_64__)
  constexpr TargetId kBest{1};
#else
  constexpr TargetId kBest = TargetId::kReference;
#endif
  for (const TargetId target : testing::beyond_reference()) {
    EXPECT_EQ(&halves::kernels_for(target), &halves::kernels_for(kBest));
    EXPECT_FALSE(has_kernels(testing::codec_of("fp32")->info(), target));  // has none at all
    EXPECT_EQ(has_kernels(testing::codec_of("bf16")->info(), target), target == kBest);
  }
}

TEST(Dispatch, OneIsChosenByNameOrRefusedAloud) {
  constexpr KernelTarget kTargets[] = {{"reference", true}, {"old", true}, {"new", false}, {"other", true}};
  EXPECT_EQ(choose_target("", kTargets), static_cast<TargetId>(3));
  EXPECT_EQ(choose_target("", std::span(kTargets).first(3)), static_cast<TargetId>(1));
  EXPECT_EQ(choose_target("reference", kTargets), TargetId::kReference);
  EXPECT_EQ(choose_target("old", kTargets), static_cast<TargetId>(1));
  EXPECT_EQ(choose_target("other", kTargets), static_cast<TargetId>(3));
  for (const char* name : {"ol", "older", "OLD", "new"}) {
    const auto target = choose_target(name, kTargets);
    ASSERT_FALSE(target) << name;
    EXPECT_EQ(target.error().code, ErrorCode::kInvalidArgument);
    const bool known = std::string_view(name) == "new";
    EXPECT_EQ(target.error().message,
              "DELTAWIRE_FORCE_TARGET is \"" + std::string(name) + "\", " +
                  (known ? "whose instructions this CPU lacks" : "which this build doesn't know") +
                  ": give one of reference, old, other, or unset it");
  }
}

TEST(Dispatch, OneIsChosenForGood) {
  const std::string before(*kernel_target_in_use());
  ASSERT_EQ(setenv("DELTAWIRE_FORCE_TARGET", "nonsense", 1), 0);
  const auto after = kernel_target_in_use();
  const auto codec = make_codec("int8");
  unsetenv("DELTAWIRE_FORCE_TARGET");
  ASSERT_TRUE(after);
  EXPECT_EQ(*after, before);
  EXPECT_TRUE(codec);
}

}  // namespace
}  // namespace deltawire::dispatch_test
