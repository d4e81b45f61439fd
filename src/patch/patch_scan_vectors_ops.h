// What vector targets share of their scans: words of 64 elements, one after another. A target has a template
// Words<kBytes> for elements of so many bytes, with
//   changed(a, b): a bit for each of 64 elements that differ;
//   Rule, rule(element, top): how classes are found;
//   Classes, classes_of(weights, rule): those of 64 weights;
//   Wanted, wanted(c), members(classes, wanted): a bit for each of the 64 in class c.
// The functions are the target's own: one file of each includes this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "patch/patch_digest_ops.h"
#include "patch/patch_ops.h"

namespace deltawire::patch::DELTAWIRE_TARGET {

template <template <unsigned> class Words, unsigned kBytes>
FoundChanges find_changes_of(const ChunkView& from, const std::byte* to, Scratch& scratch) noexcept {
  constexpr std::uint32_t kWordBytes = kWordElements * kBytes;
  const std::uint32_t whole = from.count / kWordElements;
  const std::uint32_t rest = from.count % kWordElements;
  Stripes stripes{};
  std::uint32_t changes = 0;
  for (std::uint32_t word = 0; word < whole; ++word) {
    const std::uint64_t at = std::uint64_t{kWordBytes} * word;
    scratch.changed[word] = Words<kBytes>::changed(from.at + at, to + at);
    changes += popcount(scratch.changed[word]);
    stripes.add(from.at + at, kWordBytes);
  }
  const std::uint64_t at = std::uint64_t{kWordBytes} * whole;
  if (rest != 0) {
    std::byte tails[2][kWordBytes] = {};
    std::memcpy(tails[0], from.at + at, rest * kBytes);
    std::memcpy(tails[1], to + at, rest * kBytes);
    scratch.changed[whole] = Words<kBytes>::changed(tails[0], tails[1]);
    changes += popcount(scratch.changed[whole]);
  }
  return {changes, stripes.digest(from.at + at, rest * kBytes, std::uint64_t{from.count} * kBytes)};
}

// The active classes, one after another.
template <class Words>
struct Active {
  typename Words::Wanted wanted[kClasses];
  std::uint64_t* members[kClasses];
  std::uint32_t* ranks[kClasses];
  std::uint32_t before[kClasses];
  unsigned count;
};

template <class Words>
[[gnu::always_inline]] inline void find_members_in_word(const std::byte* weights,
                                                        const typename Words::Rule& rule, std::uint32_t word,
                                                        std::uint64_t inside,
                                                        Active<Words>& active) noexcept {
  const typename Words::Classes classes = Words::classes_of(weights, rule);
  for (unsigned i = 0; i < active.count; ++i) {
    const std::uint64_t members = Words::members(classes, active.wanted[i]) & inside;
    active.members[i][word] = members;
    active.ranks[i][word] = active.before[i];
    active.before[i] += popcount(members);
  }
}

template <template <unsigned> class Words, unsigned kBytes, bool kHashes>
std::uint64_t scan_members(const ChunkView& from, unsigned top, unsigned active_mask, const std::byte* hashed,
                           Scratch& scratch) noexcept {
  constexpr std::uint32_t kWordBytes = kWordElements * kBytes;
  const typename Words<kBytes>::Rule rule = Words<kBytes>::rule(from.element, top);
  Active<Words<kBytes>> active{};
  for (unsigned c = 0; c < kClasses; ++c) {
    if ((active_mask >> c & 1) == 0) continue;
    active.wanted[active.count] = Words<kBytes>::wanted(c);
    active.members[active.count] = scratch.members[c];
    active.ranks[active.count++] = scratch.ranks[c];
  }
  const std::uint32_t whole = from.count / kWordElements;
  const std::uint32_t rest = from.count % kWordElements;
  Stripes stripes{};
  for (std::uint32_t word = 0; word < whole; ++word) {
    const std::uint64_t at = std::uint64_t{kWordBytes} * word;
    find_members_in_word<Words<kBytes>>(from.at + at, rule, word, ~std::uint64_t{0}, active);
    if constexpr (kHashes) stripes.add(hashed + at, kWordBytes);
  }
  if (rest != 0) {
    std::byte tail[kWordBytes] = {};
    std::memcpy(tail, from.at + std::uint64_t{kWordBytes} * whole, rest * kBytes);
    find_members_in_word<Words<kBytes>>(tail, rule, whole, (std::uint64_t{1} << rest) - 1, active);
  }
  const std::uint32_t words = words_of(from.count);
  for (unsigned i = 0; i < active.count; ++i) {
    std::uint32_t* ranks = active.ranks[i];
    ranks[words] = active.before[i];
    for (std::uint32_t j = 1; j < kRankFence; ++j) ranks[words + j] = UINT32_MAX;
  }
  if constexpr (!kHashes) return 0;
  return stripes.digest(hashed + std::uint64_t{kWordBytes} * whole, rest * kBytes,
                        std::uint64_t{from.count} * kBytes);
}

template <template <unsigned> class Words>
FoundChanges find_changes_by(const ChunkView& from, const std::byte* to, Scratch& scratch) noexcept {
  if (from.element.bytes == 1) return find_changes_of<Words, 1>(from, to, scratch);
  if (from.element.bytes == 2) return find_changes_of<Words, 2>(from, to, scratch);
  return find_changes_of<Words, 4>(from, to, scratch);
}

template <template <unsigned> class Words, unsigned kBytes>
std::uint64_t find_members_of(const ChunkView& from, unsigned top, unsigned active, const std::byte* hashed,
                              Scratch& scratch) noexcept {
  if (hashed == nullptr) return scan_members<Words, kBytes, false>(from, top, active, hashed, scratch);
  return scan_members<Words, kBytes, true>(from, top, active, hashed, scratch);
}

template <template <unsigned> class Words>
std::uint64_t find_members_by(const ChunkView& from, unsigned top, unsigned active, const std::byte* hashed,
                              Scratch& scratch) noexcept {
  if (from.element.bytes == 1) return find_members_of<Words, 1>(from, top, active, hashed, scratch);
  if (from.element.bytes == 2) return find_members_of<Words, 2>(from, top, active, hashed, scratch);
  return find_members_of<Words, 4>(from, top, active, hashed, scratch);
}

}  // namespace deltawire::patch::DELTAWIRE_TARGET
