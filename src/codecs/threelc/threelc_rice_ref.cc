// Reference kernel: positions and signs in Rice codes.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

// Calls visit(gap, negative) for each digit that isn't 0, in the order of the elements.
template <class Visit>
void for_each_nonzero(const DigitMaps& maps, std::uint32_t count, Visit visit) {
  std::uint32_t next = 0;  // the position after the last one visited
  for (std::uint32_t at = 0; at < count; at += 64) {
    auto left = load_le<std::uint64_t>(maps.nonzero + at / 8);
    const auto negative = load_le<std::uint64_t>(maps.negative + at / 8);
    for (; left != 0; left &= left - 1) {
      const auto bit = countr_zero(left);
      visit(at + bit - next, (negative >> bit & 1) != 0);
      next = at + bit + 1;
    }
  }
}

}  // namespace

std::uint32_t rice(const DigitMaps& maps, std::uint32_t count, const RiceCode& code, std::byte* out,
                   std::uint32_t limit) {
  out[0] = static_cast<std::byte>(code.parameter);
  store_le(out + 1, static_cast<std::uint16_t>(code.nonzeros));
  BitWriter writer(out + kRiceHeaderBytes, limit - 1 - kRiceHeaderBytes);
  for_each_nonzero(maps, count, [&](std::uint32_t gap, bool negative) {
    const RiceBits bits = rice_bits_of(gap, code.parameter, kRiceEscapeBits);
    writer.put(bits.value | std::uint64_t{negative} << bits.bits, bits.bits + 1);
  });
  const std::uint64_t written = writer.finish();
  return writer.overflowed() ? limit : kRiceHeaderBytes + static_cast<std::uint32_t>(written);
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
