// Pairs of weights for tests of patches.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "deltawire/patch.h"

namespace deltawire::testing {

using ByteVector = std::vector<std::byte>;

inline constexpr WeightType kWeightTypes[] = {
    WeightType::kFloat32,    WeightType::kBFloat16, WeightType::kFloat16, WeightType::kFloat8E4M3,
    WeightType::kFloat8E5M2, WeightType::kInt8,     WeightType::kInt16,   WeightType::kInt32};

enum class OldWeights : std::uint8_t { kRandomBits, kBell, kZerosOfBothSigns };
enum class Change : std::uint8_t { kOneUnit, kFewUnits, kRandomBits, kSign };

struct PairCase {
  WeightType type = WeightType::kBFloat16;
  std::uint64_t count = 0;
  double share = 0;  // of the elements that change
  OldWeights weights = OldWeights::kBell;
  Change change = Change::kOneUnit;
  bool clustered = false;  // all at the front
};

struct WeightPair {
  ByteVector from;
  ByteVector to;
};

// The upper bits of a float32, or of an integer, as the type has them.
inline std::uint32_t drawn_weight(const PairCase& wanted, CounterRng& random) {
  const auto bits = static_cast<std::uint32_t>(8 * weight_bytes(wanted.type));
  const std::uint32_t mask = bits == 32 ? UINT32_MAX : (1U << bits) - 1;
  const auto word = static_cast<std::uint32_t>(random.next() >> 32);
  if (wanted.weights == OldWeights::kRandomBits) return word & mask;
  if (wanted.weights == OldWeights::kZerosOfBothSigns) return (word & 1) << (bits - 1);
  double sum = 0;
  for (int i = 0; i < 6; ++i) sum += random.next_uniform() - 0.5;
  const auto value = static_cast<float>(0.05 * sum);
  std::uint32_t pattern = 0;
  std::memcpy(&pattern, &value, sizeof pattern);
  // float16 and float8 take other exponents; any will do.
  if (wanted.type == WeightType::kFloat16) pattern = (pattern >> 31 << 31) | (pattern << 3 & 0x7FFFFFFF);
  if (wanted.type == WeightType::kFloat8E4M3) pattern = (pattern >> 31 << 31) | (pattern << 4 & 0x7FFFFFFF);
  if (wanted.type == WeightType::kFloat8E5M2) pattern = (pattern >> 31 << 31) | (pattern << 3 & 0x7FFFFFFF);
  return pattern >> (32 - bits);
}

inline WeightPair make_pair(const PairCase& wanted, std::uint64_t seed) {
  CounterRng random(seed, wanted.count);
  const std::uint64_t bytes = weight_bytes(wanted.type);
  WeightPair pair{ByteVector(wanted.count * bytes), ByteVector(wanted.count * bytes)};
  const auto clustered = static_cast<std::uint64_t>(wanted.share * static_cast<double>(wanted.count));
  for (std::uint64_t i = 0; i < wanted.count; ++i) {
    const std::uint32_t from = drawn_weight(wanted, random);
    std::uint32_t to = from;
    const bool changes = wanted.clustered ? i < clustered : random.next_uniform() < wanted.share;
    const auto word = static_cast<std::uint32_t>(random.next() >> 32);
    if (changes && wanted.change == Change::kOneUnit) to += (word & 1) != 0 ? 1 : UINT32_MAX;
    if (changes && wanted.change == Change::kFewUnits) to += word % 9 - 4;
    if (changes && wanted.change == Change::kRandomBits) to = word;
    if (changes && wanted.change == Change::kSign) to ^= 1U << (8 * bytes - 1);
    std::memcpy(pair.from.data() + i * bytes, &from, bytes);
    std::memcpy(pair.to.data() + i * bytes, &to, bytes);
  }
  return pair;
}

}  // namespace deltawire::testing
