// Gaps without a check for each: a batch is decoded, then looked at as a whole, and not taken if anything in
// it is odd. Four lanes are read at a time: as long as their codes are short, each in an element of a vector.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "base/prefetch.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kRounds = 16;
constexpr std::uint32_t kMostGaps = kRounds * kMaxLanes;
constexpr std::uint32_t kRing = 4;  // batches: lines of memory far away take as long as two or three of them
constexpr std::uint64_t kMostBits = std::uint64_t{kRounds} * (kMaxUnary + kEscapeBits);  // of a lane
constexpr std::uint64_t kPeekBytes = 8;

// Reads the next gap of `lane` of some lanes that are read in turn; false if it is a raw one that had a
// shorter code. REQUIRES: 8 bytes from the position on.
[[gnu::always_inline]] inline bool read_gap(BitWindow& lane, unsigned parameter,
                                            std::uint32_t& gap) noexcept {
  constexpr std::uint64_t kLast = std::uint64_t{1} << 63;  // so that there is a zero to be found
  const std::uint64_t window = load_le<std::uint64_t>(lane.at + lane.position / 8) >> lane.position % 8;
  const unsigned unary = countr_zero(~window | kLast);
  if (unary >= kMaxUnary) [[unlikely]] {
    lane.position += kMaxUnary + kEscapeBits;
    gap = static_cast<std::uint32_t>(window >> kMaxUnary);
    return gap >> parameter >= kMaxUnary;
  }
  lane.position += unary + 1 + parameter;
  const std::uint64_t low = (window >> unary >> 1) & ((std::uint64_t{1} << parameter) - 1);
  gap = unary << parameter | static_cast<std::uint32_t>(low);
  return true;
}

// The first of them is number `first` of the chunk.
[[gnu::always_inline]] inline void put(const DecodeTarget& target, const std::uint32_t* positions,
                                       std::uint32_t count, std::uint32_t first) noexcept {
  if (target.positions != nullptr) {
    std::memcpy(target.positions + first, positions, count * sizeof(std::uint32_t));
    return;
  }
  if (target.slot == nullptr) return;
  float* const slot = target.slot;
  const float value = target.value;
  if (target.accumulate) {
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < count; ++i) slot[positions[i]] += value;
  } else {
#pragma GCC unroll 8
    for (std::uint32_t i = 0; i < count; ++i) slot[positions[i]] = value;
  }
}

// What is done with two batches that were read before, some places at a time, while another is read: its
// codes wait for each other and leave the processor idle.
struct Meanwhile {
  const DecodeTarget& target;
  const std::uint32_t* asked = nullptr;  // positions whose memory is asked for
  const std::uint32_t* known = nullptr;  // positions that are put; null: none
  std::uint32_t first = 0;               // the number in the chunk of the first of them

  [[gnu::always_inline]] void go_on(std::uint32_t at, std::uint32_t count) const noexcept {
    if (const float* const slot = target.slot; slot != nullptr) {
#pragma GCC unroll 8
      for (std::uint32_t i = 0; i < count; ++i) prefetch_far(slot + asked[at + i]);
    }
    if (known != nullptr) put(target, known + at, count, first + at);
  }
};

bool read_one_lane(BitWindow& lane, unsigned parameter, std::uint32_t* gaps,
                   const Meanwhile& meanwhile) noexcept {
  bool good = true;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    good &= read_gap(lane, parameter, gaps[round]);
    meanwhile.go_on(round, 1);
  }
  return good && !lane.exhausted();
}

// Four lanes, in elements of 64 bits.
struct FourLanes {
  __m256i at;  // addresses
  __m256i position;

  void load(const BitWindow* lanes) noexcept {
    alignas(32) std::uint64_t values[2][4];
    for (unsigned lane = 0; lane < 4; ++lane) {
      values[0][lane] = deltawire::bit_cast<std::uint64_t>(lanes[lane].at);
      values[1][lane] = lanes[lane].position;
    }
    at = _mm256_load_si256(reinterpret_cast<const __m256i*>(values[0]));
    position = _mm256_load_si256(reinterpret_cast<const __m256i*>(values[1]));
  }

  void store_positions(BitWindow* lanes) const noexcept {
    alignas(32) std::uint64_t positions[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(positions), position);
    for (unsigned lane = 0; lane < 4; ++lane) lanes[lane].position = positions[lane];
  }

  // The next kLoaded bits of each; the highest of an element is 0.
  __m256i window() const noexcept {
    alignas(32) std::uint64_t from[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(from),
                       _mm256_add_epi64(at, _mm256_srli_epi64(position, 3)));
    const auto eight = [&](unsigned lane) {
      return static_cast<long long>(
          load_le<std::uint64_t>(deltawire::bit_cast<const std::byte*>(from[lane])));
    };
    const __m256i bytes = _mm256_setr_epi64x(eight(0), eight(1), eight(2), eight(3));
    const __m256i bits = _mm256_srlv_epi64(bytes, _mm256_and_si256(position, _mm256_set1_epi64x(7)));
    return _mm256_and_si256(bits, _mm256_set1_epi64x(0x7FFFFFFFFFFFFFFF));
  }
};

constexpr unsigned kLoaded = 57;
constexpr int kExponentBias = 127;  // of a float
constexpr unsigned kMantissaBits = 23;

// kTogether gaps of each of kLanes lanes, each four of which read one window: round after round. False, and
// the lanes unchanged, if a code is an escape or the window too short.
template <unsigned kTogether, unsigned kLanes>
[[gnu::always_inline]] inline bool read_together(FourLanes* fours, unsigned parameter,
                                                 std::uint32_t* gaps) noexcept {
  constexpr unsigned kFours = kLanes / 4;
  const __m256i one = _mm256_set1_epi64x(1);
  const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(parameter));
  const __m256i mask = _mm256_set1_epi64x((1LL << parameter) - 1);
  const __m256i to_next = _mm256_set1_epi64x(kExponentBias - 1 - static_cast<int>(parameter));
  __m256i even = _mm256_setzero_si256();
  __m256i windows[kFours];
  __m256i used[kFours];
  for (unsigned i = 0; i < kFours; ++i) {
    windows[i] = fours[i].window();
    used[i] = _mm256_set1_epi64x(kTogether * (1 + parameter));
  }
  for (unsigned round = 0; round < kTogether; ++round) {
    for (unsigned i = 0; i < kFours; ++i) {
      // The zero that ends the ones, as a number: a float's exponent says where it is.
      const __m256i end = _mm256_andnot_si256(windows[i], _mm256_add_epi64(windows[i], one));
      const __m256i exponent = _mm256_srli_epi64(_mm256_castps_si256(_mm256_cvtepi32_ps(end)), kMantissaBits);
      const __m256i unary = _mm256_sub_epi64(exponent, _mm256_set1_epi64x(kExponentBias));
      const __m256i behind =
          _mm256_srlv_epi64(windows[i], _mm256_sub_epi64(exponent, _mm256_set1_epi64x(kExponentBias - 1)));
      const __m256i gap = _mm256_or_si256(_mm256_sll_epi64(unary, shift), _mm256_and_si256(behind, mask));
      windows[i] = _mm256_srlv_epi64(windows[i], _mm256_sub_epi64(exponent, to_next));
      used[i] = _mm256_add_epi64(used[i], unary);
      if ((round * kFours + i) % 2 == 0) {
        even = gap;
        continue;
      }
      // A whole vector in one store, which add_up() can read before it is in the cache.
      const __m256i pairs = _mm256_blend_epi32(even, _mm256_slli_epi64(gap, 32), 0xAA);
      const __m256i in_order = _mm256_permutevar8x32_epi32(pairs, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(gaps + round * kLanes + i * 4 - 4), in_order);
    }
  }
  // Where all ones together are fewer than an escape begins with, none of the codes is one. An end beyond bit
  // 30 counts as billions of ones: the conversion takes an element's halves apart.
  const unsigned most = kTogether * (1 + parameter) + kMaxUnary - 1;
  const __m256i limit = _mm256_set1_epi64x(most < kLoaded ? most : kLoaded);
  __m256i too_long = _mm256_cmpgt_epi64(used[0], limit);
  for (unsigned i = 1; i < kFours; ++i) {
    too_long = _mm256_or_si256(too_long, _mm256_cmpgt_epi64(used[i], limit));
  }
  if (_mm256_testz_si256(too_long, too_long) == 0) [[unlikely]]
    return false;
  for (unsigned i = 0; i < kFours; ++i) fours[i].position = _mm256_add_epi64(fours[i].position, used[i]);
  return true;
}

template <unsigned kTogether, unsigned kLanes>
bool read_lanes(BitWindow* lanes, unsigned parameter, std::uint32_t* gaps,
                const Meanwhile& meanwhile) noexcept {
  FourLanes fours[kLanes / 4];
  for (unsigned i = 0; i < kLanes / 4; ++i) fours[i].load(lanes + 4 * i);
  bool good = true;
  for (std::uint32_t at = 0; at < kRounds * kLanes; at += kTogether * kLanes) {
    if (!read_together<kTogether, kLanes>(fours, parameter, gaps + at)) {
      for (unsigned i = 0; i < kLanes / 4; ++i) fours[i].store_positions(lanes + 4 * i);
      for (unsigned i = 0; i < kTogether * kLanes; ++i) {
        good &= read_gap(lanes[i % kLanes], parameter, gaps[at + i]);
      }
      for (unsigned i = 0; i < kLanes / 4; ++i) fours[i].load(lanes + 4 * i);
    }
    meanwhile.go_on(at, kTogether * kLanes);
  }
  for (unsigned i = 0; i < kLanes / 4; ++i) fours[i].store_positions(lanes + 4 * i);
  for (unsigned lane = 0; lane < kLanes; ++lane) good &= !lanes[lane].exhausted();
  return good;
}

// Whether no code can lead a lane out of the chunk.
bool may_read(const Head& head) noexcept {
  const BitWindow& last = head.streams[head.lanes - 1];
  const std::byte* const end = last.at + last.bytes;
  for (unsigned lane = 0; lane < head.lanes; ++lane) {
    const BitWindow& stream = head.streams[lane];
    const auto room = static_cast<std::uint64_t>(end - stream.at);
    if (room < (stream.position + kMostBits) / 8 + kPeekBytes) return false;
  }
  return true;
}

// The last bytes of each lane's stream, with zeros behind them that a batch may read.
class Tails {
 public:
  // Lets the streams end here. False, and nothing done, if more than kBytes of one are left, or for a single
  // lane, whose few gaps don't repay it.
  bool take(Head& head) noexcept {
    if (head.lanes == 1) return false;
    for (unsigned lane = 0; lane < head.lanes; ++lane) {
      const BitWindow& stream = head.streams[lane];
      if (stream.bytes - stream.position / 8 > kBytes) return false;
    }
    for (unsigned lane = 0; lane < head.lanes; ++lane) {
      BitWindow& stream = head.streams[lane];
      whole_[lane] = stream;
      const std::uint64_t read = stream.position / 8;
      const std::uint64_t left = stream.bytes - read;
      if (left > 0) std::memcpy(bytes_[lane], stream.at + read, left);
      std::memset(bytes_[lane] + left, 0, kMostRead);
      stream = {bytes_[lane], left, stream.position % 8};
    }
    return true;
  }

  // Lets them go on in the chunk.
  void give_back(Head& head) const noexcept {
    for (unsigned lane = 0; lane < head.lanes; ++lane) {
      const std::uint64_t position = whole_[lane].position / 8 * 8 + head.streams[lane].position;
      head.streams[lane] = {whole_[lane].at, whole_[lane].bytes, position};
    }
  }

 private:
  static constexpr std::uint64_t kBytes = 256;
  static constexpr std::uint64_t kMostRead = kMostBits / 8 + kPeekBytes;

  BitWindow whole_[kMaxLanes] = {};
  std::byte bytes_[kMaxLanes][kBytes + kMostRead];
};

template <unsigned kLanes>
bool read_by_fours(Head& head, std::uint32_t* gaps, const Meanwhile& meanwhile) noexcept {
  constexpr unsigned kMostOfFour = 8;  // parameter, with which four codes seldom are too long for a window
  return head.parameter <= kMostOfFour ? read_lanes<4, kLanes>(head.streams, head.parameter, gaps, meanwhile)
                                       : read_lanes<2, kLanes>(head.streams, head.parameter, gaps, meanwhile);
}

bool read_batch(Head& head, std::uint32_t* gaps, const Meanwhile& meanwhile) noexcept {
  switch (head.lanes) {
    case 1: return read_one_lane(head.streams[0], head.parameter, gaps, meanwhile);
    case 4: return read_by_fours<4>(head, gaps, meanwhile);
    default: return read_by_fours<kMaxLanes>(head, gaps, meanwhile);
  }
}

// Turns gaps into positions, the first of which is `next` at least; returns how far behind that the next one
// is. Positions of 2^32 and more wrap. REQUIRES: a multiple of eight.
std::uint64_t add_up(std::uint32_t* gaps, std::uint32_t count, std::uint32_t next) noexcept {
  const __m256i none = _mm256_setzero_si256();
  __m256i before = _mm256_set1_epi32(static_cast<int>(next - 1));  // the last position
  __m256i all = none;
  for (std::uint32_t i = 0; i < count; i += 8) {
    auto* const at = reinterpret_cast<__m256i*>(gaps + i);
    const __m256i gap = _mm256_loadu_si256(at);
    all = _mm256_add_epi64(all,
                           _mm256_add_epi64(_mm256_srli_epi64(gap, 32), _mm256_blend_epi32(gap, none, 0xAA)));
    __m256i steps = _mm256_sub_epi32(gap, _mm256_set1_epi32(-1));
    steps = _mm256_add_epi32(steps, _mm256_slli_si256(steps, 4));
    steps = _mm256_add_epi32(steps, _mm256_slli_si256(steps, 8));
    const __m256i of_lower = _mm256_permutevar8x32_epi32(steps, _mm256_set1_epi32(3));
    steps = _mm256_add_epi32(steps, _mm256_blend_epi32(none, of_lower, 0xF0));
    _mm256_storeu_si256(at, _mm256_add_epi32(steps, before));
    before = _mm256_add_epi32(before, _mm256_permutevar8x32_epi32(steps, _mm256_set1_epi32(7)));
  }
  alignas(32) std::uint64_t sums[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(sums), all);
  return sums[0] + sums[1] + sums[2] + sums[3] + count;
}

}  // namespace

std::uint32_t decode_rounds(Head& head, std::uint32_t gaps, const DecodeTarget& target, std::uint64_t& next) {
  const std::uint32_t batch = kRounds * head.lanes;
  // A ring: batch i's positions go to places[i % kRing]. While batch i + 1 is read their memory is asked for,
  // and while batch i + kRing - 1 is, they are put.
  std::uint32_t places[kRing][kMostGaps];
  std::uint32_t read = 0;
  std::uint32_t put_of = 0;
  for (std::uint32_t i = 0; i < batch; ++i) places[kRing - 1][i] = 0;
  Tails tails;
  bool in_tails = false;
  while (gaps - read * batch >= batch) {
    if (!in_tails && !may_read(head)) {
      if (!tails.take(head)) break;
      in_tails = true;
    }
    Meanwhile meanwhile{target, places[(read + kRing - 1) % kRing]};
    if (read - put_of == kRing - 1) {
      meanwhile.known = places[put_of % kRing];
      meanwhile.first = 1 + put_of * batch;
      ++put_of;
    }
    std::uint32_t* const positions = places[read % kRing];
    Head ahead = head;
    if (!read_batch(ahead, positions, meanwhile)) break;
    const std::uint64_t behind = next + add_up(positions, batch, static_cast<std::uint32_t>(next));
    if (behind > target.count) break;
    next = behind;
    head = ahead;
    ++read;
  }
  if (in_tails) tails.give_back(head);
  for (; put_of < read; ++put_of) put(target, places[put_of % kRing], batch, 1 + put_of * batch);
  return read * batch;
}

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
