// How vector kernels look for candidates: groups of 64 elements at a time, with a bit for each that is one.
// Few are taken by their bits, many by squeezing vectors together.
#pragma once

#include <cstdint>

#include "base/bit_functions.h"
#include "base/prefetch.h"
#include "codecs/kernels/element_bits.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kGroup = 64;

// Where x is stored as well.
enum class Left { kNowhere, kStored, kStreamed };

// Lanes, a target's vectors: kCount elements in one of type Bits; load<kResidual>(input, at), the bits of x,
// and with a third argument those of the first so many elements, zeros behind them; store(), stream(), and
// store_first() of so many; positive(x) and negative(x), a bit for each lane above the block's bound;
// append(lists, at, x), the candidates of all lanes.
template <class Lanes, bool kResidual, Left kLeft>
struct Scan {
  const SelectInput input;  // a copy: stores of vectors may alias what lies in memory
  Candidates* lists;
  Lanes lanes;

  typename Lanes::Bits x_bits(std::uint64_t at) const noexcept {
    return Lanes::template load<kResidual>(input, at);
  }

  // The candidates of both signs among 64 elements. Leaves x in its place.
  void look_at(std::uint64_t at, std::uint64_t* found) const noexcept {
    prefetch_page(input.in + at, sizeof(float) * kGroup);
    if constexpr (kResidual) prefetch_page(input.residual + at, sizeof(float) * kGroup);
    for (unsigned i = 0; i < kGroup / Lanes::kCount; ++i) {
      const typename Lanes::Bits x = x_bits(at + i * Lanes::kCount);
      // Where nothing is kept there is no place to point at either.
      if constexpr (kLeft == Left::kStored) {
        Lanes::store(input.left + at + i * Lanes::kCount, x);
      } else if constexpr (kLeft == Left::kStreamed) {
        Lanes::stream(input.left + at + i * Lanes::kCount, x);
      }
      found[0] |= std::uint64_t{lanes.positive(x)} << (i * Lanes::kCount);
      found[1] |= std::uint64_t{lanes.negative(x)} << (i * Lanes::kCount);
    }
  }

  // Appends few candidates, of whole groups.
  void append(std::uint64_t at, unsigned groups, unsigned sign,
              const std::uint64_t (*found)[2]) const noexcept {
    Candidates& list = lists[sign];
    std::uint64_t end = list.count;
    for (unsigned i = 0; i < groups; ++i) {
      end += set_bits(found[i][sign], static_cast<std::uint32_t>(at + i * kGroup), list.positions + end);
    }
    for (std::uint64_t i = list.count; i < end; ++i) {
      const std::uint32_t position = list.positions[i];
      float x = input.in[position];
      if constexpr (kResidual) x += input.residual[position];
      list.magnitudes[i] = bit_cast<std::uint32_t>(x) & kMagnitudeMask;
    }
    list.count = end;
  }

  void run(const Block& block) const noexcept {
    std::uint64_t found[kSelectBlock / kGroup][2] = {};
    const unsigned groups = block.count / kGroup;
    std::uint32_t all = 0;
    for (unsigned i = 0; i < groups; ++i) {
      look_at(block.at + i * kGroup, found[i]);
      all += popcount(found[i][0]) + popcount(found[i][1]);
    }
    const std::uint64_t end = block.at + block.count;
    std::uint64_t at = block.at + groups * kGroup;
    if (all > block.count / 8) {
      for (std::uint64_t i = block.at; i < at; i += Lanes::kCount) lanes.append(lists, i, x_bits(i));
    } else {
      append(block.at, groups, 0, found);
      append(block.at, groups, 1, found);
    }
    for (; at < end; at += Lanes::kCount) {
      const typename Lanes::Bits x = Lanes::template load<kResidual>(input, at, end - at);
      if constexpr (kLeft != Left::kNowhere) Lanes::store_first(input.left + at, x, end - at);
      lanes.append(lists, at, x);
    }
  }
};

// find_candidates().
template <class Lanes>
void find_by(const SelectInput& input, const Block& block, Candidates* lists) noexcept {
  const Lanes lanes{block};
  if (input.residual == nullptr) return Scan<Lanes, false, Left::kNowhere>{input, lists, lanes}.run(block);
  if (input.left == nullptr) return Scan<Lanes, true, Left::kNowhere>{input, lists, lanes}.run(block);
  if (!block.streamed) return Scan<Lanes, true, Left::kStored>{input, lists, lanes}.run(block);
  return Scan<Lanes, true, Left::kStreamed>{input, lists, lanes}.run(block);
}

}  // namespace

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
