// What the tests of single kernels share: guarded memory, values of every density, chunks in every mode.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"
#include "codecs/target_testing.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc {

// Memory of `count` values that begins `offset` values after a line of 64 bytes, guards before and behind.
template <class T>
class Guarded {
 public:
  Guarded(std::size_t count, std::size_t offset, T fill)
      : memory_(count + 2 * kGuard + 64 / sizeof(T), kMark), count_(count) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data() + kGuard);
    begin_ = kGuard + (64 - address % 64) % 64 / sizeof(T) + offset % (64 / sizeof(T));
    std::fill_n(data(), count, fill);
  }

  T* data() { return memory_.data() + begin_; }
  std::vector<T> values() const {
    const auto from = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
    return {from, from + static_cast<std::ptrdiff_t>(count_)};
  }
  bool intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const bool inside = i >= begin_ && i < begin_ + count_;
      if (!inside && memory_[i] != kMark) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 128;
  static constexpr T kMark = T(77);
  std::vector<T> memory_;
  std::size_t count_;
  std::size_t begin_ = 0;
};

// A test of one target's kernels.
class KernelsOfTarget : public ::testing::TestWithParam<TargetId> {
 protected:
  void SetUp() override { testing::skip_unless_runnable(GetParam()); }

  const Kernels& reference_ = kernels_for(TargetId::kReference);
  const Kernels& kernels_ = kernels_for(GetParam());
};

// `share` of the values are large enough for m = 1 to be sent; among the others ties, zeros of both signs and
// subnormals.
inline std::vector<float> mixed_values(std::size_t count, double share, std::uint64_t seed) {
  constexpr float kSmall[] = {0.0F, -0.0F, 0x1p-149F, -0x1p-140F, 0.49999997F, -0.49999997F, 0.25F, -0.125F};
  constexpr float kLarge[] = {1.0F, -1.0F, 0.5F, -0.5F, 0.75F, -0.50000006F};
  CounterRng random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const std::uint64_t draw = random.next();
    const bool large = static_cast<double>(draw >> 32) < share * 0x1p32;
    value = large ? kLarge[draw % 6] : kSmall[draw % 8];
  }
  return values;
}

inline Guarded<float> copied(const std::vector<float>& values, std::size_t offset) {
  Guarded<float> memory(values.size(), offset, 0);
  std::copy(values.begin(), values.end(), memory.data());
  return memory;
}

inline constexpr double kShares[] = {0, 0.001, 0.02, 0.1, 0.2, 0.3, 0.45, 0.7, 1};

inline std::vector<std::uint32_t> chunk_sizes() {
  std::vector<std::uint32_t> sizes = {639, 640, 641, 960, 1000, 4096, 40955, 40959, 40960};
  for (std::uint32_t size = 1; size <= 330; ++size) sizes.push_back(size);
  return sizes;
}

struct Quantization {
  Quantized quantized;
  std::vector<std::byte> packed, nonzero, negative;
  std::vector<float> left;
};

inline bool operator==(const Quantization& a, const Quantization& b) {
  return a.quantized.nonzeros == b.quantized.nonzeros && a.quantized.zero_bytes == b.quantized.zero_bytes &&
         a.quantized.zero_runs == b.quantized.zero_runs && a.packed == b.packed && a.nonzero == b.nonzero &&
         a.negative == b.negative && testing::same_bits(a.left, b.left);
}

// Way 0: without a residual; 1: with one that isn't kept; 2: in place; 3: of sums that are kept.
inline Quantization quantize(const Kernels& kernels, const std::vector<float>& values,
                             const std::vector<float>& residual, int way, float m, bool maps) {
  const auto count = static_cast<std::uint32_t>(values.size());
  Guarded<float> in = copied(values, count);
  Guarded<float> before = copied(residual, count / 2);
  Guarded<std::byte> packed(packed_bytes(count), count, std::byte{0});
  Guarded<std::byte> nonzero(map_bytes(count), count / 3, std::byte{9});
  Guarded<std::byte> negative(map_bytes(count), count / 5, std::byte{9});
  QuantizeInput input{in.data(), nullptr, nullptr, count, scale_for(m, 1)};
  if (way == 1 || way == 2) input.residual = before.data();
  if (way == 2) input.left = before.data();
  if (way == 3) input.left = in.data();
  DigitMaps digits;
  if (maps) digits = {nonzero.data(), negative.data()};
  const Quantized quantized = kernels.quantize(input, packed.data(), digits);
  EXPECT_TRUE(in.intact() && before.intact() && packed.intact() && nonzero.intact() && negative.intact());
  std::vector<float> left = in.values();
  const std::vector<float> kept = before.values();
  left.insert(left.end(), kept.begin(), kept.end());
  return {quantized, packed.values(), nonzero.values(), negative.values(), left};
}

// The maps of a chunk of which `share` of the digits aren't 0.
inline Quantization drawn_maps(std::uint32_t count, double share, std::uint64_t seed) {
  const std::vector<float> none(count, 0.0F);
  return quantize(kernels_for(TargetId::kReference), mixed_values(count, share, seed), none, 0, 1, true);
}

inline std::vector<std::byte> chunk_of_mode(ChunkMode mode, const std::vector<std::byte>& body) {
  std::vector<std::byte> chunk(1, static_cast<std::byte>(mode));
  chunk.insert(chunk.end(), body.begin(), body.end());
  return chunk;
}

// A quantized chunk in each of its modes.
inline std::vector<std::vector<std::byte>> chunks_of(const Quantization& quantized, std::uint32_t count,
                                                     unsigned parameter) {
  const Kernels& reference = kernels_for(TargetId::kReference);
  const auto plain = static_cast<std::uint32_t>(quantized.packed.size());
  std::vector<std::byte> runs(plain);
  runs.resize(reference.zero_runs(quantized.packed.data(), plain, runs.data()));
  std::vector<std::byte> nonzero = quantized.nonzero;
  std::vector<std::byte> negative = quantized.negative;
  std::vector<std::byte> rice(6 * count + 20);
  rice.resize(reference.rice({nonzero.data(), negative.data()}, count,
                             {quantized.quantized.nonzeros, parameter}, rice.data(),
                             static_cast<std::uint32_t>(rice.size())));
  return {chunk_of_mode(ChunkMode::kBase3, quantized.packed), chunk_of_mode(ChunkMode::kZeroRuns, runs),
          chunk_of_mode(ChunkMode::kRice, rice)};
}

}  // namespace deltawire::threelc
