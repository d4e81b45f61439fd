#include "base/crc32c.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>

#include "base/little_endian.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

// Marks functions that use the CPU's CRC instruction, on architectures that may have one.
#if defined(__x86_64__)
#define DELTAWIRE_CRC_INSTRUCTION __attribute__((target("sse4.2")))
#elif defined(__aarch64__) && defined(__linux__)
#define DELTAWIRE_CRC_INSTRUCTION __attribute__((target("+crc")))
#endif

namespace deltawire {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // 0x1EDC6F41, bits reversed

// kTables[k][b]: the effect of byte b that is k bytes before the end of an 8-byte group.
constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint32_t previous = tables[k - 1][b];
      tables[k][b] = (previous >> 8) ^ tables[0][previous & 0xFF];
    }
  }
  return tables;
}();

std::uint32_t update_byte(std::uint32_t crc, std::byte value) noexcept {
  return (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(value)) & 0xFF];
}

// The effect of zero bytes on the register's state, as a matrix: reading is linear, so each bit of the state
// contributes a column, and the contributions are added (xor).
using Columns = std::array<std::uint32_t, 32>;

constexpr std::uint32_t applied(const Columns& columns, std::uint32_t state) noexcept {
  std::uint32_t sum = 0;
  for (std::size_t bit = 0; bit < 32; ++bit) sum ^= (state >> bit & 1) != 0 ? columns[bit] : 0;
  return sum;
}

// The matrices for 2^i zero bytes: doubling the number squares the matrix.
constexpr auto kAfterZeros = [] {
  std::array<Columns, 32> after{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    const std::uint32_t state = 1U << bit;
    after[0][bit] = (state >> 8) ^ kTables[0][state & 0xFF];
  }
  for (std::size_t i = 1; i < 32; ++i) {
    for (std::size_t bit = 0; bit < 32; ++bit) after[i][bit] = applied(after[i - 1], after[i - 1][bit]);
  }
  return after;
}();

#if defined(DELTAWIRE_CRC_INSTRUCTION)
#if defined(__x86_64__)
using Register = std::uint64_t;  // as the instruction has it, its upper half 0

DELTAWIRE_CRC_INSTRUCTION inline Register read_eight(Register crc, const std::byte* bytes) noexcept {
  return __builtin_ia32_crc32di(crc, load_le<std::uint64_t>(bytes));
}

DELTAWIRE_CRC_INSTRUCTION inline std::uint32_t read_one(std::uint32_t crc, std::byte value) noexcept {
  return __builtin_ia32_crc32qi(crc, std::to_integer<unsigned char>(value));
}
#else
using Register = std::uint32_t;

DELTAWIRE_CRC_INSTRUCTION inline Register read_eight(Register crc, const std::byte* bytes) noexcept {
  return __crc32cd(crc, load_le<std::uint64_t>(bytes));
}

DELTAWIRE_CRC_INSTRUCTION inline std::uint32_t read_one(std::uint32_t crc, std::byte value) noexcept {
  return __crc32cb(crc, std::to_integer<std::uint8_t>(value));
}
#endif

// The same for a fixed number of zero bytes, by a table for each of the state's four bytes.
class ZeroBytes {
 public:
  explicit constexpr ZeroBytes(const Columns& columns) noexcept {
    for (std::size_t at = 0; at < 4; ++at) {
      for (std::uint32_t value = 0; value < 256; ++value) {
        of_byte_[at][value] = applied(columns, value << (8 * at));
      }
    }
  }

  std::uint32_t after(std::uint32_t state) const noexcept {
    return of_byte_[0][state & 0xFF] ^ of_byte_[1][state >> 8 & 0xFF] ^ of_byte_[2][state >> 16 & 0xFF] ^
           of_byte_[3][state >> 24];
  }

 private:
  std::array<std::array<std::uint32_t, 256>, 4> of_byte_{};
};

constexpr std::size_t kLongLane = 1024;  // powers of two
constexpr std::size_t kShortLane = 128;
constexpr ZeroBytes kAfterLongLane(kAfterZeros[std::countr_zero(kLongLane)]);
constexpr ZeroBytes kAfterShortLane(kAfterZeros[std::countr_zero(kShortLane)]);

// How far ahead memory is asked for bytes. The CPU asks by itself for lines in a row, but only within a page,
// and several rows at once confuse it.
constexpr std::size_t kAhead = 8192;
constexpr std::size_t kLine = 64;

// The instruction has a latency of two or three cycles and a throughput of one per cycle: so a block is read
// in three lanes at once, and each lane's checksum is then advanced past the lanes after it.
template <bool kAsks>
DELTAWIRE_CRC_INSTRUCTION std::uint32_t update_lanes(std::uint32_t crc, const std::byte* block,
                                                     std::size_t lane, const ZeroBytes& after_lane) noexcept {
  Register first = crc;
  Register second = 0;
  Register third = 0;
  for (std::size_t i = 0; i < lane; i += 8) {
    for (std::size_t k = 0; kAsks && i % kLine == 0 && k < 3; ++k) {
      __builtin_prefetch(block + kAhead + 3 * i + k * kLine);
    }
    first = read_eight(first, block + i);
    second = read_eight(second, block + lane + i);
    third = read_eight(third, block + 2 * lane + i);
  }
  const std::uint32_t two =
      after_lane.after(static_cast<std::uint32_t>(first)) ^ static_cast<std::uint32_t>(second);
  return after_lane.after(two) ^ static_cast<std::uint32_t>(third);
}

DELTAWIRE_CRC_INSTRUCTION std::uint32_t update(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  std::size_t i = 0;
  for (; i + 3 * kLongLane + kAhead <= bytes.size(); i += 3 * kLongLane) {
    crc = update_lanes<true>(crc, bytes.data() + i, kLongLane, kAfterLongLane);
  }
  for (; i + 3 * kLongLane <= bytes.size(); i += 3 * kLongLane) {
    crc = update_lanes<false>(crc, bytes.data() + i, kLongLane, kAfterLongLane);
  }
  for (; i + 3 * kShortLane <= bytes.size(); i += 3 * kShortLane) {
    crc = update_lanes<false>(crc, bytes.data() + i, kShortLane, kAfterShortLane);
  }
  Register wide = crc;
  for (; i + 8 <= bytes.size(); i += 8) wide = read_eight(wide, bytes.data() + i);
  crc = static_cast<std::uint32_t>(wide);
  for (; i < bytes.size(); ++i) crc = read_one(crc, bytes[i]);
  return crc;
}

std::uint32_t crc32c_lanes(std::span<const std::byte> bytes, std::uint32_t seed) noexcept {
  return ~update(~seed, bytes);
}
#endif

#if defined(__x86_64__)
// x^degree modulo the polynomial, with the bits of the checksum: the highest is x^0.
constexpr std::uint32_t power_of_x(unsigned degree) noexcept {
  std::uint32_t power = 0x80000000;
  for (unsigned i = 0; i < degree; ++i) power = (power >> 1) ^ ((power & 1) != 0 ? kPolynomial : 0);
  return power;
}

#define DELTAWIRE_CRC_FOLDING __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))

// The factors that move the first and the second 64 of 128 bits so many bytes further on. A product of 64-bit
// numbers, lowest bit first, is shifted by one place, hence the degrees.
struct Factors {
  constexpr explicit Factors(unsigned bytes) noexcept
      : first(std::uint64_t{power_of_x(8 * bytes + 63)} << 32),
        second(std::uint64_t{power_of_x(8 * bytes - 1)} << 32) {}

  std::uint64_t first;
  std::uint64_t second;
};
constexpr Factors kPast16(16);
constexpr Factors kPast32(32);
constexpr Factors kPast48(48);
constexpr Factors kPast64(64);
constexpr Factors kPast128(128);
constexpr Factors kPast256(256);

DELTAWIRE_CRC_FOLDING inline __m512i in_all(const Factors& factors) noexcept {
  const auto first = static_cast<long long>(factors.first);
  const auto second = static_cast<long long>(factors.second);
  return _mm512_set4_epi64(second, first, second, first);
}

DELTAWIRE_CRC_FOLDING inline __m128i in_one(const Factors& factors) noexcept {
  return _mm_set_epi64x(static_cast<long long>(factors.second), static_cast<long long>(factors.first));
}

// `sum` moved, and `next` added.
DELTAWIRE_CRC_FOLDING inline __m512i folded(__m512i sum, __m512i factors, __m512i next) noexcept {
  const __m512i first = _mm512_clmulepi64_epi128(sum, factors, 0x00);
  const __m512i second = _mm512_clmulepi64_epi128(sum, factors, 0x11);
  return _mm512_ternarylogic_epi64(first, second, next, 0x96);  // xor of three
}

DELTAWIRE_CRC_FOLDING inline __m128i folded(__m128i sum, __m128i factors, __m128i next) noexcept {
  const __m128i first = _mm_clmulepi64_si128(sum, factors, 0x00);
  const __m128i second = _mm_clmulepi64_si128(sum, factors, 0x11);
  return _mm_ternarylogic_epi64(first, second, next, 0x96);
}

DELTAWIRE_CRC_FOLDING inline __m128i loaded(const std::byte* at) noexcept {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

// Lane `lane`. With a mask, as g++ 12 warns of what its header leaves open without one.
template <int lane>
DELTAWIRE_CRC_FOLDING inline __m128i lane_of(__m512i vector) noexcept {
  return _mm512_maskz_extracti32x4_epi32(0xF, vector, lane);
}

// The checksum of 64 bytes' representatives and up to 63 bytes behind them.
DELTAWIRE_CRC_FOLDING inline std::uint32_t end_of(__m512i sum, std::span<const std::byte> rest) noexcept {
  const __m512i factors =
      _mm512_set_epi64(0, 0, static_cast<long long>(kPast16.second), static_cast<long long>(kPast16.first),
                       static_cast<long long>(kPast32.second), static_cast<long long>(kPast32.first),
                       static_cast<long long>(kPast48.second), static_cast<long long>(kPast48.first));
  const __m512i moved = folded(sum, factors, _mm512_setzero_si512());  // but the last 16 bytes
  __m128i one = _mm_ternarylogic_epi64(lane_of<0>(moved), lane_of<1>(moved), lane_of<2>(moved), 0x96);
  one = _mm_xor_si128(one, lane_of<3>(sum));
  const __m128i past_16 = in_one(kPast16);
  std::size_t i = 0;
  for (; i + 16 <= rest.size(); i += 16) one = folded(one, past_16, loaded(rest.data() + i));
  Register wide = __builtin_ia32_crc32di(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(one)));
  wide = __builtin_ia32_crc32di(wide, static_cast<std::uint64_t>(_mm_extract_epi64(one, 1)));
  if (i + 8 <= rest.size()) {
    wide = read_eight(wide, rest.data() + i);
    i += 8;
  }
  auto crc = static_cast<std::uint32_t>(wide);
  if (i + 4 <= rest.size()) {
    crc = __builtin_ia32_crc32si(crc, load_le<std::uint32_t>(rest.data() + i));
    i += 4;
  }
  for (; i < rest.size(); ++i) crc = read_one(crc, rest[i]);
  return crc;
}

// After V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel,
// 2009): repeatedly folds 256 bytes into the next 256, then those that are left into the last 64, until 64
// remain that have the same checksum as all.
DELTAWIRE_CRC_FOLDING std::uint32_t update_folding(std::uint32_t crc,
                                                   std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t kVector = 64;
  constexpr std::size_t kVectors = 4 * kVector;
  assert(bytes.size() >= kVector);
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  __m512i sum = _mm512_xor_si512(_mm512_loadu_si512(at),
                                 _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  at += kVector;
  if (bytes.size() >= 2 * kVectors) {
    const __m512i factors = in_all(kPast256);
    __m512i b = _mm512_loadu_si512(at);
    __m512i c = _mm512_loadu_si512(at + kVector);
    __m512i d = _mm512_loadu_si512(at + 2 * kVector);
    for (at += 3 * kVector; at + kVectors <= end; at += kVectors) {
      if (static_cast<std::size_t>(end - at) >= kAhead + kVectors) {
        for (std::size_t line = 0; line < kVectors; line += kLine) __builtin_prefetch(at + kAhead + line);
      }
      sum = folded(sum, factors, _mm512_loadu_si512(at));
      b = folded(b, factors, _mm512_loadu_si512(at + kVector));
      c = folded(c, factors, _mm512_loadu_si512(at + 2 * kVector));
      d = folded(d, factors, _mm512_loadu_si512(at + 3 * kVector));
    }
    d = folded(b, in_all(kPast128), d);
    c = folded(sum, in_all(kPast128), c);
    sum = folded(c, in_all(kPast64), d);
  }
  const __m512i past_64 = in_all(kPast64);
  for (; at + kVector <= end; at += kVector) sum = folded(sum, past_64, _mm512_loadu_si512(at));
  return end_of(sum, {at, end});
}

constexpr std::size_t kWorthFolding = 128;  // bytes

std::uint32_t crc32c_folding(std::span<const std::byte> bytes, std::uint32_t seed) noexcept {
  return bytes.size() < kWorthFolding ? crc32c_lanes(bytes, seed) : ~update_folding(~seed, bytes);
}
#endif

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t seed) noexcept {
  std::uint32_t crc = ~seed;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t word = load_le<std::uint64_t>(bytes.data() + i) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; i < bytes.size(); ++i) crc = update_byte(crc, bytes[i]);
  return ~crc;
}

constexpr Crc32cWay kWays[] = {
    {"portable", crc32c_portable},
#if defined(DELTAWIRE_CRC_INSTRUCTION)
    {"lanes", crc32c_lanes},
#endif
#if defined(__x86_64__)
    {"folding", crc32c_folding},
#endif
};

std::size_t ways_here() noexcept {
  std::size_t ways = 1;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2") != 0) {
    ways = __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0 ? 3 : 2;
  }
#elif defined(DELTAWIRE_CRC_INSTRUCTION)
  if ((getauxval(AT_HWCAP) & HWCAP_CRC32) != 0) ways = 2;
#endif
  return ways;
}

}  // namespace

std::span<const Crc32cWay> crc32c_ways() noexcept {
  static const std::size_t here = ways_here();
  return std::span(kWays).first(here);
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) noexcept {
  return crc32c_ways().back().checksum(bytes, seed);
}

std::uint32_t crc32c_joined(std::uint32_t a, std::uint32_t b, std::uint32_t bytes_of_b) noexcept {
  std::uint32_t state = a;
  for (; bytes_of_b != 0; bytes_of_b &= bytes_of_b - 1) {
    state = applied(kAfterZeros[static_cast<std::size_t>(std::countr_zero(bytes_of_b))], state);
  }
  return state ^ b;
}

std::uint32_t crc32c_shared(std::span<const std::byte> bytes, std::uint32_t seed, Workers* workers) noexcept {
  constexpr std::size_t kWorthSharing = std::size_t{128} << 10;
  constexpr std::size_t kMostPieces = 8;
  const auto pieces = std::min(static_cast<std::size_t>(Workers::threads(workers)), kMostPieces);
  if (pieces == 1 || bytes.size() < kWorthSharing) return crc32c(bytes, seed);
  const std::size_t piece = bytes.size() / pieces;  // the last piece takes the rest
  std::uint32_t sums[kMostPieces] = {};
  Workers::share(workers, pieces, [&](std::size_t i) {
    const auto rest = bytes.subspan(i * piece);
    sums[i] = crc32c(i + 1 < pieces ? rest.first(piece) : rest, i == 0 ? seed : 0);
  });
  std::uint32_t sum = sums[0];
  for (std::size_t i = 1; i < pieces; ++i) {
    const std::size_t of_piece = i + 1 < pieces ? piece : bytes.size() - i * piece;
    sum = crc32c_joined(sum, sums[i], static_cast<std::uint32_t>(of_piece));
  }
  return sum;
}

}  // namespace deltawire
