// What fuzz_patch and make_corpus must agree on: the weights that patches are for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/random.h"
#include "deltawire/patch.h"

namespace deltawire::fuzz {

inline constexpr WeightType kPatchTypes[] = {
    WeightType::kFloat32,    WeightType::kBFloat16, WeightType::kFloat16, WeightType::kFloat8E4M3,
    WeightType::kFloat8E5M2, WeightType::kInt8,     WeightType::kInt16,   WeightType::kInt32};

struct PatchSides {
  std::vector<std::byte> from;
  std::vector<std::byte> to;
};

// 700 weights of random bits, of which every third goes up by 1 and every twentieth is another one.
inline PatchSides patch_sides(WeightType type) {
  constexpr std::uint64_t kWeights = 700;
  const std::uint64_t bytes = weight_bytes(type);
  CounterRng random(1, static_cast<std::uint64_t>(type));
  PatchSides sides{std::vector<std::byte>(kWeights * bytes), {}};
  for (std::byte& byte : sides.from) byte = static_cast<std::byte>(random.next() & 0xFF);
  sides.to = sides.from;
  for (std::uint64_t i = 0; i < kWeights; ++i) {
    std::byte& low = sides.to[i * bytes];
    if (i % 3 == 0) low = static_cast<std::byte>((std::to_integer<unsigned>(low) + 1) & 0xFF);
    if (i % 20 == 0) low = static_cast<std::byte>(random.next() & 0xFF);
  }
  return sides;
}

// Gives a patch of 56 bytes or more the checksums that fit it.
inline void repair_patch(std::span<std::byte> patch) {
  if (patch.size() < 56) return;
  store_le(patch.data() + 48, crc32c(Bytes(patch).subspan(56)));
  store_le(patch.data() + 52, crc32c(Bytes(patch).first(52)));
}

}  // namespace deltawire::fuzz
