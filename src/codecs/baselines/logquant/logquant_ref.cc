// Reference kernels: which values are sent, and their bytes. Reading is in logquant_decode_ref.cc.
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/baselines/logquant/logquant_ops.h"
#include "codecs/kernels/magnitude.h"

namespace deltawire::logquant::DELTAWIRE_TARGET {

namespace {

std::uint32_t largest(const PairInput& input) {
  return largest_magnitude(input.in, input.residual, input.count);
}

// The level of a magnitude; 0 below the lowest.
int level_of(const Grid& grid, std::uint32_t magnitude) noexcept {
  if (magnitude == 0) return 0;
  const int level = nearest_step(magnitude, grid.steps) - grid.top + grid.top_level();
  if (level < 1) return 0;
  return level < grid.top_level() ? level : grid.top_level();
}

void collect(const PairInput& input, const Grid& grid, std::uint64_t& at, Staging& staging) {
  staging.pairs = 0;
  for (; at < input.count && staging.pairs < kChunkPairs; ++at) {
    const float x = input.residual != nullptr ? input.in[at] + input.residual[at] : input.in[at];
    const int level = level_of(grid, magnitude_bits(x));
    if (level == 0) {
      if (input.left != nullptr) input.left[at] = x;
      continue;
    }
    const std::uint32_t sign = bit_cast<std::uint32_t>(x) >> 31;
    staging.keys[staging.pairs] = input.keys != nullptr ? input.keys[at] : static_cast<std::uint32_t>(at);
    staging.numbers[staging.pairs] =
        static_cast<std::uint16_t>(static_cast<std::uint32_t>(level) | sign << grid.bits);
    ++staging.pairs;
    if (input.left == nullptr) continue;
    const float sent = level_value(grid, level);
    input.left[at] = x - (sign != 0 ? -sent : sent);
  }
}

void write_keys(const Staging& chunk, std::byte* out) noexcept {
  for (std::uint32_t i = 0; i < chunk.pairs; ++i) store_le(out + i * kKeyBytes, chunk.keys[i]);
}

std::uint32_t write(const Staging& chunk, unsigned bits, std::byte* out) {
  const std::uint64_t elements =
      chunk.pairs > 0 ? std::uint64_t{chunk.keys[chunk.pairs - 1]} - chunk.keys[0] + 1 : 0;
  const bool dense = chunk.pairs > 0 && is_dense_shorter(chunk.pairs, elements, bits);
  store_le(out, static_cast<std::uint16_t>(chunk.pairs | (dense ? kDenseBit : 0)));
  if (chunk.pairs == 0) return kCountBytes;
  if (dense) {
    store_le(out + kCountBytes, chunk.keys[0]);
    store_le(out + kCountBytes + 4, static_cast<std::uint32_t>(elements));
  } else {
    write_keys(chunk, out + kCountBytes);
  }
  const std::uint32_t head = kCountBytes + (dense ? kDenseHeadBytes : kKeyBytes * chunk.pairs);
  const std::uint64_t numbers = dense ? elements : chunk.pairs;
  BitWriter writer(out + head, (numbers * (bits + 1) + 7) / 8);
  for (std::uint32_t i = 0; i < chunk.pairs; ++i) {
    if (dense && i > 0) {
      for (std::uint32_t key = chunk.keys[i - 1] + 1; key < chunk.keys[i]; ++key) writer.put(0, bits + 1);
    }
    writer.put(chunk.numbers[i], bits + 1);
  }
  return head + static_cast<std::uint32_t>(writer.finish());
}

}  // namespace

extern constexpr Kernels kKernels = {largest, collect, write, read_head, decode_chunk};

}  // namespace deltawire::logquant::DELTAWIRE_TARGET
