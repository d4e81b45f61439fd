// What every codec owes, driven by the registry: a new folder is tested without a change here.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/float16.h"
#include "base/float_environment.h"
#include "base/random.h"
#include "base/refusal_testing.h"
#include "codecs/codec_testing.h"
#include "codecs/spec_string.h"

namespace deltawire::conformance_test {
namespace {

using namespace testing;

constexpr std::uint64_t kCounts[] = {0,   1,     2,     3,     4,     5,     319,   320,
                                     321, 40959, 40960, 40961, 65535, 65536, 65537, 100003};

class Conformance : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<const Codec> codec_ = codec_of(GetParam());
  const testing::Expectation& expected_ = testing::expectation_of(GetParam());
};

std::string name_of(const ::testing::TestParamInfo<std::string>& chosen) {
  return testing::test_name(chosen.param);
}

INSTANTIATE_TEST_SUITE_P(Codecs, Conformance, ::testing::ValuesIn(testing::conformance_specs()), name_of);

// The specs of whose codec and expectations something is true.
auto specs_where(bool (*holds)(const CodecInfo&, const testing::Expectation&)) {
  std::vector<std::string> specs = testing::conformance_specs();
  std::erase_if(specs, [holds](const std::string& spec) {
    return !holds(codec_of(spec)->info(), testing::expectation_of(spec));
  });
  return ::testing::ValuesIn(specs);
}

class SkippedZeros : public Conformance {};
const auto skips_zeros = [](auto&, auto& due) { return due.skips_zeros; };
INSTANTIATE_TEST_SUITE_P(Codecs, SkippedZeros, specs_where(skips_zeros), name_of);

class FiniteOnly : public Conformance {};
const auto carries_finite_alone = [](auto& codec, auto&) { return codec.finite_only; };
INSTANTIATE_TEST_SUITE_P(Codecs, FiniteOnly, specs_where(carries_finite_alone), name_of);

class ChunksOfOneSize : public Conformance {};
const auto has_chunks_of_one_size = [](auto& codec, auto&) { return codec.chunk_elements > 0; };
INSTANTIATE_TEST_SUITE_P(Codecs, ChunksOfOneSize, specs_where(has_chunks_of_one_size), name_of);

class SeparateChunks : public Conformance {};
const auto has_separate_chunks = [](auto& codec, auto&) { return codec.separate_chunks; };
INSTANTIATE_TEST_SUITE_P(Codecs, SeparateChunks, specs_where(has_separate_chunks), name_of);

class WithoutKeys : public Conformance {};
const auto takes_no_keys = [](auto& codec, auto&) { return !codec.key_value; };
INSTANTIATE_TEST_SUITE_P(Codecs, WithoutKeys, specs_where(takes_no_keys), name_of);

TEST_P(Conformance, RoundTripWithinTheStatedBound) {
  for (const std::uint64_t count : kCounts) {
    const std::vector<float> values = testing::normal_values(count, count);
    std::vector<float> residual(count, 0.0F);
    const auto part = testing::encode(*codec_, values, residual);
    ASSERT_TRUE(part) << part.error().message;
    const auto back = testing::decode(*codec_, part->view(), count, Into::kOverwrite, 1, -7);
    ASSERT_TRUE(back) << count << ": " << back.error().message;
    // Asking for bounds is slow: of a long part, every seventh element, whose places differ from count to
    // count.
    const std::uint64_t apart = count > 1000 ? 7 : 1;
    const double largest = testing::largest_magnitude(values);
    for (std::uint64_t i = count % apart; i < count; i += apart) {
      const testing::EncodedValue value{*codec_, *part, values, i, largest};
      const double decoded = back->at(i);
      const double lost = expected_.conservation_bound != nullptr ? expected_.conservation_bound(value) : 0;
      ASSERT_LE(std::fabs(decoded - values[i]), expected_.error_bound(value)) << i << " of " << count;
      ASSERT_LE(std::fabs(decoded + residual[i] - values[i]), lost)
          << "not conserved: " << i << " of " << count;
    }
    // Scaling, then adding, are two roundings.
    const auto scaled = testing::decode(*codec_, part->view(), count, Into::kOverwrite, 0.3F, 3);
    const auto sum = testing::decode(*codec_, part->view(), count, Into::kAccumulate, 0.3F, 3);
    ASSERT_TRUE(scaled && sum);
    std::vector<float> wanted(count);
    std::transform(back->begin(), back->end(), wanted.begin(), [](float each) { return 0.3F * each; });
    ASSERT_EQ(*scaled, wanted);
    std::transform(wanted.begin(), wanted.end(), wanted.begin(), [](float each) { return 3 + each; });
    ASSERT_EQ(*sum, wanted);
  }
}

TEST_P(Conformance, DescribeSumsToThePayload) {
  for (const std::uint64_t count : kCounts) {
    const auto part = *testing::encode(*codec_, testing::sparse_values(count, 0.01, 5));
    std::vector<Section> sections;
    ASSERT_TRUE(codec_->describe(part.view(), count, sections));
    std::uint64_t bits = 0;
    for (const Section& section : sections) bits += section.bits;
    EXPECT_EQ(bits, part.payload.size() * 8) << count;
  }
}

TEST_P(Conformance, ParametersOutOfRangeAreRefused) {
  for (const std::string& parameters : expected_.refused) {
    testing::expect_refused(make_codec(std::string(codec_->info().name) + ":" + parameters),
                            ErrorCode::kInvalidArgument);
  }
}

// -0 + 0 would be +0, and -1 * 0 would be -0.
TEST_P(SkippedZeros, LeaveTheSlotAsItIs) {
  for (const std::uint64_t count : {1U, 3U, 300U, 40000U}) {
    for (const double share : {0.0, 0.01, 0.4}) {
      const auto part = *testing::encode(*codec_, testing::sparse_values(count, share, count));
      const auto back = *testing::decode(*codec_, part.view(), count, Into::kOverwrite, -1, 7);
      const auto sum = *testing::decode(*codec_, part.view(), count, Into::kAccumulate, -1, -0.0F);
      for (std::size_t i = 0; i < count; ++i) {
        if (back[i] != 0) continue;
        ASSERT_EQ(bits_of(back[i]), 0U) << i << " of " << count;
        ASSERT_EQ(bits_of(sum[i]), bits_of(-0.0F)) << i << " of " << count;
      }
    }
  }
}

TEST_P(Conformance, SpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> special = {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf};
  const auto part = testing::encode(*codec_, special);
  if (codec_->info().finite_only) {
    testing::expect_refused(part, ErrorCode::kNotFinite);
  } else {
    ASSERT_TRUE(part);
    const auto back = *testing::decode(*codec_, part->view(), 3);
    EXPECT_TRUE(std::isnan(back[0]));
    EXPECT_EQ(back[1], kInf);
    EXPECT_EQ(back[2], -kInf);
  }
  const std::vector<float> tiny = {0x1p-133F, -0x1p-133F, -0.0F, 0.0F};
  const auto tiny_part = testing::encode(*codec_, tiny);
  ASSERT_TRUE(tiny_part);
  const auto back = *testing::decode(*codec_, tiny_part->view(), 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const int sign = (tiny[i] > 0) - (tiny[i] < 0);
    EXPECT_EQ((back[i] > 0) - (back[i] < 0), codec_->info().lossless ? sign : expected_.tiny_signs[i]) << i;
  }
  EXPECT_TRUE(expected_.tiny_signs[3] != 0 || bits_of(back[3]) == 0U);
  EXPECT_TRUE(!codec_->info().lossless || same_bits(back, tiny));
}

TEST_P(FiniteOnly, AnErrorLeavesTheResidual) {
  std::vector<float> residual = {1, kMax};
  testing::expect_refused(testing::encode(*codec_, std::vector<float>{1, kMax}, residual),
                          ErrorCode::kNotFinite, "element 1");
  EXPECT_EQ(residual, (std::vector<float>{1, kMax}));
}

TEST_P(Conformance, BuffersOneShortAreRefused) {
  const std::vector<float> values = testing::normal_values(70000, 4);
  const TensorView part{values.data(), values.size(), DType::kF32};
  const Sizes sizes = codec_->sizes(part);
  std::vector<std::byte> payload(sizes.payload_bytes);
  std::vector<std::byte> scratch(sizes.scratch_bytes);
  std::vector<std::uint32_t> ends(sizes.chunks);
  const auto code = [&](MutBytes p, std::span<std::uint32_t> e, MutBytes s) {
    std::vector<float> residual(values.size(), 0.5F);
    const auto result = codec_->encode(part, residual, {p, e}, {.scratch = s});
    EXPECT_TRUE(result.has_value() || residual == std::vector<float>(values.size(), 0.5F));
    return result ? ErrorCode{} : result.error().code;
  };
  EXPECT_EQ(code(payload, ends, scratch), ErrorCode{});
  EXPECT_EQ(code(MutBytes(payload).first(payload.size() - 1), ends, scratch), ErrorCode::kOutputTooSmall);
  EXPECT_EQ(code(payload, std::span(ends).first(ends.size() - 1), scratch), ErrorCode::kOutputTooSmall);
  if (!scratch.empty()) {
    EXPECT_EQ(code(payload, ends, MutBytes(scratch).first(scratch.size() - 1)), ErrorCode::kOutputTooSmall);
  }
}

TEST_P(Conformance, WrongArgumentsAreRefused) {
  const std::vector<float> values(8, 1.0F);
  const TensorView part{values.data(), 8, DType::kF32};
  std::vector<std::byte> memory(4096);
  std::vector<std::byte> scratch(codec_->sizes(part).scratch_bytes + kScratchAlignment);
  std::vector<std::uint32_t> ends(4);
  const auto code = [&](const TensorView& view, std::size_t residual_size, std::size_t skipped = 0) {
    std::vector<float> residual(residual_size);
    const Exec exec{.scratch = MutBytes(scratch).subspan(skipped)};
    const auto encoded = codec_->encode(view, residual, {memory, ends}, exec);
    return encoded ? ErrorCode{} : encoded.error().code;
  };
  EXPECT_EQ(code({values.data(), 8, static_cast<DType>(9)}, 0), ErrorCode::kUnsupportedDType);
  EXPECT_EQ(code(part, 7), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(part, 9), ErrorCode::kInvalidArgument);
  TensorView shaped = part;
  using Dims = std::vector<std::uint64_t>;
  for (const Dims& dims : {Dims{2, 4}, Dims{8}, Dims{2, 2, 2}}) {
    shaped.dims = dims;
    EXPECT_EQ(code(shaped, 0), ErrorCode{}) << dims.size();
  }
  for (const Dims& dims : {Dims{2, 3}, Dims{0, 8}, Dims{std::uint64_t{1} << 63, 16, 8}}) {
    shaped.dims = dims;
    EXPECT_EQ(code(shaped, 0), ErrorCode::kInvalidArgument) << dims.size();
  }
  const bool scratched = codec_->sizes(part).scratch_bytes > 0;
  EXPECT_EQ(code(part, 0, 1), scratched ? ErrorCode::kInvalidArgument : ErrorCode{});
}

TEST_P(Conformance, WrongSlotsAreRefused) {
  std::vector<std::uint16_t> halves(4096);
  std::uint32_t key = 0;
  const auto part = *testing::encode(*codec_, testing::normal_values(4096, 3));
  const auto code = [&](const TensorSlot& slot, Into into, std::size_t scratch_bytes) {
    std::vector<std::byte> scratch(scratch_bytes);
    const auto decoded = codec_->decode(part.view(), slot, into, 1, {.scratch = scratch});
    return decoded ? ErrorCode{} : decoded.error().code;
  };
  const std::size_t needed = codec_->decode_scratch({halves.data(), 4096, DType::kF16});
  EXPECT_GE(needed, 4 * halves.size());
  EXPECT_EQ(code({halves.data(), 4096, static_cast<DType>(9)}, Into::kOverwrite, needed),
            ErrorCode::kUnsupportedDType);
  EXPECT_EQ(code({halves.data(), 4096, DType::kBF16}, Into::kAccumulate, needed),
            ErrorCode::kUnsupportedDType);
  EXPECT_EQ(code({halves.data(), 4096, DType::kF16}, Into::kOverwrite, needed - 1),
            ErrorCode::kOutputTooSmall);
  EXPECT_EQ(code({halves.data(), 4096, DType::kF16}, Into::kOverwrite, needed), ErrorCode{});
  EXPECT_EQ(code({halves.data(), 4096, DType::kF32, &key, 4096}, Into::kOverwrite, 0),
            ErrorCode::kInvalidArgument);
}

// A folding revert decodes with the memory that encoding had.
TEST_P(Conformance, DecodingTakesNoMoreScratchThanEncoding) {
  for (const std::uint64_t count : kCounts) {
    const std::uint64_t needed = codec_->decode_scratch({nullptr, count, DType::kF32});
    EXPECT_LE(needed, codec_->sizes({nullptr, count, DType::kF32}).scratch_bytes) << count;
  }
}

// In 16 bits a part has the bytes and leaves the residual of its values as float32, and is decoded as these,
// rounded.
TEST_P(Conformance, SixteenBitsAreTheirFloat32) {
  constexpr std::uint64_t kCount = 70001;
  const std::vector<float> drawn = testing::normal_values(kCount, 12);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    std::vector<std::uint16_t> halves(kCount);
    std::vector<float> widened(kCount);
    {
      const FloatEnvironment environment;
      ASSERT_EQ(narrow(drawn.data(), kCount, dtype, halves.data()), kCount);
    }
    widen(halves.data(), dtype, kCount, widened.data());
    std::vector<float> residual = testing::normal_values(kCount, 13);
    std::vector<float> residual16 = residual;
    const Encoded part = *testing::encode(*codec_, widened, residual);
    const auto part16 = testing::encode_view(*codec_, {halves.data(), kCount, dtype}, residual16);
    ASSERT_TRUE(part16) << part16.error().message;
    EXPECT_EQ(part.payload, part16->payload);
    EXPECT_EQ(part.chunk_ends, part16->chunk_ends);
    EXPECT_EQ(part.scalar, part16->scalar);
    EXPECT_EQ(part.scalar2, part16->scalar2);
    EXPECT_TRUE(same_bits(residual, residual16));

    const std::vector<float> back = *testing::decode(*codec_, part.view(), kCount, Into::kOverwrite, 0.75F);
    std::vector<std::uint16_t> expected(kCount);
    narrow(back.data(), kCount, dtype, expected.data());
    const TensorSlot slot{halves.data(), kCount, dtype};
    std::vector<std::byte> scratch(codec_->decode_scratch(slot));
    ASSERT_TRUE(codec_->decode(part.view(), slot, Into::kOverwrite, 0.75F, {.scratch = scratch}));
    EXPECT_EQ(halves, expected);
  }
}

TEST(Conformance16, AValueBeyondFloat16IsNamed) {
  const auto codec = codec_of("fp32");
  const std::vector<float> values = {1, -1e6F, 1};
  const Encoded part = *testing::encode(*codec, values);
  std::uint16_t halves[3];
  std::vector<std::byte> scratch(16);
  const auto decoded =
      codec->decode(part.view(), {halves, 3, DType::kF16}, Into::kOverwrite, 1, {.scratch = scratch});
  testing::expect_refused(decoded, ErrorCode::kRange);
  EXPECT_EQ(decoded.error().message.rfind("element 1 is -1e+06, beyond float16", 0), 0U)
      << decoded.error().message;
}

TEST(Conformance16, ASumThatIsNotFiniteIsNamed) {
  const auto codec = codec_of("int8");
  const std::uint16_t halves[3] = {0x3F80, 0x7F60, 0};
  std::vector<float> residual = {0, 1e38F, 0};
  const auto part = testing::encode_view(*codec, {halves, 3, DType::kBF16}, residual);
  ASSERT_FALSE(part);
  EXPECT_EQ(part.error().message,
            "element 1 is Inf once the residual 1e+38 is added to the input 2.9774707e+38: "
            "int8 carries finite values only");
}

TEST_P(Conformance, SameBytesEveryTimeAndUnderFlushToZero) {
  std::vector<float> values = testing::normal_values(50000, 9);
  for (float& value : values) value *= 0x1p-128F;  // subnormals among them, and products that are
  const auto run = [&] {
    std::vector<float> residual(values.size(), 0x1p-147F);
    auto part = testing::encode(*codec_, values, residual);
    auto sum = testing::decode(*codec_, part->view(), values.size(), Into::kAccumulate, 0.75F, 0x1p-140F);
    auto slot = testing::decode(*codec_, part->view(), values.size(), Into::kOverwrite, 0.75F);
    return std::tuple(std::move(*part), residual, std::move(*sum), std::move(*slot));
  };
  const auto [part, residual, sum, slot] = run();
  const std::uint64_t before = FloatEnvironment::read_control();
  for (const std::uint64_t mode :
       {before, before | FloatEnvironment::kFlushToZero | FloatEnvironment::kRoundUp}) {
    FloatEnvironment::write_control(mode);
    const auto [part2, residual2, sum2, slot2] = run();
    const std::uint64_t after = FloatEnvironment::read_control();
    FloatEnvironment::write_control(before);
    EXPECT_EQ(after & mode, mode);
    EXPECT_EQ(part.payload, part2.payload);
    EXPECT_EQ(part.scalar, part2.scalar);
    EXPECT_EQ(part.scalar2, part2.scalar2);
    EXPECT_EQ(part.chunk_ends, part2.chunk_ends);
    EXPECT_TRUE(same_bits(residual, residual2));
    EXPECT_TRUE(same_bits(sum, sum2));
    EXPECT_TRUE(same_bits(slot, slot2));
  }
}

TEST_P(ChunksOfOneSize, PartsCutThereGiveTheSameChunks) {
  const std::uint64_t chunk = codec_->info().chunk_elements;
  std::vector<float> values = testing::normal_values(2 * chunk + 77, 6);
  const auto whole = *testing::encode(*codec_, values);
  const std::uint32_t cut = whole.chunk_ends[0];
  Encoded tail = whole;
  tail.payload.erase(tail.payload.begin(), tail.payload.begin() + cut);
  tail.chunk_ends = {whole.chunk_ends[1] - cut, whole.chunk_ends[2] - cut};
  if (codec_->info().scalars == 0 && !expected_.draws) {
    const TensorView behind{values.data() + chunk, chunk + 77, DType::kF32};
    EXPECT_EQ(testing::encode_view(*codec_, behind)->payload, tail.payload);
  }
  const auto back = *testing::decode(*codec_, whole.view(), values.size());
  const auto tail_back = testing::decode(*codec_, tail.view(), chunk + 77);
  ASSERT_TRUE(tail_back);
  EXPECT_TRUE(same_bits(*tail_back, std::span(back).subspan(chunk)));
}

TEST_P(SeparateChunks, AreThoseOfTheWholePart) {
  const std::uint64_t chunk = codec_->info().chunk_elements;
  std::vector<float> values = testing::normal_values(2 * chunk + 77, 6);
  std::fill(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(chunk), 0.0F);
  values[chunk + 1] = std::numeric_limits<float>::quiet_NaN();
  values[chunk + 2] = -std::numeric_limits<float>::infinity();
  const auto whole = *testing::encode(*codec_, values);
  std::vector<std::byte> joined;
  for (std::uint64_t at = 0; at < values.size(); at += chunk) {
    const std::uint64_t count = std::min<std::uint64_t>(chunk, values.size() - at);
    const std::vector<float> own(&values[at], &values[at] + count);
    const auto part = testing::encode(*codec_, own);
    ASSERT_TRUE(part) << part.error().message;
    ASSERT_EQ(part->chunk_ends.size(), 1u);
    joined.insert(joined.end(), part->payload.begin(), part->payload.end());
    EXPECT_EQ(joined.size(), whole.chunk_ends[at / chunk]);
    EXPECT_EQ(part->scalar, 0u);
  }
  EXPECT_EQ(joined, whole.payload);
}

TEST_P(WithoutKeys, PairsAreRefused) {
  const float value = 1;
  const std::uint32_t key = 0;
  const TensorView pairs{&value, 1, DType::kF32, &key, 10};
  const auto part = codec_->encode(pairs, {}, {}, {});
  testing::expect_refused(part, ErrorCode::kInvalidArgument);
  std::string expected = std::string(codec_->info().name) + " has no key-value form: give a dense tensor";
  for (const CodecInfo* info : registered_codecs()) {
    if (info->key_value) expected += ", or take " + std::string(info->name);
  }
  EXPECT_EQ(part.error().message, expected);
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const CodecInfo* info : registered_codecs()) all.emplace_back(info->name);
  return all;
}

class LongParts : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Codecs, LongParts, ::testing::ValuesIn(names()), name_of);

// Beyond the blocks in which encoders look at a part first. encode() compares residuals in place and apart.
TEST_P(LongParts, LoseNothingAndAreTheSameByThreads) {
  const std::uint64_t kCount = testing::whole_or_brief(600000U, 300000U);
  Workers workers(3);
  const auto codec = codec_of(GetParam());
  const testing::Expectation& expected = testing::expectation_of(GetParam());
  const std::vector<float> values = testing::normal_values(kCount, 21);
  const std::vector<float> before = testing::normal_values(kCount, 22);
  std::vector<float> sums(kCount);
  std::transform(values.begin(), values.end(), before.begin(), sums.begin(), std::plus<>());
  std::vector<float> left = before;
  const auto part = testing::encode(*codec, values, left);
  ASSERT_TRUE(part) << part.error().message;
  const auto back = testing::decode(*codec, part->view(), kCount);
  ASSERT_TRUE(back) << back.error().message;
  const double largest = testing::largest_magnitude(sums);
  for (std::uint64_t i = 0; i < kCount; i += 61) {
    const testing::EncodedValue value{*codec, *part, sums, i, largest};
    const double lost = expected.conservation_bound != nullptr ? expected.conservation_bound(value) : 0;
    const double decoded = back->at(i);
    ASSERT_LE(std::fabs(decoded + left[i] - sums[i]), lost) << i;
  }
  const Sizes sizes = codec->sizes({nullptr, kCount, DType::kF32});
  std::vector<std::byte> payload(sizes.payload_bytes);
  std::vector<std::byte> scratch(sizes.scratch_bytes);
  std::vector<std::uint32_t> ends(sizes.chunks);
  std::vector<float> left_by_threads(kCount);
  const auto shared = codec->encode({values.data(), kCount, DType::kF32}, {before, left_by_threads},
                                    {payload, ends}, {.stream = 3, .scratch = scratch, .workers = &workers});
  ASSERT_TRUE(shared) << shared.error().message;
  payload.resize(shared->payload_bytes);
  EXPECT_EQ(payload, part->payload);
  EXPECT_EQ(shared->scalar, part->scalar);
  EXPECT_TRUE(same_bits(left, left_by_threads));
}

TEST_P(LongParts, DependOnTheStreamWhereValuesAreDrawnAndNowhereElse) {
  const auto codec = codec_of(GetParam());
  const std::vector<float> values = testing::normal_values(70001, 8);
  const TensorView part{values.data(), values.size(), DType::kF32};
  const Encoded one = *testing::encode_view(*codec, part, {}, 5);
  const Encoded other = *testing::encode_view(*codec, part, {}, 6);
  EXPECT_EQ(one.payload != other.payload || one.scalar != other.scalar,
            testing::expectation_of(GetParam()).draws);
}

TEST(Registry, IdsNamesAndSpecsAreOfOneCodecEach) {
  int before = 0;
  std::set<std::string> specs;
  for (const CodecInfo* info : registered_codecs()) {
    EXPECT_GT(info->id, before) << info->name << " has the id of another codec, or 0";
    before = info->id;
    EXPECT_EQ(&codec_of(info->name)->info(), info);
    std::string spec(info->name);
    for (const ParameterInfo& parameter : info->parameters) {
      spec += (&parameter == info->parameters.data() ? ":" : ",") + std::string(parameter.name) + "=" +
              std::string(parameter.default_value);
    }
    // A parameter that came later is left out at its default.
    const std::string canonical = codec_of(info->name)->spec();
    EXPECT_EQ(codec_of(spec)->spec(), canonical) << "the stated defaults aren't the real ones";
    EXPECT_EQ(spec.rfind(canonical, 0), 0U) << canonical;
    EXPECT_TRUE(specs.insert(canonical).second) << "another codec has the name " << info->name;
    for (const std::string_view example : info->examples) {
      EXPECT_EQ(parse_spec(example)->name, info->name);
      const std::string own = codec_of(example)->spec();
      EXPECT_EQ(codec_of(own)->spec(), own);
      EXPECT_TRUE(specs.insert(own).second) << example << " stands twice";
    }
  }
}

}  // namespace
}  // namespace deltawire::conformance_test
