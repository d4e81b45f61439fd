// Positions and signs in Rice codes, with the bit instructions of BMI2.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
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

// Parameter 0. See ByteReader.
class WordReader {
 public:
  // `after`: the bit after these, which is the sign of the last code if that begins with the last bit.
  [[gnu::always_inline]] Counts add(std::uint64_t bits, std::uint64_t after, MapWriter& writer) noexcept {
    const std::uint64_t signs = find_signs(bits, sign_next_);
    const std::uint64_t starts = ~bits & ~signs;
    const std::uint32_t elements = kWord - popcount(signs);
    writer.add(_pext_u64(starts, ~signs), _pext_u64(starts & (bits >> 1 | after << (kWord - 1)), ~signs),
               elements);
    return {elements, popcount(starts)};
  }

  [[gnu::always_inline]] std::uint32_t end_of_code(std::uint32_t bit, std::uint32_t zeros) const noexcept {
    return sign_next_ != 0 ? bit + 1 : bit - zeros;
  }

 private:
  std::uint64_t sign_next_ = 0;  // 1: the next word begins with the sign of a digit that was appended
};

}  // namespace

bool read_rice(const ChunkBytes& rice, std::uint32_t count, const DigitMaps& maps) {
  return read_rice_by<WordReader>(rice, count, maps);
}

bool scatter_rice(const ChunkBytes& rice, const DecodeTarget& target) {
  return scatter_rice_into(rice, target);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
