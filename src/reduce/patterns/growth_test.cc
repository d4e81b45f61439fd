// What codecs make of noise that stays as it is, step after step: nothing that grows without end in any
// pattern that takes them. The lines that this prints are in docs/reference/algorithms.md ("What a codec
// amplifies").
#include <algorithm>
#include <cctype>
#include <cmath>
#include <iostream>
#include <iterator>
#include <numbers>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/refusal_testing.h"
#include "codecs/codec_testing.h"
#include "deltawire/reducer.h"
#include "reduce/sequential_testing.h"

namespace deltawire::growth_test {
namespace {

using testing::Tensors;

constexpr int kWorld = 8;
constexpr std::uint64_t kSteps = 400;
constexpr std::uint64_t kCount = 300;  // above Policy::min_elements

// All codecs, and their parameters' limits where values could grow. Of those that lose nothing, which are
// alike, fp32.
std::vector<std::string> codecs() {
  std::vector<std::string> all = testing::every_spec();
  std::erase_if(
      all, [](const std::string& spec) { return spec != "fp32" && (*make_codec(spec))->info().lossless; });
  std::istringstream extremes(
      "3lc:s=0.5 3lc:s=0.76 3lc:pull=0.5 3lc:s=1.01 3lc:s=1.9 3lc:s=1.99 sbc:p=0.000001 sbc:p=0.999 "
      "sbc:pull=30% topk:pull=30% fastsgd:b=2,residual=on fastsgd:keep=0.000001,residual=on "
      "randomk:k=0.01,unbiased=on randomk:k=0.99,unbiased=on randomk:k=0.000001 terngrad:clip=1 "
      "terngrad:clip=99 qsgd:levels=1 qsgd:levels=4 qsgd:levels=30 qsgd:levels=31 "
      "qsgd:levels=2,bucket=64 qsgd:levels=65535,bucket=65536 topk:k=0.000001 topk:k=0.99,values=bf16 "
      "threshold:t=100 threshold:t=0.000001 dropping:k=0.000001 dropping:k=0.99 "
      "fp8:format=e5m2,block=1024 fp4:format=e3m0,block=1024 blockint:bits=4,block=4096 truncate:bits=10 "
      "gcomp:cut=12 logquant:bits=1 logquant:bits=1,base=sqrt2 logquant:bits=8,base=sqrt2 "
      "sketchml:q=2,r=2,rows=1,cols=0.05 sketchml:q=512,r=32,rows=4,cols=1 twobit:t=0.01 twobit:t=100");
  all.insert(all.end(), std::istream_iterator<std::string>(extremes), {});
  return all;
}

std::string codec_name(const ::testing::TestParamInfo<std::string>& chosen) {
  std::string name = chosen.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

std::vector<float> draw_noise(std::uint64_t stream) {
  const CounterRng random(stream);
  std::vector<float> values;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - random.uniform_at(2 * i)));
    values.push_back(
        static_cast<float>(radius * std::cos(2 * std::numbers::pi * random.uniform_at(2 * i + 1))));
  }
  return values;
}

// The ranks' gradients of every step. Drawn once: logarithms take longer than most codecs.
const std::vector<std::vector<Tensors>>& noise() {
  static const std::vector<std::vector<Tensors>> drawn = [] {
    std::vector<std::vector<Tensors>> steps(kSteps);
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      for (std::uint64_t rank = 0; rank < kWorld; ++rank) {
        steps[step].push_back({draw_noise(kWorld * step + rank)});
      }
    }
    return steps;
  }();
  return drawn;
}

// The largest magnitude of any step's mean, of gradients whose own is 4 or so.
float largest_mean(const std::string& spec) {
  const auto reference = testing::make_sequential(spec, kWorld);
  float largest = 0;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    const Tensors means = reference->mean(noise()[step], step);
    for (const float value : means[0]) {
      EXPECT_TRUE(std::isfinite(value));
      largest = std::max(largest, std::abs(value));
    }
  }
  return largest;
}

class Growth : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Codecs, Growth, ::testing::ValuesIn(codecs()), codec_name);

// A residual that travels at last is a sum of many steps' noise, which nobody needs to bound more closely.
// Beyond that a codec multiplies by its gain at most, as often as a value is coded.
TEST_P(Growth, NoiseStaysBounded) {
  constexpr double kSumOfSteps = 25;
  const auto codec = make_codec(GetParam());
  ASSERT_TRUE(codec) << codec.error().message;
  const double gain = std::isfinite((*codec)->gain()) ? (*codec)->gain() : 1;
  for (const auto& [pattern, codings] : {std::pair{"direct", 2}, {"ring", 0}, {"gather", 1}}) {
    const std::string spec = std::string(pattern) + "(" + GetParam() + ")";
    const auto reducer = make_reducer(spec);
    if (!reducer) {
      EXPECT_STREQ(pattern, "ring") << reducer.error().message;
      continue;
    }
    const float largest = largest_mean(spec);
    std::cout << spec << ": " << largest << "\n";
    EXPECT_LE(largest, kSumOfSteps * std::pow(gain, codings)) << spec;
  }
}

TEST(Gain, FollowsFromTheParameters) {
  const auto gain = [](const char* spec) { return (*make_codec(spec))->gain(); };
  EXPECT_EQ(gain("3lc"), 2);
  EXPECT_EQ(gain("3lc:s=0.5"), 1);
  EXPECT_EQ(gain("3lc:s=1.75"), 14);
  EXPECT_EQ(gain("qsgd:levels=1,bucket=64"), 3);  // 1 + sqrt(64) is the smaller of two
  EXPECT_EQ(gain("qsgd:levels=16,bucket=64"), std::sqrt(1.25));
  EXPECT_EQ(gain("qsgd:levels=1,norm=max"), 1);
  EXPECT_EQ(gain("randomk:k=0.5,unbiased=on"), 2);
  EXPECT_EQ(gain("randomk:k=0.5"), 1);
  EXPECT_EQ(gain("natural"), std::sqrt(1.125));
  EXPECT_EQ(gain("signsgd:feedback=off"), 1);
  EXPECT_TRUE(std::isinf(gain("signsgd:feedback=off,scale=one")));
  EXPECT_EQ(gain("int8"), 1);
}

// At each hop anew: 8 ranks made 3lc's means 258,000 times the noise at s=1.75, and 300 times at s=1.
TEST(Gain, OfMoreThanOneIsRefusedByTheRing) {
  for (const char* codec : {"3lc", "3lc:s=1.75", "qsgd", "qsgd:levels=1", "qsgd:levels=30",
                            "randomk:k=0.99,unbiased=on", "signsgd:feedback=off,scale=one"}) {
    testing::expect_refused(make_reducer("ring(" + std::string(codec) + ")"), ErrorCode::kInvalidArgument);
    EXPECT_TRUE(make_reducer("direct(" + std::string(codec) + ")")) << codec;
  }
  EXPECT_TRUE(make_reducer("ring(qsgd:levels=31)"));
  EXPECT_TRUE(make_reducer("ring(3lc:s=0.76)"));
  EXPECT_TRUE(make_reducer("ring(qsgd:levels=1,norm=max)"));
  // Of rules the one that gains most, in whatever step.
  EXPECT_EQ(make_reducer("ring(conv* step<10: 3lc:s=1.75, fc*: 3lc, rest fp32)").error().message,
            "ring(conv* step<10: 3lc:s=1.75, fc*: 3lc, rest fp32) codes a sum anew at each hop, and "
            "3lc:s=1.75,mode=auto,runs=on multiplies it by up to 14.0 each time; take direct(conv* step<10: "
            "3lc:s=1.75, fc*: 3lc, rest fp32) or gather");
  EXPECT_NE(make_reducer("ring(signsgd:feedback=off,scale=one)").error().message.find("by any factor"),
            std::string::npos);
}

}  // namespace
}  // namespace deltawire::growth_test
