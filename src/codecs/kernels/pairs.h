// Keys and values, on their way into a codec and out of it.
#pragma once

#include <cstdint>

namespace deltawire {

// The values of a part: dense (keys null: value i has key i) or in key-value form.
struct PairInput {
  const float* in = nullptr;
  const float* residual = nullptr;      // null: no error feedback; dense form only
  float* left = nullptr;                // the new residual's place: `residual`, or memory apart from it
  const std::uint32_t* keys = nullptr;  // strictly increasing
  std::uint64_t count = 0;
};

enum class Sink : std::uint8_t { kNothing, kDense, kDenseAdd, kPairs };

// Where decoded pairs go, and how much of the part is decoded.
struct PairTarget {
  Sink sink = Sink::kNothing;
  float scale = 1;
  float* values = nullptr;
  std::uint32_t* keys = nullptr;  // kPairs alone
  std::uint64_t capacity = 0;     // pairs, kPairs alone
  std::uint64_t dimension = 0;
  std::uint64_t pairs = 0;      // decoded so far
  std::uint64_t least_key = 0;  // the next key must be at least this
};

// Calls `call` with the sink as its template's argument.
template <class Call>
[[gnu::always_inline]] inline auto for_sink(Sink sink, const Call& call) noexcept {
  switch (sink) {
    case Sink::kDense: return call.template operator()<Sink::kDense>();
    case Sink::kDenseAdd: return call.template operator()<Sink::kDenseAdd>();
    case Sink::kPairs: return call.template operator()<Sink::kPairs>();
    default: return call.template operator()<Sink::kNothing>();
  }
}

// Puts the next pair into the target. REQUIRES: key < target.dimension; of kPairs, pairs < capacity.
template <Sink kSink>
[[gnu::always_inline]] inline void put_pair(std::uint64_t key, float value, PairTarget& target) noexcept {
  if constexpr (kSink == Sink::kDense) target.values[key] = value;
  if constexpr (kSink == Sink::kDenseAdd) target.values[key] += value;
  if constexpr (kSink == Sink::kPairs) {
    target.keys[target.pairs] = static_cast<std::uint32_t>(key);
    target.values[target.pairs] = value;
  }
  ++target.pairs;
}

}  // namespace deltawire
