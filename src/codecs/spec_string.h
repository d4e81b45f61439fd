// The parameters of a codec's spec string (base/spec_text.h takes the text apart).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/spec_text.h"
#include "deltawire/codec.h"
#include "deltawire/result.h"

namespace deltawire {

// kInvalidArgument for a key that isn't among the `known`; the message lists those that are.
Status check_parameter_names(const ParsedSpec& spec, std::span<const ParameterInfo> known);

// `low` <= value < `high`, or the default where the spec doesn't name the key.
struct FloatRange {
  float low = 0;
  float high = 0;
  float default_value = 0;
};

// The parameter `key` as float32, rounded to nearest. kInvalidArgument if it isn't a number in the range.
Result<float> float_parameter(const ParsedSpec& spec, std::string_view key, const FloatRange& range);

// The same for a fraction, which may also be given in percent: "1%" is "0.01".
Result<float> fraction_parameter(const ParsedSpec& spec, std::string_view key, const FloatRange& range);

// The parameter `pull`, by which means are coded in place of the parameter `own`, as a fraction; nothing
// where the spec doesn't name it, or says that it is `own`.
Result<std::optional<float>> pull_parameter(const ParsedSpec& spec, std::string_view own,
                                            const FloatRange& range);

// Index in `choices` of the parameter `key`; `default_choice` where the spec doesn't name it.
// kInvalidArgument for another word; the message lists the choices.
Result<std::size_t> choice_parameter(const ParsedSpec& spec, std::string_view key,
                                     std::span<const std::string_view> choices, std::size_t default_choice);

// The shortest decimal text without exponent that reads back as the same float32, e.g. "1.75": the form in
// canonical specs. REQUIRES: a finite value.
std::string canonical_number(float value);

// A number for people: with an exponent where that is shorter; "NaN", "Inf", "-Inf".
std::string number_text(float value);

// How many elements a fraction of them is.
inline constexpr std::uint64_t kMaxFractionElements = 0xFFFFFFFF;

// fraction * count rounded to the nearest integer, halves up, at least 1 and at most count. In integers, as
// sizes() must say the same under every rounding mode. REQUIRES: 2^-20 <= fraction < 1, 1 <= count <=
// kMaxFractionElements.
inline std::uint64_t kept_of(float fraction, std::uint64_t count) noexcept {
  constexpr unsigned kMantissaBits = 23;
  constexpr unsigned kBias = 127;
  const auto bits = std::bit_cast<std::uint32_t>(fraction);
  const std::uint64_t mantissa = (bits & ((1U << kMantissaBits) - 1)) | 1U << kMantissaBits;
  const unsigned shift = kBias + kMantissaBits - (bits >> kMantissaBits);  // mantissa / 2^shift; 24 to 43
  const std::uint64_t rounded = (mantissa * count + (std::uint64_t{1} << (shift - 1))) >> shift;
  return std::min(std::max<std::uint64_t>(rounded, 1), count);
}

}  // namespace deltawire
