// What vector kernels encode with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"
#include "codecs/kernels/set_bits.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// Collecting pairs, 64 values at a time.

inline constexpr std::uint32_t kGroup = 64;
inline constexpr std::uint32_t kFew = 8;  // of a group: fewer are taken one by one

// Where pairs are written: behind those that are there. Whole vectors may be.
struct PairOutput {
  std::uint32_t* keys = nullptr;
  float* values = nullptr;
};

template <bool kResidual, bool kKeys>
[[gnu::always_inline]] inline std::uint32_t take_few(const PairInput& input, std::uint64_t at,
                                                     std::uint64_t chosen, const PairOutput& out) noexcept {
  const std::uint32_t pairs = set_bits(chosen, 0, out.keys);
  for (std::uint32_t i = 0; i < pairs; ++i) {
    const std::uint64_t place = at + out.keys[i];
    out.values[i] = kResidual ? input.left[place] : input.in[place];
    out.keys[i] = kKeys ? input.keys[place] : static_cast<std::uint32_t>(place);
  }
  return pairs;
}

// Vectors, a target's group of values, made of the cut: look_at<kResidual>(input, at), which of 64 are sent,
// and x is left where there is a residual; take<kResidual, kKeys>(input, at, chosen, out), these pairs;
// rest<kResidual, kKeys>(input, at, count, out), the pairs of up to kRest values. The last two return how
// many they wrote.
template <bool kResidual, bool kKeys, class Vectors>
[[gnu::always_inline]] inline Collected collect_chunk(const PairInput& input, std::uint64_t& at,
                                                      std::uint32_t cut, const Staging& staging) noexcept {
  Vectors vectors(cut);
  std::uint32_t pairs = 0;
  while (input.count - at >= kGroup && pairs + kGroup <= kChunkPairs) {
    const PairOutput out{staging.keys + pairs, staging.values + pairs};
    const std::uint64_t chosen = vectors.template look_at<kResidual>(input, at);
    if (chosen != 0) {
      pairs += popcount(chosen) <= kFew ? take_few<kResidual, kKeys>(input, at, chosen, out)
                                        : vectors.template take<kResidual, kKeys>(input, at, chosen, out);
    }
    at += kGroup;
  }
  while (at < input.count && pairs < kChunkPairs) {
    const std::uint64_t left = input.count - at;
    const std::uint32_t room = kChunkPairs - pairs;
    std::uint32_t count = left < Vectors::kRest ? static_cast<std::uint32_t>(left) : Vectors::kRest;
    count = room < count ? room : count;
    const PairOutput out{staging.keys + pairs, staging.values + pairs};
    pairs += vectors.template rest<kResidual, kKeys>(input, at, count, out);
    at += count;
  }
  return {staging.keys, staging.values, pairs, at};
}

// Kernels::collect. Vectors also: are_all_sent(values, count, cut), whether none of a row is dropped.
template <class Vectors>
[[gnu::always_inline]] inline Collected collect_by(const PairInput& input, std::uint64_t& at,
                                                   std::uint32_t cut, const Staging& staging) noexcept {
  if (input.keys != nullptr) {
    const std::uint64_t left = input.count - at;
    const std::uint32_t row = left < kChunkPairs ? static_cast<std::uint32_t>(left) : kChunkPairs;
    if (!Vectors::are_all_sent(input.in + at, row, cut)) {
      return collect_chunk<false, true, Vectors>(input, at, cut, staging);
    }
    const Collected all{input.keys + at, input.in + at, row, at + row};
    at += row;
    return all;
  }
  return input.residual != nullptr ? collect_chunk<true, false, Vectors>(input, at, cut, staging)
                                   : collect_chunk<false, false, Vectors>(input, at, cut, staging);
}

// Codes that are guessed: what is done one by one.

// Some values whose codes are guessed.
template <unsigned kLanes>
struct Guesses {
  alignas(32) std::uint32_t codes[kLanes];
  alignas(32) std::uint32_t magnitudes[kLanes];
  alignas(32) std::int32_t near[kLanes];  // the whole number nearest to the logarithm
};

// Compares those of the mask with their thresholds, which decide.
template <unsigned kLanes>
[[gnu::always_inline]] inline void decide(const Codebook& book, std::uint32_t mask,
                                          Guesses<kLanes>& guesses) noexcept {
  for (; mask != 0; mask &= mask - 1) {
    const unsigned lane = countr_zero(mask);
    const std::int32_t near = guesses.near[lane];
    std::uint32_t tried = near < 0 ? 0 : static_cast<std::uint32_t>(near);
    tried = tried < book.last ? tried : book.last;
    guesses.codes[lane] = tried + (guesses.magnitudes[lane] < book.values[tried] ? 1 : 0);
  }
}

// Leaves x less its code's value, of `count` pairs from `at` on.
[[gnu::always_inline]] inline void subtract(const PairInput& input, const Codebook& book,
                                            const Collected& pairs, const std::uint16_t* codes,
                                            std::uint32_t at, std::uint32_t count) noexcept {
  for (std::uint32_t i = at; i < at + count; ++i) {
    const std::uint32_t sign = bit_cast<std::uint32_t>(pairs.values[i]) & ~kMagnitudeMask;
    const std::uint32_t value = book.values[codes[i] & kMaxCode] | sign;
    input.left[pairs.keys[i]] = pairs.values[i] - bit_cast<float>(value);
  }
}

// Streams.

inline constexpr unsigned kMostKeyBits = 31;  // a mask of 32 is no number of 32 bits plus 1

// From pair `begin` on.
[[gnu::always_inline]] inline ChunkPairs rest_of(const ChunkPairs& chunk, std::uint32_t begin) noexcept {
  return {chunk.keys + begin, chunk.codes + begin, chunk.pairs - begin, chunk.range};
}

// Appends words of up to 64 bits. A store always takes 8 bytes, as an Appender's.
class WordAppender {
 public:
  [[gnu::always_inline]] explicit WordAppender(std::byte* out) noexcept : out_(out) {}

  // `kIsShort`: of no more than 56 bits.
  template <bool kIsShort>
  [[gnu::always_inline]] void put(std::uint64_t word, unsigned bits) noexcept {
    const std::uint64_t joined = pending_ | word << filled_;
    store_le(out_, joined);
    const unsigned all = filled_ + bits;
    if constexpr (kIsShort) {
      pending_ = joined >> all / 8 * 8;
      out_ += all / 8;
      filled_ = all % 8;
    } else {
      const std::uint64_t rest = word >> 1 >> (63 - filled_);  // behind the 64 bits that are stored, or 0
      const std::uint64_t words = all / 64;
      pending_ = (joined & (words - 1)) | rest;  // without a branch: it would be mispredicted
      out_ += 8 * words;
      filled_ = all % 64;
    }
  }

  // The address behind the last bit, whose byte is filled with zero bits.
  [[gnu::always_inline]] std::byte* finish() noexcept {
    store_le(out_, pending_);
    return out_ + (filled_ + 7) / 8;
  }

 private:
  std::byte* out_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;
};

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
