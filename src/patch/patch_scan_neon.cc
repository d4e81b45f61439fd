#include <cstddef>
#include <cstdint>

#include <arm_neon.h>

#include "patch/patch_ops.h"
#include "patch/patch_scan_vectors_ops.h"

namespace deltawire::patch::DELTAWIRE_TARGET {

namespace {

// Bytes of 64 weights, in their order.
struct Bytes64 {
  uint8x16_t part[4];
};

const std::uint8_t* bytes_at(const std::byte* at) noexcept {
  return reinterpret_cast<const std::uint8_t*>(at);
}

// A bit for each byte, which is 0 or 255.
std::uint64_t bits_of(const Bytes64& bytes) noexcept {
  static constexpr std::uint8_t kBits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  const uint8x16_t bit = vld1q_u8(kBits);
  const uint8x16_t low = vpaddq_u8(vandq_u8(bytes.part[0], bit), vandq_u8(bytes.part[1], bit));
  const uint8x16_t high = vpaddq_u8(vandq_u8(bytes.part[2], bit), vandq_u8(bytes.part[3], bit));
  const uint8x16_t both = vpaddq_u8(low, high);
  return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(both, both)), 0);
}

// The lowest bytes of 16 elements of 2 or 4 bytes.
uint8x16_t bytes_of_halves(uint16x8_t a, uint16x8_t b) noexcept {
  return vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
}

uint16x8_t halves_of_words(uint32x4_t a, uint32x4_t b) noexcept {
  return vuzp1q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
}

template <unsigned kBytes>
struct Words {
  struct Rule {
    int shift;  // to the left, so below 0
    unsigned mask;
    unsigned top;
  };
  using Classes = Bytes64;
  using Wanted = uint8x16_t;  // a class in all bytes

  static std::uint64_t changed(const std::byte* a, const std::byte* b) noexcept {
    const std::uint8_t* const x = bytes_at(a);
    const std::uint8_t* const y = bytes_at(b);
    Bytes64 equal{};
    for (unsigned i = 0; i < 4; ++i) {
      const auto vectors_equal = [&](unsigned j) {
        const uint8x16_t from = vld1q_u8(x + 16 * (kBytes * i + j));
        const uint8x16_t to = vld1q_u8(y + 16 * (kBytes * i + j));
        if constexpr (kBytes == 1) return vceqq_u8(from, to);
        if constexpr (kBytes == 2) return vceqq_u16(vreinterpretq_u16_u8(from), vreinterpretq_u16_u8(to));
        if constexpr (kBytes == 4) return vceqq_u32(vreinterpretq_u32_u8(from), vreinterpretq_u32_u8(to));
      };
      if constexpr (kBytes == 1) equal.part[i] = vectors_equal(0);
      if constexpr (kBytes == 2) equal.part[i] = bytes_of_halves(vectors_equal(0), vectors_equal(1));
      if constexpr (kBytes == 4) {
        equal.part[i] = bytes_of_halves(halves_of_words(vectors_equal(0), vectors_equal(1)),
                                        halves_of_words(vectors_equal(2), vectors_equal(3)));
      }
    }
    return ~bits_of(equal);
  }

  static Rule rule(const Element& element, unsigned top) noexcept {
    return {-static_cast<int>(element.exponent_shift), element.exponent_mask, top};
  }

  static Classes classes_of(const std::byte* weights, const Rule& rule) noexcept {
    Bytes64 classes{};
    for (unsigned i = 0; i < 4; ++i) {
      classes.part[i] = vminq_u8(below_top(weights + 16 * kBytes * i, rule), vdupq_n_u8(kClasses - 1));
    }
    return classes;
  }

  static Wanted wanted(unsigned c) noexcept { return vdupq_n_u8(static_cast<std::uint8_t>(c)); }

  static std::uint64_t members(const Classes& classes, Wanted wanted) noexcept {
    Bytes64 equal{};
    for (unsigned i = 0; i < 4; ++i) equal.part[i] = vceqq_u8(classes.part[i], wanted);
    return bits_of(equal);
  }

 private:
  // top - exponent, or 0, of 16 weights. Exponents have at most 8 bits.
  static uint8x16_t below_top(const std::byte* weights, const Rule& rule) noexcept {
    const uint8x16_t top = vdupq_n_u8(static_cast<std::uint8_t>(rule.top));
    const uint8x16_t mask = vdupq_n_u8(static_cast<std::uint8_t>(rule.mask));
    const auto shifted = [&](unsigned i) {
      const uint8x16_t x = vld1q_u8(bytes_at(weights) + 16 * i);
      if constexpr (kBytes == 1) return vshlq_u8(x, vdupq_n_s8(static_cast<std::int8_t>(rule.shift)));
      if constexpr (kBytes == 2) {
        const int16x8_t shift = vdupq_n_s16(static_cast<std::int16_t>(rule.shift));
        return vshlq_u16(vreinterpretq_u16_u8(x), shift);
      }
      if constexpr (kBytes == 4) return vshlq_u32(vreinterpretq_u32_u8(x), vdupq_n_s32(rule.shift));
    };
    uint8x16_t exponents{};
    if constexpr (kBytes == 1) exponents = shifted(0);
    if constexpr (kBytes == 2) exponents = bytes_of_halves(shifted(0), shifted(1));
    if constexpr (kBytes == 4) {
      exponents =
          bytes_of_halves(halves_of_words(shifted(0), shifted(1)), halves_of_words(shifted(2), shifted(3)));
    }
    return vqsubq_u8(top, vandq_u8(exponents, mask));
  }
};

}  // namespace

FoundChanges find_changes(const ChunkView& from, const std::byte* to, Scratch& scratch) {
  return find_changes_by<Words>(from, to, scratch);
}

std::uint64_t find_members(const ChunkView& from, unsigned top, unsigned active, const std::byte* hashed,
                           Scratch& scratch) {
  return find_members_by<Words>(from, top, active, hashed, scratch);
}

}  // namespace deltawire::patch::DELTAWIRE_TARGET
