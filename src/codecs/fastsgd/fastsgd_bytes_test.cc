// The bytes of fastsgd: by hand, and against the slow model; with keys=auto, how few they are, and that all
// else is as with the paper's keys.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/fastsgd/fastsgd_threshold.h"

namespace deltawire::fastsgd_bytes_test {
namespace {

using namespace testing;
using Floats = std::vector<float>;
using Ints = std::vector<int>;

// fastsgd once more, slow and in one piece, from spec.md: what the codec's bytes are compared with. It shares
// no code with the codec.

constexpr int kLargestCode = 2047;
constexpr std::size_t kChunk = 16384;

struct Pair {
  std::uint64_t key;
  int code;
  bool negative;
};

int bits_for(std::uint64_t number) {
  int bits = 0;
  while (number >> bits != 0) ++bits;
  return bits;
}

int length_of(int flag, int longest, int l) {
  return static_cast<int>(std::ceil((flag + 1) * longest / std::pow(2.0, l)));
}

class Reader {
 public:
  explicit Reader(const std::byte* at) : at_(at) {}
  std::uint64_t get(int bits) {
    std::uint64_t number = 0;
    for (int i = 0; i < bits; ++i, ++bit_) {
      number |= (std::to_integer<std::uint64_t>(at_[bit_ / 8]) >> (bit_ % 8) & 1) << i;
    }
    return number;
  }

 private:
  const std::byte* at_;
  std::size_t bit_ = 0;
};

void append_chunk(const std::vector<Pair>& pairs, int l, std::vector<std::byte>& bytes) {
  testing::BitStream head;
  head.put(pairs.size(), 16);
  head.append_to(bytes);
  if (pairs.empty()) return;
  int base = kLargestCode;
  int highest = 0;
  std::uint64_t longest_gap = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    base = std::min(base, pairs[i].code);
    highest = std::max(highest, pairs[i].code);
    if (i > 0) longest_gap = std::max(longest_gap, pairs[i].key - pairs[i - 1].key - 1);
  }
  const int code_bits = bits_for(static_cast<std::uint64_t>(highest - base));
  const int key_bits = bits_for(longest_gap);
  testing::BitStream rest;
  rest.put(static_cast<std::uint64_t>(base), 11);
  rest.put(static_cast<std::uint64_t>(code_bits), 5);
  rest.put(static_cast<std::uint64_t>(key_bits), 8);
  rest.put(pairs[0].key, 32);
  rest.append_to(bytes);
  testing::BitStream values;
  testing::BitStream flags;
  testing::BitStream gaps;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    values.put(static_cast<std::uint64_t>(pairs[i].code - base), code_bits);
    values.put(pairs[i].negative ? 1 : 0, 1);
    if (i == 0 || key_bits == 0) continue;
    const std::uint64_t gap = pairs[i].key - pairs[i - 1].key - 1;
    int flag = 0;
    while (length_of(flag, key_bits, l) < bits_for(gap)) ++flag;
    flags.put(static_cast<std::uint64_t>(flag), l);
    gaps.put(gap, length_of(flag, key_bits, l));
  }
  values.append_to(bytes);
  flags.append_to(bytes);
  gaps.append_to(bytes);
}

struct Model {
  float b = 1.1F;
  int tau = -1;  // -1: auto
  float keep = 0.25F;
  int l = 2;

  // What L = code stands for, given the sum.
  float value(float sum, int code) const;

  // The largest L that is sent for these values.
  int threshold(const std::vector<float>& values, float sum) const;

  Encoded encode(const std::vector<float>& values) const;
  std::vector<float> decode(const Encoded& part, std::uint64_t count) const;
};

// The sum of magnitudes in the tree that spec.md states, rounded to float32.
float model_sum(const std::vector<float>& values) {
  double total = 0;
  for (std::size_t block = 0; block < values.size(); block += 65536) {
    const std::size_t end = std::min(values.size(), block + 65536);
    float largest = 0;
    for (std::size_t i = block; i < end; ++i) largest = std::max(largest, std::fabs(values[i]));
    if (largest == 0) continue;
    const int e = std::max(std::ilogb(largest), -126);
    double units = 0;
    for (std::size_t i = block; i < end; ++i) {
      units += std::floor(std::ldexp(std::fabs(static_cast<double>(values[i])), 29 - e));
    }
    total += std::ldexp(units, e - 29);
  }
  return static_cast<float>(total);
}

float Model::value(float sum, int code) const {
  double power = 1;
  for (int i = 0; i < code; ++i) power *= static_cast<double>(b);
  return static_cast<float>(static_cast<double>(sum) / power);
}

int Model::threshold(const std::vector<float>& values, float sum) const {
  int last = tau < 0 ? kLargestCode : tau;
  while (last > 0 && value(sum, last) == 0) --last;
  if (tau >= 0) return last;
  std::vector<float> sorted;
  sorted.reserve(values.size());
  for (const float x : values) sorted.push_back(std::fabs(x));
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const double wanted = std::ceil(static_cast<double>(keep) * static_cast<double>(values.size()));
  const float least = sorted[static_cast<std::size_t>(wanted) - 1];
  for (int code = 0; code < last; ++code) {
    if (value(sum, code) <= least) return code;
  }
  return last;
}

Encoded Model::encode(const std::vector<float>& values) const {
  Encoded part;
  if (values.empty()) return part;
  const float sum = model_sum(values);
  part.scalar = bits_of(sum);
  std::vector<float> table;
  if (sum > 0) {
    for (int code = 0, last = threshold(values, sum); code <= last; ++code) {
      table.push_back(value(sum, code));
    }
  }
  std::vector<Pair> pairs;
  const auto close = [&] {
    append_chunk(pairs, l, part.payload);
    part.chunk_ends.push_back(static_cast<std::uint32_t>(part.payload.size()));
    pairs.clear();
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float x = std::fabs(values[i]);
    const auto code = std::find_if(table.begin(), table.end(), [x](float v) { return v <= x; });
    if (code == table.end()) continue;
    if (pairs.size() == kChunk) close();
    pairs.push_back({i, static_cast<int>(code - table.begin()), values[i] < 0});
  }
  close();
  return part;
}

std::vector<float> Model::decode(const Encoded& part, std::uint64_t count) const {
  std::vector<float> values(count);
  std::size_t begin = 0;
  for (const std::uint32_t end : part.chunk_ends) {
    const std::byte* at = part.payload.data() + begin;
    begin = end;
    Reader head(at);
    const std::uint64_t pairs = head.get(16);
    if (pairs == 0) continue;
    const auto base = static_cast<int>(head.get(11));
    const auto code_bits = static_cast<int>(head.get(5));
    const auto key_bits = static_cast<int>(head.get(8));
    std::uint64_t key = head.get(32);
    Reader codes(at + 9);
    const std::byte* const rest = at + 9 + (pairs * static_cast<std::uint64_t>(code_bits + 1) + 7) / 8;
    Reader flags(rest);
    Reader gaps(rest + ((pairs - 1) * static_cast<std::uint64_t>(l) + 7) / 8);
    for (std::uint64_t i = 0; i < pairs; ++i) {
      if (i > 0 && key_bits == 0) key += 1;
      if (i > 0 && key_bits > 0) {
        const auto flag = static_cast<int>(flags.get(l));
        key += 1 + gaps.get(length_of(flag, key_bits, l));
      }
      const float magnitude =
          value(std::bit_cast<float>(part.scalar), base + static_cast<int>(codes.get(code_bits)));
      values[key] = codes.get(1) != 0 ? -magnitude : magnitude;
    }
  }
  return values;
}

Encoded encoded(std::string_view spec, const std::vector<float>& values) {
  return *testing::encode(*codec_of(spec), values);
}

Ints coded(std::string_view spec, const std::vector<float>& values) {
  return to_ints(encoded(spec, values).payload);
}

// Fig. 3 of the paper: the longest delta key is 232, and the last key, 578, has delta 3. Written as gaps
// (delta - 1): M = 8 bits for 231; lengths 2, 4, 6, 8; the last gap is flag 00 and 2 in 2 bits.
TEST(FastsgdBytes, PaperFigure3) {
  std::vector<float> x(1000, 0.0F);
  x[343] = 4;   // L = 1 of sum 8
  x[575] = -2;  // L = 2, delta 232
  x[578] = 2;   // L = 2, delta 3
  const Encoded part = encoded("fastsgd:b=2,tau=128,l=2", x);
  EXPECT_EQ(part.scalar, bits_of(8.0F));
  const int codes = 0b00 | 0b11 << 2 | 0b01 << 4;  // L - 1 in one bit, then the sign
  const int flags = 0b11 | 0b00 << 2;              // of 8 bits and of 2
  EXPECT_EQ(to_ints(part.payload),
            (Ints{3, 0, 0x01, 0x08, 8, 343 & 255, 343 >> 8, 0, 0, codes, flags, 231, 2}));
}

// Fig. 2 of the paper: b = 2; R = 6.1 has L = 3.
TEST(FastsgdBytes, PaperFigure2) {
  const std::vector<float> x = {1, 5.1F};
  EXPECT_EQ(coded("fastsgd:b=2,tau=128", x), (Ints{2, 0, 0x01, 0x10, 0, 0, 0, 0, 0, 0b000'010}));
  const auto back =
      *testing::decode(*codec_of("fastsgd:b=2,tau=128"), encoded("fastsgd:b=2,tau=128", x).view(), 2);
  EXPECT_EQ(back, (std::vector<float>{6.1F / 8, 6.1F / 2}));
}

TEST(FastsgdBytes, NothingToSendIsTheCountAlone) {
  EXPECT_EQ(coded("fastsgd", {0, -0.0F, 0}), (Ints{0, 0}));
  EXPECT_EQ(encoded("fastsgd", {0, 0}).scalar, 0U);
  EXPECT_EQ(coded("fastsgd", {}), Ints{});
  // All below sum / b^tau: the sum goes out nevertheless.
  const Encoded part = encoded("fastsgd:b=2,tau=1", {1, 1, 1, 1});
  EXPECT_EQ(to_ints(part.payload), (Ints{0, 0}));
  EXPECT_EQ(part.scalar, bits_of(4.0F));
}

// Values as gradients have them, and as they don't.
std::vector<float> drawn_values(CounterRng& random) {
  const std::uint64_t count = 1 + random.next() % (random.next() % 8 == 0 ? 40000 : 300);
  const double nonzero = random.next_uniform();
  const double spread = random.next_uniform() * 30;                   // powers of 2 between values
  const double unit = std::exp2(-150 + 230 * random.next_uniform());  // subnormals, too
  const bool few = random.next() % 4 == 0;                            // few different values: ties
  std::vector<float> values(count);
  for (float& value : values) {
    if (random.next_uniform() > nonzero) continue;
    double x =
        unit * std::exp2(spread * (few ? std::floor(random.next_uniform() * 3) / 3 : random.next_uniform()));
    if (random.next() % 2 == 0) x = -x;
    value = static_cast<float>(x);
  }
  return values;
}

TEST(FastsgdBytes, EqualTheSlowModel) {
  CounterRng random(42);
  for (int round = 0; round < 400; ++round) {
    const std::vector<float> values = drawn_values(random);
    Model model;
    constexpr float kBases[] = {1.02F, 1.03625F, 1.1F, 1.5F, 1.9999F, 2.0F};
    model.b = kBases[random.next() % 6];
    model.l = static_cast<int>(1 + random.next() % 5);
    model.keep = 0.001F + 0.99F * static_cast<float>(random.next_uniform());
    if (random.next() % 2 == 0) model.tau = static_cast<int>(1 + random.next() % 300);
    char spec[128];
    std::snprintf(spec, sizeof spec, "fastsgd:b=%.9g,keep=%.9g,l=%d,tau=%s", static_cast<double>(model.b),
                  static_cast<double>(model.keep), model.l,
                  model.tau < 0 ? "auto" : std::to_string(model.tau).c_str());
    const Encoded part = encoded(spec, values);
    const Encoded expected = model.encode(values);
    ASSERT_EQ(part.scalar, expected.scalar) << spec;
    ASSERT_EQ(part.chunk_ends, expected.chunk_ends) << spec << " round " << round;
    ASSERT_EQ(part.payload, expected.payload) << spec << " round " << round;
    const auto back = testing::decode(*codec_of(spec), part.view(), values.size());
    ASSERT_TRUE(back) << back.error().message;
    ASSERT_TRUE(same_bits(*back, model.decode(part, values.size()))) << spec;
  }
}

std::vector<float> there_and_back(std::string_view spec, const std::vector<float>& values) {
  const auto codec = codec_of(spec);
  return *testing::decode(*codec, testing::encode(*codec, values)->view(), values.size());
}

// A value on a threshold has that code, one ulp below it the next: for every code of the paper's setting.
TEST(Fastsgd, ThresholdsAreExact) {
  const Model model{.b = 1.1F, .tau = 128};
  constexpr float kSum = 0x1p20F;
  for (int code = 2; code <= 128; ++code) {
    const float edge = model.value(kSum, code);
    for (const float x : {edge, std::nextafter(edge, 0.0F), std::nextafter(edge, kSum)}) {
      const std::vector<float> values = {kSum - x, x};
      ASSERT_EQ(model_sum(values), kSum) << code;
      const float expected = x >= edge ? edge : code < 128 ? model.value(kSum, code + 1) : 0.0F;
      ASSERT_EQ(there_and_back("fastsgd:tau=128", values)[1], expected) << code;
    }
  }
}

// With 2^24 among them, a block's magnitudes are counted in 2^-5; what is less is dropped from each. Blocks
// are added in float64.
TEST(FastsgdBytes, TheSumIsOfWholeUnitsInEachBlock) {
  const auto sum_of = [](const std::vector<std::pair<std::size_t, float>>& values) {
    std::vector<float> x(3 * 65536 + 5, 0.0F);
    std::vector<float> given;
    std::vector<std::uint32_t> keys;
    for (const auto& [at, value] : values) {
      x[at] = value;
      keys.push_back(static_cast<std::uint32_t>(at));
      given.push_back(value);
    }
    const std::vector<float> zeros(x.size(), 0.0F);
    const auto& kernels = fastsgd::kernels_for(TargetId::kReference);
    const double sum = kernels.sum({x.data(), nullptr, nullptr, nullptr, x.size()}).sum;
    EXPECT_EQ(kernels.sum({x.data(), zeros.data(), nullptr, nullptr, x.size()}).sum, sum);
    EXPECT_EQ(kernels.sum({zeros.data(), x.data(), nullptr, nullptr, x.size()}).sum, sum);
    const fastsgd::Totals of_pairs = kernels.sum({given.data(), nullptr, nullptr, keys.data(), given.size()});
    EXPECT_EQ(of_pairs.sum, sum);
    std::uint32_t least = 0x7FFFFFFF;
    for (const float each : given) {
      if (each != 0) least = std::min(least, bits_of(std::fabs(each)));
    }
    EXPECT_EQ(of_pairs.least, least);
    EXPECT_EQ(static_cast<float>(sum), model_sum(x));
    return sum;
  };
  EXPECT_EQ(sum_of({{0, 0x1p24F}, {1, 0x1p-5F}}), 0x1p24 + 0x1p-5);
  EXPECT_EQ(sum_of({{0, 0x1p24F}, {1, 0.0F}, {2, -0.0F}, {3, 0x1p-5F}}), 0x1p24 + 0x1p-5);
  EXPECT_EQ(sum_of({{0, 0x1.fffffep24F}, {65535, -0x1.8p-5F}}), 0x1.fffffep24 + 0x1p-5);
  EXPECT_EQ(sum_of({{0, 0x1p24F}, {1, 0x1.fffffep-6F}, {2, 0x1p-6F}}), 0x1p24) << "each is dropped";
  EXPECT_EQ(sum_of({{65535, 0x1p24F}, {65536, 0x1.8p-6F}}), 0x1p24 + 0x1.8p-6) << "another block";
  EXPECT_EQ(sum_of({{1, 0x1.8p-6F}, {65536, 0x1p24F}, {65537, 0x1p-6F}}), 0x1p24 + 0x1.8p-6);
  EXPECT_EQ(sum_of({{0, 1.0F}, {65536, 0x1p-53F}, {65537, 0x1p-53F}}), 1 + 0x1p-52) << "a block's at once";
  EXPECT_EQ(sum_of({{0, 1.0F}, {65536, 0x1p-53F}, {131072, 0x1p-53F}}), 1) << "block by block";
  for (const float least : {0x1p-149F, 0x1.8p-148F, 0x1p-126F, 0x1.8p-120F, 0x1.fffffep127F}) {
    EXPECT_EQ(sum_of({{7, least}, {65534, -least}}), 2 * static_cast<double>(least));
    EXPECT_EQ(sum_of({{7, least}, {9, 0x1p-149F}}),
              static_cast<double>(least) + (least < 0x1p-96F ? 0x1p-149 : 0));
  }
}

TEST(FastsgdBytes, TheSumOfManyIsTheSpecs) {
  CounterRng random(5);
  for (const std::size_t count : {1U, 15U, 16U, 17U, 100U, 65536U, 65537U, 150000U}) {
    std::vector<float> x(count);
    std::vector<std::uint32_t> keys(count);
    for (std::size_t i = 0; i < count; ++i) {
      const int exponent =
          random.next() % (count / 4 + 1) == 0 ? 53 : 40 - static_cast<int>(random.next() % 60);
      x[i] = std::ldexp(1 + static_cast<float>(random.next_uniform()), exponent);
      // The first and the last of a block count in their own block's units alone.
      if (count > 1000 && (i + 1) % 65536 <= 1) x[i] = 0x1.fffffep22F;
      if (random.next() % 2 == 0) x[i] = -x[i];
      keys[i] = static_cast<std::uint32_t>(i);
    }
    const auto& kernels = fastsgd::kernels_for(TargetId::kReference);
    const double sum = kernels.sum({x.data(), nullptr, nullptr, nullptr, count}).sum;
    EXPECT_EQ(static_cast<float>(sum), model_sum(x)) << count;
    EXPECT_EQ(kernels.sum({x.data(), nullptr, nullptr, keys.data(), count}).sum, sum) << count;
    std::vector<float> others;  // keys that don't begin with 0 and aren't all there
    keys.clear();
    for (std::size_t i = 5; i < count; i += 1 + i % 3) {
      others.push_back(x[i]);
      keys.push_back(static_cast<std::uint32_t>(i));
    }
    std::vector<float> dense(count, 0.0F);
    for (std::size_t i = 0; i < keys.size(); ++i) dense[keys[i]] = others[i];
    EXPECT_EQ(kernels.sum({others.data(), nullptr, nullptr, keys.data(), keys.size()}).sum,
              kernels.sum({dense.data(), nullptr, nullptr, nullptr, count}).sum)
        << count;
  }
}

// The guess depends on a sample; the code that is found does not.
// All values are wanted, but one is below every code: the smallest value that has a code decides.
TEST(FastsgdBytes, TheCodeForAllIsThatOfTheSmallestSent) {
  const std::vector<double> powers{1, 2, 4, 8};
  const fastsgd::CodeScale scale{2, powers.data()};
  const std::vector<float> x{1, 0.5F, 0x1p-40F};
  const PairInput input{.in = x.data(), .count = x.size()};
  const fastsgd::Kernels& kernels = fastsgd::kernels_for(TargetId::kReference);
  EXPECT_EQ(fastsgd::code_for_all(kernels, input, scale, 3, bits_of(0x1p-40F)), 2U);
  EXPECT_EQ(fastsgd::code_for_all(kernels, input, scale, 3, bits_of(0.5F)), 2U);
}

TEST(FastsgdBytes, TheCodeForAShareIsTheSmallest) {
  std::vector<double> powers(41, 1.0);
  for (std::size_t code = 1; code < powers.size(); ++code) powers[code] = 2 * powers[code - 1];
  CounterRng random(6);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::size_t count = 1 + random.next() % 40;
    std::vector<float> x(count, 0.0F);
    const bool alone = random.next() % 4 == 0;  // one value is the sum: code 0
    double sum = 0;
    const std::size_t first = alone ? random.next() % count : 0;
    for (std::size_t i = first; i < (alone ? first + 1 : count); ++i) {
      x[i] = std::ldexp(1.0F, -static_cast<int>(random.next() % 12));  // many on the very value of a code
      sum += static_cast<double>(x[i]);
    }
    sum = std::exp2(std::ceil(std::log2(sum)));
    const fastsgd::CodeScale scale{sum, powers.data()};
    const std::uint64_t wanted = 1 + random.next() % count;
    const auto last = static_cast<std::uint32_t>(random.next() % 41);
    std::uint32_t expected = 0;
    const auto enough = [&](std::uint32_t code) {
      const auto reached = [&](float value) { return bits_of(value) >= scale.bits(code); };
      return static_cast<std::uint64_t>(std::count_if(x.begin(), x.end(), reached)) >= wanted;
    };
    while (expected < last && !enough(expected)) ++expected;
    std::vector<float> sample(1 + random.next() % 4);
    const PairInput input{x.data(), nullptr, nullptr, nullptr, count};
    ASSERT_EQ(fastsgd::code_for_share(fastsgd::kernels_for(TargetId::kReference), input, scale, wanted, last,
                                      sample),
              expected)
        << trial;
  }
}

TEST(FastsgdBytes, EveryValueCountsInLongParts) {
  for (const std::uint64_t count : {65535U, 65536U, 65537U, 200001U}) {
    std::vector<float> values = testing::normal_values(count, count);
    for (std::size_t i = 65535; i < count; i += 65536) values[i] = 1e4F;
    for (std::size_t i = 0; i < count; i += 65536) values[i] = -2e4F;
    const Encoded part = encoded("fastsgd", values);
    const Encoded expected = Model{}.encode(values);
    EXPECT_EQ(part.scalar, expected.scalar) << count;
    EXPECT_EQ(part.payload, expected.payload) << count;
  }
}

// The sample that guesses the threshold takes every third of these values. Where it sees only large or only
// small ones the search has a long way to go, and ends at the same code: also where a code has exactly as
// many values as are wanted.
TEST(FastsgdBytes, AMisleadingSampleChangesNothing) {
  constexpr std::uint64_t kCount = 40000;
  for (const bool sees_large : {true, false}) {
    std::vector<float> values = testing::normal_values(kCount, 8);
    for (std::size_t i = 0; i < kCount; ++i) values[i] *= (i % 3 == 0) == sees_large ? 0x1p20F : 1.0F;
    const float sum = model_sum(values);
    for (int code = 95; code < 300; code += 7) {
      Model model;
      const float edge = model.value(sum, code);
      const auto wanted =
          std::count_if(values.begin(), values.end(), [edge](float x) { return std::fabs(x) >= edge; });
      if (wanted == 0) continue;
      model.keep =
          std::min(std::nextafter(static_cast<float>(static_cast<double>(wanted) / kCount), 0.0F), 0.9999F);
      char spec[64];
      std::snprintf(spec, sizeof spec, "fastsgd:keep=%.9g", static_cast<double>(model.keep));
      ASSERT_EQ(encoded(spec, values).payload, model.encode(values).payload) << code << " " << spec;
    }
  }
}

// Pairs of ones at the keys.
Pairs ones_at(std::vector<std::uint32_t> keys, std::uint64_t dimension) {
  Pairs pairs;
  pairs.values.assign(keys.size(), 1.0F);
  pairs.keys = std::move(keys);
  pairs.dimension = dimension;
  return pairs;
}

Encoded encoded(std::string_view spec, const Pairs& pairs) {
  const TensorView view{pairs.values.data(), pairs.values.size(), DType::kF32, pairs.keys.data(),
                        pairs.dimension};
  return *testing::encode_view(*codec_of(spec), view);
}

// The tensor of FastsgdBytes.PaperFigure3. Gaps of 231 and 2 in Rice codes of 6 low bits: 1110 and 39, 0 and
// 2.
TEST(FastsgdPositions, PaperFigure3) {
  Floats x(1000, 0.0F);
  x[343] = 4;
  x[575] = -2;
  x[578] = 2;
  const Encoded part = encoded("fastsgd:b=2,tau=128,keys=auto", x);
  EXPECT_EQ(part.scalar, bits_of(8.0F));
  const int values = 0b00 | 0b11 << 2 | 0b01 << 4;
  EXPECT_EQ(to_ints(part.payload),
            (Ints{0x01, 0x08, 6, 3, 0, 343 & 255, 343 >> 8, 0, 0, 0x77, 0x12, 0x00, values}));
  EXPECT_EQ(*testing::decode(*codec_of("fastsgd:b=2,tau=128,keys=auto"), part.view(), 1000), x);
}

// In a row between its ends a key needs no bits: the second code is the shorter one.
TEST(FastsgdPositions, KeysInARow) {
  const Floats x(40, -1.0F);
  const Encoded part = encoded("fastsgd:b=2,tau=128,keys=auto", x);
  // sum = 40, L = 6: V = 0.625. Forty signs.
  EXPECT_EQ(to_ints(part.payload),
            (Ints{6, 0, 31, 40, 0, 0, 0, 0, 0, 39, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}));
}

TEST(FastsgdPositions, NothingToSend) {
  for (const Floats& x : {Floats{0, -0.0F}, Floats(3, 0.0F)}) {
    EXPECT_EQ(to_ints(encoded("fastsgd:keys=auto", x).payload), (Ints{0, 0, 0, 0, 0}));
  }
  EXPECT_TRUE(encoded("fastsgd:keys=auto", Floats{}).payload.empty());
  EXPECT_EQ(to_ints(encoded("fastsgd:keys=auto", ones_at({}, 1000)).payload), (Ints{0, 0, 0, 0, 0}));
}

// Which pairs are sent, what they become and what is left do not hang on how keys are coded.
TEST(FastsgdPositions, ValuesAreThoseOfThePapersKeys) {
  for (const std::size_t count : {1U, 2U, 255U, 256U, 257U, 16384U, 16385U, 70000U}) {
    for (const char* const spec : {"fastsgd:tau=96", "fastsgd:keep=0.9,residual=on", "fastsgd:b=2,l=5"}) {
      const Floats values = testing::normal_values(count, count);
      Floats left[2] = {Floats(count, 0.125F), Floats(count, 0.125F)};
      Encoded parts[2];
      Floats back[2];
      for (const std::size_t i : {0U, 1U}) {
        const auto codec = codec_of(std::string(spec) + (i == 0 ? "" : ",keys=auto"));
        parts[i] = *testing::encode(*codec, values, left[i]);
        back[i] = *testing::decode(*codec, parts[i].view(), count, Into::kAccumulate, 0.3F, 0.7F);
      }
      SCOPED_TRACE(std::string(spec) + " " + std::to_string(count));
      ASSERT_EQ(parts[0].scalar, parts[1].scalar);
      ASSERT_EQ(parts[0].chunk_ends.size(), parts[1].chunk_ends.size());
      ASSERT_TRUE(testing::same_bits(left[0], left[1]));
      ASSERT_TRUE(testing::same_bits(back[0], back[1]));
    }
  }
}

std::uint64_t section_bits(std::string_view spec, const Encoded& part, std::uint64_t count,
                           std::string_view name) {
  std::vector<Section> sections;
  EXPECT_TRUE(codec_of(spec)->describe(part.view(), count, sections));
  for (const Section& section : sections) {
    if (section.name == name) return section.bits;
  }
  return 0;
}

TEST(FastsgdPositions, SectionsAreOfTheChunk) {
  constexpr std::string_view kSpec = "fastsgd:b=2,tau=128,keys=auto";
  Floats x(1000, 0.0F);
  x[343] = 4;
  x[575] = -2;
  x[578] = 2;
  const Encoded part = encoded(kSpec, x);
  EXPECT_EQ(section_bits(kSpec, part, 1000, "chunk heads"), 72U);
  EXPECT_EQ(section_bits(kSpec, part, 1000, "keys"), 24U);
  EXPECT_EQ(section_bits(kSpec, part, 1000, "values"), 8U);
  const Encoded row = encoded(kSpec, Floats(40, -1.0F));
  EXPECT_EQ(section_bits(kSpec, row, 40, "chunk heads"), 104U);
  EXPECT_EQ(section_bits(kSpec, row, 40, "keys"), 0U);
  constexpr std::string_view kFlags = "fastsgd:b=2,tau=128";
  const Encoded flags = encoded(kFlags, x);
  EXPECT_EQ(section_bits(kFlags, flags, 1000, "chunk heads"), 72U);
  EXPECT_EQ(section_bits(kFlags, flags, 1000, "keys"), 24U);
  EXPECT_EQ(section_bits(kFlags, flags, 1000, "values"), 8U);
}

// Keys at the end of what 32 bits can count, and the tensor beyond.
TEST(FastsgdPositions, TheLargestTensor) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
  constexpr std::string_view kSpec = "fastsgd:b=2,keys=auto";
  const Pairs pairs = ones_at({0, 0xFFFFFFFD, 0xFFFFFFFE}, kMost);
  const Encoded part = encoded(kSpec, pairs);
  Floats values(3);
  std::vector<std::uint32_t> keys(3);
  const TensorSlot slot{values.data(), 3, DType::kF32, keys.data(), kMost};
  ASSERT_TRUE(codec_of(kSpec)->decode_pairs(part.view(), slot, 1));
  EXPECT_EQ(keys, pairs.keys);
  const TensorView beyond{pairs.values.data(), 3, DType::kF32, pairs.keys.data(), kMost + 1};
  const auto refused = testing::encode_view(*codec_of("fastsgd:b=2"), beyond);
  EXPECT_TRUE(refused) << "the paper's keys know no such bound";
  EXPECT_EQ(codec_of(kSpec)->sizes(beyond).payload_bytes, std::numeric_limits<std::uint64_t>::max());
}

TEST(FastsgdPositions, Specs) {
  constexpr std::string_view kPlain = "fastsgd:b=1.1,tau=auto,keep=0.25,l=2,residual=off";
  EXPECT_EQ(codec_of("fastsgd:keys=flags")->spec(), kPlain);
  EXPECT_EQ(codec_of("fastsgd:keys=auto")->spec(), std::string(kPlain) + ",keys=auto");
}

}  // namespace
}  // namespace deltawire::fastsgd_bytes_test
