// Reference kernels: which elements changed, and which weights are in which class.
#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "patch/patch_codes_ops.h"
#include "patch/patch_digest_ops.h"
#include "patch/patch_ops.h"

namespace deltawire::patch::DELTAWIRE_TARGET {

namespace {

std::uint64_t digest_of(const std::byte* weights, const ChunkView& view) noexcept {
  const std::uint64_t bytes = std::uint64_t{view.count} * view.element.bytes;
  return Stripes{}.digest(weights, bytes, bytes);
}

template <class Bits>
std::uint32_t find_changes_of(const ChunkView& from, const std::byte* to, Scratch& scratch) noexcept {
  std::uint32_t changes = 0;
  for (std::uint32_t word = 0; word < words_of(from.count); ++word) {
    scratch.changed[word] = 0;
    for (std::uint32_t bit = 0; bit < kWordElements; ++bit) {
      const std::uint32_t at = kWordElements * word + bit;
      if (at == from.count) break;
      const bool differs = load_element<Bits>(from.at, at) != load_element<Bits>(to, at);
      scratch.changed[word] |= std::uint64_t{differs} << bit;
    }
    changes += popcount(scratch.changed[word]);
  }
  return changes;
}

template <class Bits>
void find_members_of(const ChunkView& from, unsigned top, unsigned active, Scratch& scratch) noexcept {
  const std::uint32_t words = words_of(from.count);
  std::uint32_t before[kClasses] = {};
  for (std::uint32_t word = 0; word < words; ++word) {
    for (unsigned c = 0; c < kClasses; ++c) scratch.members[c][word] = 0;
    for (std::uint32_t bit = 0; bit < kWordElements; ++bit) {
      const std::uint32_t at = kWordElements * word + bit;
      if (at == from.count) break;
      const unsigned c = class_of(load_element<Bits>(from.at, at), from.element, top);
      scratch.members[c][word] |= std::uint64_t{1} << bit;
    }
    for (unsigned c = 0; c < kClasses; ++c) {
      scratch.ranks[c][word] = before[c];
      before[c] += popcount(scratch.members[c][word]);
    }
  }
  for (unsigned c = 0; c < kClasses; ++c) {
    if ((active >> c & 1) == 0) continue;
    scratch.ranks[c][words] = before[c];
    for (std::uint32_t i = 1; i < kRankFence; ++i) scratch.ranks[c][words + i] = UINT32_MAX;
  }
}

}  // namespace

FoundChanges find_changes(const ChunkView& from, const std::byte* to, Scratch& scratch) {
  const std::uint64_t digest = digest_of(from.at, from);
  if (from.element.bytes == 1) return {find_changes_of<std::uint8_t>(from, to, scratch), digest};
  if (from.element.bytes == 2) return {find_changes_of<std::uint16_t>(from, to, scratch), digest};
  return {find_changes_of<std::uint32_t>(from, to, scratch), digest};
}

std::uint64_t find_members(const ChunkView& from, unsigned top, unsigned active, const std::byte* hashed,
                           Scratch& scratch) {
  if (from.element.bytes == 1) find_members_of<std::uint8_t>(from, top, active, scratch);
  if (from.element.bytes == 2) find_members_of<std::uint16_t>(from, top, active, scratch);
  if (from.element.bytes == 4) find_members_of<std::uint32_t>(from, top, active, scratch);
  return hashed == nullptr ? 0 : digest_of(hashed, from);
}

}  // namespace deltawire::patch::DELTAWIRE_TARGET
