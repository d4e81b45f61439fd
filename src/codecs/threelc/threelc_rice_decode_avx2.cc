// Positions and signs in Rice codes, with the bit instructions of BMI2.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/threelc/threelc_ops.h"
#include "codecs/threelc/threelc_rice_read_ops.h"
#include "codecs/threelc/threelc_unpack_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

// Which bits of a word are signs, where codes are of one bit, 1 for a zero, or of two, 0 and a sign. A 0
// makes a sign of the bit after it unless it is one itself, as a backslash escapes the character after it:
// Langdale and Lemire, "Parsing gigabytes of JSON per second" (VLDB Journal 2019), section 3.1.1. `carry`:
// whether the first bit is a sign; then, of the next word.
[[gnu::always_inline]] inline std::uint64_t find_signs(std::uint64_t bits, std::uint64_t& carry) noexcept {
  constexpr std::uint64_t kEven = 0x5555555555555555;
  const std::uint64_t zeros = ~bits & ~carry;
  const std::uint64_t after_zero = zeros << 1 | carry;
  const std::uint64_t odd_starts = zeros & ~kEven & ~after_zero;
  const std::uint64_t runs = odd_starts + zeros;
  carry = runs < zeros ? 1 : 0;
  return (kEven ^ runs << 1) & after_zero;
}

// Parameter 0. See ByteReader. Appends bits to both maps, without a branch: where words end is as good as
// random.
class WordReader {
 public:
  WordReader(const DigitMaps& maps, std::uint32_t next) noexcept
      : maps_(maps),
        bytes_(next / kWord * 8),
        filled_(next % kWord),
        nonzero_(load_le<std::uint64_t>(maps.nonzero + bytes_)),
        negative_(load_le<std::uint64_t>(maps.negative + bytes_)) {}

  // `after`: the bit after these, which is the sign of the last code if that begins with the last bit.
  [[gnu::always_inline]] void add(std::uint64_t bits, std::uint64_t after) noexcept {
    const std::uint64_t signs = find_signs(bits, sign_next_);
    const std::uint64_t starts = ~bits & ~signs;
    nonzeros_ += popcount(starts);
    append(_pext_u64(starts, ~signs), _pext_u64(starts & (bits >> 1 | after << (kWord - 1)), ~signs),
           kWord - popcount(signs));
  }

  [[gnu::always_inline]] std::uint32_t next() const noexcept { return bytes_ * 8 + filled_; }

  [[gnu::always_inline]] std::uint32_t finish() const noexcept {
    store();
    return nonzeros_;
  }

  [[gnu::always_inline]] std::uint32_t end_of_code(std::uint32_t bit, std::uint32_t zeros) const noexcept {
    return sign_next_ != 0 ? bit + 1 : bit - zeros;
  }

 private:
  // REQUIRES: 0 < count <= 64, and no bits beyond it.
  [[gnu::always_inline]] void append(std::uint64_t nonzero, std::uint64_t negative,
                                     std::uint32_t count) noexcept {
    nonzero_ |= nonzero << filled_;
    negative_ |= negative << filled_;
    store();
    const std::uint32_t rest = kWord - 1 - filled_;
    filled_ += count;
    const std::uint64_t full = filled_ / kWord;  // 0 or 1
    const std::uint64_t kept = full - 1;         // all bits or none
    nonzero_ = (nonzero_ & kept) | (nonzero >> 1 >> rest & ~kept);
    negative_ = (negative_ & kept) | (negative >> 1 >> rest & ~kept);
    bytes_ += static_cast<std::uint32_t>(full) * 8;
    filled_ %= kWord;
  }

  [[gnu::always_inline]] void store() const noexcept {
    store_le(maps_.nonzero + bytes_, nonzero_);
    store_le(maps_.negative + bytes_, negative_);
  }

  DigitMaps maps_;
  std::uint32_t bytes_;
  std::uint32_t filled_;  // < 64 between calls
  std::uint64_t nonzero_;
  std::uint64_t negative_;
  std::uint32_t nonzeros_ = 0;
  std::uint64_t sign_next_ = 0;  // 1: the next word begins with the sign of a digit that was appended
};

struct Words {
  [[gnu::always_inline]] static MapWord of(const std::uint8_t* digits) noexcept {
    const __m256i none = _mm256_setzero_si256();
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(digits));
    const __m256i last = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(digits + kWord / 2));
    const std::uint64_t zero =
        top_bits(_mm256_cmpeq_epi8(first, none)) | top_bits(_mm256_cmpeq_epi8(last, none)) << 32;
    return {~zero, top_bits(first) | top_bits(last) << 32};
  }

 private:
  [[gnu::always_inline]] static std::uint64_t top_bits(__m256i bytes) noexcept {
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes));
  }
};

}  // namespace

bool read_rice(const ChunkBytes& rice, std::uint32_t count, const DigitMaps& maps) {
  return read_rice_by<WordReader, Words>(rice, count, maps);
}

bool scatter_rice(const ChunkBytes& rice, const DecodeTarget& target) {
  return scatter_rice_into(rice, target);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
