// Keys out of flags and gaps, without a check for each.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLanes = 8;
constexpr std::uint64_t kPeekBytes = 8;

__m256i all_of(std::uint32_t value) noexcept {
  return _mm256_set1_epi32(static_cast<int>(value));
}

// All bits of the lanes below `count`.
__m256i first_lanes(std::uint32_t count) noexcept {
  return _mm256_cmpgt_epi32(all_of(count < kLanes ? count : kLanes),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

constexpr unsigned kWordBits = 54;  // of a stream that a word has, wherever in a byte they begin

// What must be readable of a stream: copied to where it is, with zeros behind it, if it lies too near to its
// end.
struct Readable {
  std::byte copy[kTile * std::uint64_t{kMaxKeyBits + kVectorFlagBits} / 8 + 2 * kPeekBytes];

  const std::byte* of(const BitWindow& stream, std::uint64_t first, std::uint64_t bytes) noexcept {
    if (first + bytes <= stream.bytes) return stream.at + first;
    const std::uint64_t left = first < stream.bytes ? stream.bytes - first : 0;
    std::memset(copy, 0, bytes);
    if (left > 0) std::memcpy(copy, stream.at + first, left < bytes ? left : bytes);
    return copy;
  }
};

// A stream on its way. Where the next gap begins hangs on the flag of this one, and nothing else can be done
// meanwhile than to read another stream.
template <unsigned kFlagBits>
struct Reader {
  const std::byte* from;
  std::uint64_t position;  // in bits
  std::uint64_t lengths;
  std::uint64_t key;
  std::uint32_t* keys;
  std::uint64_t word = 0;
  std::uint8_t bits = 0;  // taken of the word

  Reader(const KeyRun& run, Readable& readable) noexcept
      : position(run.gaps->stream.position % 8), lengths(run.gaps->lengths), key(run.key), keys(run.keys) {
    const std::uint64_t bytes = std::uint64_t{run.count} * run.gaps->longest / 8 + 2 * kPeekBytes;
    from = readable.of(run.gaps->stream, run.gaps->stream.position / 8, bytes);
  }

  // The bits stay three places higher than they are, as a flag times 8 finds its length; what gaps leave
  // below them is no flag.
  [[gnu::always_inline]] void load() noexcept {
    word = load_le<std::uint64_t>(from + position / 8) >> position % 8 << 3;
    bits = 0;
  }

  // The next gap of the word.
  [[gnu::always_inline]] void next(std::uint64_t i) noexcept {
    constexpr std::uint64_t kFlags = ((std::uint64_t{1} << kFlagBits) - 1) * 8;
    const std::uint64_t length = lengths >> (word & kFlags);  // in the lowest byte
    key += (_bzhi_u64(word, static_cast<unsigned>(length) + 3) >> (kFlagBits + 3)) + 1;
    // Where the keys of a word are put together in a vector to be stored, that takes longer than reading
    // them.
    asm("" : "+r"(key));
    keys[i] = static_cast<std::uint32_t>(key);
    word >>= length % 64;
    bits = static_cast<std::uint8_t>(bits + length);
  }

  [[gnu::always_inline]] void end_word() noexcept { position += bits; }

  void close(KeyRun& run) const noexcept {
    run.gaps->stream.position = run.gaps->stream.position / 8 * 8 + position;
    run.key = key;
  }
};

template <unsigned kFlagBits, unsigned kTogether>
void read(KeyRun& run) noexcept {
  Readable readable;
  Reader<kFlagBits> reader(run, readable);
  const std::uint64_t count = run.count;
  std::uint64_t i = 0;
  for (; i + kTogether <= count; i += kTogether) {
    reader.load();
    for (unsigned j = 0; j < kTogether; ++j) reader.next(i + j);
    reader.end_word();
  }
  for (; i < count; ++i) {
    reader.load();
    reader.next(i);
    reader.end_word();
  }
  reader.close(run);
}

// REQUIRES: as many of each.
template <unsigned kFlagBits, unsigned kTogether>
void read_two(KeyRun& first, KeyRun& second) noexcept {
  Readable readable[2];
  Reader<kFlagBits> one(first, readable[0]);
  Reader<kFlagBits> other(second, readable[1]);
  const std::uint64_t count = first.count;
  std::uint64_t i = 0;
  for (; i + kTogether <= count; i += kTogether) {
    one.load();
    other.load();
    for (unsigned j = 0; j < kTogether; ++j) {
      one.next(i + j);
      other.next(i + j);
    }
    one.end_word();
    other.end_word();
  }
  for (; i < count; ++i) {
    one.load();
    other.load();
    one.next(i);
    other.next(i);
    one.end_word();
    other.end_word();
  }
  one.close(first);
  other.close(second);
}

template <unsigned kFlagBits>
void read_for(KeyRun& run) noexcept {
  run.gaps->longest * 4 <= kWordBits ? read<kFlagBits, 4>(run) : read<kFlagBits, 1>(run);
}

template <unsigned kFlagBits>
void read_two_for(KeyRun& first, KeyRun& second) noexcept {
  const unsigned longest =
      first.gaps->longest > second.gaps->longest ? first.gaps->longest : second.gaps->longest;
  if (longest * 4 <= kWordBits) {
    read_two<kFlagBits, 4>(first, second);
  } else {
    longest * 3 <= kWordBits ? read_two<kFlagBits, 3>(first, second) : read_two<kFlagBits, 1>(first, second);
  }
}

template <unsigned kFlagBits>
void look(GapStream& gaps, const std::uint32_t* keys, std::uint32_t count) noexcept {
  constexpr unsigned kHigher = (1U << kFlagBits) - 1;
  const __m256i sign = all_of(0x80000000);
  const __m256i of_flags = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(gaps.lengths_of_flags));
  __m256i most[kHigher];
  for (unsigned flag = 0; flag < kHigher; ++flag) most[flag] = all_of(gaps.most[flag] ^ 0x80000000);
  __m256i bits = _mm256_setzero_si256();
  __m256i all = _mm256_setzero_si256();
  for (std::uint32_t i = 0; i < count; i += kLanes) {
    const __m256i lanes = first_lanes(count - i);
    const __m256i key = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys + i));
    const __m256i before = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys + i - 1));
    const __m256i gap = _mm256_and_si256(_mm256_sub_epi32(_mm256_sub_epi32(key, before), all_of(1)), lanes);
    all = _mm256_or_si256(all, gap);
    const __m256i signed_gap = _mm256_xor_si256(gap, sign);
    __m256i flag = _mm256_setzero_si256();
    for (const __m256i& lower : most) flag = _mm256_sub_epi32(flag, _mm256_cmpgt_epi32(signed_gap, lower));
    bits = _mm256_add_epi32(bits, _mm256_and_si256(_mm256_permutevar8x32_epi32(of_flags, flag), lanes));
  }
  std::uint32_t of_lanes[2][kLanes];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(of_lanes[0]), bits);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(of_lanes[1]), all);
  for (unsigned i = 0; i < kLanes; ++i) {
    gaps.shortest_bits += of_lanes[0][i];
    gaps.all_gaps |= of_lanes[1][i];
  }
}

}  // namespace

void open_gaps(GapStream& gaps, const BitWindow& stream, unsigned key_bits, unsigned flag_bits) {
  gaps.stream = stream;
  gaps.flag_bits = flag_bits;
  if (key_bits == 0) return;  // nothing is written: codes of no bits, for gaps of 0
  const GapLengths of(key_bits, flag_bits);
  gaps.longest = flag_bits + key_bits;
  for (unsigned flag = 0; flag < 1U << flag_bits; ++flag) {
    gaps.lengths_of_flags[flag] = flag_bits + of.of_flag[flag];
    gaps.lengths |= std::uint64_t{gaps.lengths_of_flags[flag]} << 8 * flag;
    gaps.most[flag] = static_cast<std::uint32_t>((std::uint64_t{1} << of.of_flag[flag]) - 1);
  }
}

void read_keys(KeyRun& run) {
  switch (run.gaps->flag_bits) {
    case 1: return read_for<1>(run);
    case 2: return read_for<2>(run);
    default: return read_for<kVectorFlagBits>(run);
  }
}

void read_keys_of_two(KeyRun& first, KeyRun& second) {
  switch (first.gaps->flag_bits) {
    case 1: return read_two_for<1>(first, second);
    case 2: return read_two_for<2>(first, second);
    default: return read_two_for<kVectorFlagBits>(first, second);
  }
}

void look_at(GapStream& gaps, const std::uint32_t* keys, std::uint32_t count) {
  switch (gaps.flag_bits) {
    case 1: return look<1>(gaps, keys, count);
    case 2: return look<2>(gaps, keys, count);
    default: return look<kVectorFlagBits>(gaps, keys, count);
  }
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
