// Encoding a chunk. Compiled again for each target; what differs is behind the functions of patch_scan_*.cc.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "patch/patch_codes_ops.h"
#include "patch/patch_digest_ops.h"
#include "patch/patch_ops.h"

namespace deltawire::patch::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kSampledEvery = 61;  // a prime: no period of a matrix's rows
constexpr std::uint32_t kRareShare = 64;     // a class of its own has at least one of so many weights

// The changes of a chunk, class after class: those of class c begin at begins[c].
struct Changes {
  unsigned classes = 1;
  unsigned top = 0;
  std::uint32_t counts[kClasses] = {};
  std::uint32_t begins[kClasses + 1] = {};
};

// The exponent of class 0: that of the largest weights, the rarest left out.
template <class Bits>
unsigned top_exponent(const ChunkView& from) noexcept {
  std::uint32_t sampled[256] = {};
  std::uint32_t all = 0;
  for (std::uint32_t at = 0; at < from.count; at += kSampledEvery, ++all) {
    const std::uint32_t pattern = load_element<Bits>(from.at, at);
    ++sampled[pattern >> from.element.exponent_shift & from.element.exponent_mask];
  }
  unsigned top = from.element.exponent_mask;
  for (std::uint32_t seen = sampled[top]; top > 0 && kRareShare * seen < all; seen += sampled[top]) --top;
  return top;
}

// Calls each(place) for each change, in order.
template <class Each>
[[gnu::always_inline]] inline void for_each_change(const ChunkView& from, const Scratch& scratch,
                                                   const Each& each) noexcept {
  for (std::uint32_t word = 0; word < words_of(from.count); ++word) {
    for (std::uint64_t left = scratch.changed[word]; left != 0; left &= left - 1) {
      each(kWordElements * word + countr_zero(left));
    }
  }
}

// Leaves ranks and steps of all changes in `scratch`.
template <class Bits>
Changes sort_changes(const ChunkView& from, const std::byte* to, std::uint32_t count, Scratch& scratch,
                     std::uint64_t& to_digest) noexcept {
  const bool is_float = from.element.exponent_mask != 0;
  Changes changes{};
  changes.classes = is_float && count >= kClassesFrom ? kClasses : 1;
  const bool plain = changes.classes == 1;
  if (plain) {
    changes.counts[0] = count;
  } else {
    changes.top = top_exponent<Bits>(from);
    for_each_change(from, scratch, [&](std::uint32_t at) {
      ++changes.counts[class_of(load_element<Bits>(from.at, at), from.element, changes.top)];
    });
  }
  unsigned active = 0;
  std::uint32_t next[kClasses] = {};
  for (unsigned c = 0; c < changes.classes; ++c) {
    active |= static_cast<unsigned>(changes.counts[c] != 0) << c;
    next[c] = changes.begins[c];
    changes.begins[c + 1] = changes.begins[c] + changes.counts[c];
  }
  const std::uint64_t bytes = std::uint64_t{from.count} * sizeof(Bits);
  to_digest =
      plain ? Stripes{}.digest(to, bytes, bytes) : find_members(from, changes.top, active, to, scratch);
  for_each_change(from, scratch, [&](std::uint32_t at) {
    const Bits old_pattern = load_element<Bits>(from.at, at);
    const Bits new_pattern = load_element<Bits>(to, at);
    const unsigned c = plain ? 0 : class_of(old_pattern, from.element, changes.top);
    const std::uint32_t i = next[c]++;
    const std::uint64_t below = (std::uint64_t{1} << at % kWordElements) - 1;
    const std::uint32_t word = at / kWordElements;
    scratch.rank[i] = plain ? at : scratch.ranks[c][word] + popcount(scratch.members[c][word] & below);
    scratch.step[i] = static_cast<Bits>(ordered(new_pattern, is_float) - ordered(old_pattern, is_float));
  });
  return changes;
}

// The positions of some among `all`: their gaps, or those of the others where these are fewer.
void put_positions(BitWriter& out, const std::uint32_t* positions, std::uint32_t count,
                   std::uint32_t all) noexcept {
  std::uint32_t next = 0;
  if (2 * count <= all) {
    const unsigned parameter = gap_parameter(count, all);
    BitWriter codes = out;
    for (std::uint32_t i = 0; i < count; ++i) {
      put_rice(codes, positions[i] - next, parameter, kGapBits);
      next = positions[i] + 1;
    }
    out = codes;
    return;
  }
  const unsigned parameter = gap_parameter(all - count, all);
  std::uint32_t gap_from = 0;
  for (std::uint32_t i = 0; i <= count; ++i) {
    const std::uint32_t end = i < count ? positions[i] : all;
    for (; next < end; ++next) {
      put_rice(out, next - gap_from, parameter, kGapBits);
      gap_from = next + 1;
    }
    next = end + 1;
  }
}

// Signs, one bit each, lowest bits first.
void put_signs(BitWriter& out, const std::uint32_t* steps, std::uint32_t count, unsigned sign_bit) noexcept {
  for (std::uint32_t i = 0; i < count;) {
    std::uint64_t signs = 0;
    unsigned bits = 0;
    for (; bits < 32 && i < count; ++bits, ++i) signs |= std::uint64_t{steps[i] >> sign_bit & 1} << bits;
    out.put(signs, bits);
  }
}

[[gnu::always_inline]] inline std::uint32_t magnitude_of(std::uint32_t step, unsigned sign_bit) noexcept {
  const std::uint32_t mask = sign_bit == 31 ? UINT32_MAX : (2U << sign_bit) - 1;
  return (step >> sign_bit & 1) != 0 ? (0 - step) & mask : step;
}

// The Rice parameter for numbers with this sum: near log2(mean * ln 2).
unsigned magnitude_parameter(std::uint64_t sum, std::uint64_t count) noexcept {
  unsigned parameter = 0;
  while (parameter < kMaxParameter && 3 * count << parameter < 2 * sum) ++parameter;
  return parameter;
}

// The steps of a class: signs, then which are longer than 1, and by how much. `longer` has room for all.
void put_steps(BitWriter& out, const std::uint32_t* steps, std::uint32_t count, unsigned element_bits,
               Before& before, std::uint32_t* longer) noexcept {
  const unsigned sign_bit = element_bits - 1;
  put_signs(out, steps, count, sign_bit);
  std::uint32_t found = 0;
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t magnitude = magnitude_of(steps[i], sign_bit);
    longer[found] = i;
    found += magnitude > 1 ? 1 : 0;
    sum += magnitude > 1 ? magnitude - 2 : 0;
  }
  put_count(out, found, before.long_width);
  if (found == 0) return;
  put_positions(out, longer, found, count);
  const unsigned parameter = magnitude_parameter(sum, found);
  put_near(out, parameter, before.parameter);
  before.parameter = parameter;
  for (std::uint32_t i = 0; i < found; ++i) {
    put_rice(out, magnitude_of(steps[longer[i]], sign_bit) - 2, parameter, element_bits);
  }
}

// Returns the bytes written; 0 where they would be more than `most`.
std::uint32_t put_changes(const ChunkView& from, const Changes& changes, std::byte* out, std::uint32_t most,
                          Scratch& scratch) noexcept {
  BitWriter bits(out, most);
  Before before{};
  const bool plain = changes.classes == 1;
  bits.put(static_cast<unsigned>(plain ? Form::kPlain : Form::kByClass), kFormBits);
  if (!plain) bits.put(changes.top, 8);
  for (unsigned c = 0; c < changes.classes; ++c) put_count(bits, changes.counts[c], before.width);
  for (unsigned c = 0; c < changes.classes; ++c) {
    const std::uint32_t count = changes.counts[c];
    if (count == 0) continue;
    const std::uint32_t begin = changes.begins[c];
    const std::uint32_t all = plain ? from.count : scratch.ranks[c][words_of(from.count)];
    put_positions(bits, scratch.rank + begin, count, all);
    // The ranks of this class are not needed any more.
    put_steps(bits, scratch.step + begin, count, 8 * from.element.bytes, before, scratch.rank + begin);
    if (bits.overflowed()) return 0;
  }
  const auto bytes = static_cast<std::uint32_t>(bits.finish());
  return bits.overflowed() ? 0 : bytes;
}

template <class Bits>
Encoded encode_changes(const ChunkView& from, const std::byte* to, const FoundChanges& found, std::byte* out,
                       Scratch& scratch) noexcept {
  const std::uint32_t full = full_bytes(from.count, sizeof(Bits));
  Encoded encoded{0, found.from_digest, 0};
  const Changes changes = sort_changes<Bits>(from, to, found.count, scratch, encoded.to_digest);
  encoded.bytes = put_changes(from, changes, out, full - 1, scratch);
  if (encoded.bytes != 0) return encoded;
  out[0] = static_cast<std::byte>(Form::kFull);
  std::memcpy(out + 1, to, full - 1);
  encoded.bytes = full;
  return encoded;
}

}  // namespace

Encoded encode_chunk(const ChunkView& from, const std::byte* to, std::byte* out, Scratch& scratch) {
  const FoundChanges found = find_changes(from, to, scratch);
  if (found.count == 0) return {0, found.from_digest, found.from_digest};
  if (from.element.bytes == 1) return encode_changes<std::uint8_t>(from, to, found, out, scratch);
  if (from.element.bytes == 2) return encode_changes<std::uint16_t>(from, to, found, out, scratch);
  return encode_changes<std::uint32_t>(from, to, found, out, scratch);
}

// In steps that a CPU's closest cache holds.
std::uint64_t copy(const std::byte* from, std::uint64_t bytes, std::byte* to) {
  constexpr std::uint64_t kStep = 512;
  Stripes stripes{};
  std::uint64_t done = 0;
  for (; bytes - done >= kStep; done += kStep) {
    std::memcpy(to + done, from + done, kStep);
    stripes.add(from + done, kStep);
  }
  std::memcpy(to + done, from + done, bytes - done);
  return stripes.digest(from + done, bytes - done, bytes);
}

extern const Kernels kKernels;
const Kernels kKernels = {encode_chunk, decode_chunk, apply, copy};

}  // namespace deltawire::patch::DELTAWIRE_TARGET
