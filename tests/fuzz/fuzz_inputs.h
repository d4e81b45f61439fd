// What the harnesses and make_corpus must agree on: which settings the first byte of an input chooses.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/codec.h"
#include "deltawire/policy.h"
#include "deltawire/tensor.h"

namespace deltawire::fuzz {

// Every codec as it is by default, and its examples.
inline std::vector<std::string> codec_specs() {
  std::vector<std::string> specs;
  for (const CodecInfo* info : registered_codecs()) {
    specs.emplace_back(info->name);
    specs.insert(specs.end(), info->examples.begin(), info->examples.end());
  }
  return specs;
}

// Of make_channel alone: what stands behind a codec, rules, and the recipes.
inline constexpr std::array<std::string_view, 5> kRulesSpecs{
    "topk:k=10% with clip=2,momentum=0.9,masking=on", "w elements<=400 step<9: 3lc with decay=0.5, rest sbc",
    "dgc:p=1%,clip=2,warmup=8", "sparseloco:k=10%", "muloco"};

// Of every kind of channel: each codec for all, then rules.
inline std::vector<std::string> channel_specs() {
  std::vector<std::string> specs = codec_specs();
  specs.insert(specs.end(), kRulesSpecs.begin(), kRulesSpecs.end());
  return specs;
}

inline constexpr std::array<std::string_view, 4> kReducerSpecs{"direct(fp32)", "direct(3lc)", "ring(gcomp)",
                                                               "gather(sbc:p=0.1)"};
inline constexpr std::array<std::string_view, 4> kOptimizerSpecs{"sgd", "momentum", "adagrad", "adam"};

// The element `first byte` of a list, whatever it is.
template <class List>
std::size_t choice(std::uint8_t byte, const List& list) {
  return byte % list.size();
}

// Two tensors: one that is coded, one small enough to go raw.
struct Tensors {
  std::vector<float> large = std::vector<float>(400, 0.0F);
  std::vector<float> small = std::vector<float>(5, 0.0F);

  std::vector<Named> named() {
    return {{"w", {large.data(), large.size(), DType::kF32}, 0},
            {"b", {small.data(), small.size(), DType::kF32}, 0}};
  }
};

// And what frames of version 2 are for: raw ones that follow each other, sums of 16-bit tensors.
struct ManyTensors : Tensors {
  std::vector<float> second = std::vector<float>(3, 0.5F);
  std::vector<float> halves = std::vector<float>(90, 0.3F);

  std::vector<Named> named() {
    std::vector<Named> all = Tensors::named();
    all.push_back({"c", {second.data(), second.size(), DType::kF32}, 0});
    all.push_back(
        {.name = "h", .tensor = {halves.data(), halves.size(), DType::kF32}, .summed_dtype = DType::kBF16});
    return all;
  }
};

// Payloads of so many values and more reach what short ones don't: several chunks and blocks, and the
// vectors' lanes of gcomp. They take long, so that each goes to one codec alone.
inline constexpr std::uint64_t kLongCount = 70000;
// Upper bits of the number of chunks that mark one. The codec's number is the next byte, and two u32 follow:
// the ends of the first two chunks.
inline constexpr std::uint8_t kLongMark = 0xFC;
inline constexpr std::size_t kShortHead = 12;
inline constexpr std::size_t kLongHead = kShortHead + 8;

inline constexpr std::uint64_t kMinElements = 8;
// Of messages: those that say nothing but "not finite" are among them.
inline constexpr Policy kMessagePolicy{kMinElements, NonFinite::kPass};

}  // namespace deltawire::fuzz
