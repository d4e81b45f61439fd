#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/float_bits.h"
#include "codecs/baselines/truncate/truncate_ops.h"

namespace deltawire::truncate::DELTAWIRE_TARGET {

namespace {

// One NaN for all: which one a machine makes of Inf - Inf differs, and a cut one could be Inf.
constexpr std::uint32_t kNan = 0x7FC00000;

[[gnu::always_inline]] inline std::uint64_t bytes_for(std::uint64_t count, unsigned bits) noexcept {
  return (count * bits + 7) / 8;
}

void encode(const float* in, const float* residual, float* left, std::uint64_t count, unsigned bits,
            std::byte* payload) {
  BitWriter writer(payload, bytes_for(count, bits));
  const unsigned cut = 32 - bits;
  for (std::uint64_t i = 0; i < count; ++i) {
    const float x = residual != nullptr ? in[i] + residual[i] : in[i];
    auto whole = bit_cast<std::uint32_t>(x);
    if ((whole & kMagnitudeMask) > kInfinityBits) whole = kNan;
    writer.put(whole >> cut, bits);
    if (left == nullptr) continue;
    // What is NaN or Inf can't be corrected later: a residual of NaN would poison every step after it.
    const bool finite = (whole & kMagnitudeMask) < kInfinityBits;
    left[i] = finite ? x - bit_cast<float>(whole >> cut << cut) : 0.0F;
  }
  writer.finish();
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, unsigned bits, float scale,
                      float* slot) {
  BitReader reader(payload, bytes_for(count, bits));
  const unsigned cut = 32 - bits;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto whole = static_cast<std::uint32_t>(reader.get(bits) << cut);
    if (scale == 1.0F) {
      // As an integer: a float on its way through a register may lose a NaN's bits.
      std::memcpy(slot + i, &whole, sizeof whole);
    } else {
      slot[i] = scale * bit_cast<float>(whole);
    }
  }
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, unsigned bits, float scale,
                       float* slot) {
  BitReader reader(payload, bytes_for(count, bits));
  const unsigned cut = 32 - bits;
  for (std::uint64_t i = 0; i < count; ++i) {
    slot[i] += scale * bit_cast<float>(static_cast<std::uint32_t>(reader.get(bits) << cut));
  }
}

}  // namespace

extern constexpr Kernels kKernels = {nullptr, encode, nullptr, decode_overwrite, decode_accumulate};

}  // namespace deltawire::truncate::DELTAWIRE_TARGET
