// What both kinds of means have in common: those of a part (onebit.cc) and of columns (onebit_columns.cc).
#pragma once

#include <cstdint>
#include <memory>

#include "base/checked.h"
#include "codecs/onebit/onebit_ops.h"
#include "deltawire/codec.h"

namespace deltawire::onebit {

inline constexpr std::uint64_t kChunkElements = 65536;
inline constexpr std::uint64_t kChunkBytes = kChunkElements / 8;

inline constexpr ParameterInfo kParameters[] = {
    {"means", "part or column", "part",
     "whose means travel: those of a whole part, or of a matrix's columns"},
};

inline constexpr std::string_view kExamples[] = {"onebit:means=column"};

// Means of columns stand in a chunk of their own, so that such parts are never cut.
constexpr CodecInfo info_with(bool columns) noexcept {
  return {
      .id = 9,
      .name = "onebit",
      .summary = "signs and the mean of each side, with error feedback: 32x smaller",
      .source = "Seide, Fu, Droppo, Li, Yu: 1-Bit Stochastic Gradient Descent (Interspeech 2014), section 3",
      .parameters = kParameters,
      .examples = kExamples,
      .default_pattern = "direct",
      .error_feedback = true,
      .finite_only = true,
      .scalars = static_cast<std::uint8_t>(columns ? 0 : 2),
      .chunk_elements = columns ? 0 : kChunkElements,
  };
}

inline std::uint64_t bytes_of(std::uint64_t count) noexcept {
  return ceil_div(count, 8);
}

// The means of `count` values with these sides; +0 for a side without any.
Means means_of(const Sides& sides, std::uint64_t count) noexcept;

// Whether an encoder could have written these bits of means: kCorrupt.
Status check_means(std::uint32_t high, std::uint32_t low);

// Whether no bit follows the last of `count` elements: kCorrupt. REQUIRES: a payload that ends with bits.
Status check_padding(const PartView& in, std::uint64_t count);

// means=column.
std::unique_ptr<const Codec> make_with_columns(const Kernels& kernels);

}  // namespace deltawire::onebit
