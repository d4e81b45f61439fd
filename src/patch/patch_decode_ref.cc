// Decoding a chunk, from any bytes. Compiled again for each target; what differs is behind the functions of
// patch_scan_*.cc.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "patch/patch_codes_ops.h"
#include "patch/patch_ops.h"

namespace deltawire::patch::DELTAWIRE_TARGET {

namespace {

// The number of the set bit that has `rank` set bits below it. REQUIRES: there is one.
[[gnu::always_inline]] inline std::uint32_t set_bit_of_rank(std::uint64_t word, std::uint32_t rank) noexcept {
#ifdef __BMI2__
  return countr_zero(__builtin_ia32_pdep_di(std::uint64_t{1} << rank, word));
#else
  for (; rank > 0; --rank) word &= word - 1;
  return countr_zero(word);
#endif
}

// Finds members of a class by their ranks, which must grow.
struct Search {
  const std::uint64_t* members;
  const std::uint32_t* ranks;
  std::uint32_t word = 0;

  // REQUIRES: rank is below the number of members, which stands behind the last word's rank.
  [[gnu::always_inline]] std::uint32_t place_of(std::uint32_t rank) noexcept {
    while (ranks[word + 8] <= rank) word += 8;
    word += ranks[word + 4] <= rank ? 4 : 0;
    word += ranks[word + 2] <= rank ? 2 : 0;
    word += ranks[word + 1] <= rank ? 1 : 0;
    return kWordElements * word + set_bit_of_rank(members[word], rank - ranks[word]);
  }
};

// Reads the positions of `count` among `all` and calls each(position).
template <class Each>
[[gnu::always_inline]] inline Fault get_gaps(BitWindow& in, std::uint32_t count, std::uint32_t all,
                                             const Each& each) noexcept {
  const unsigned parameter = gap_parameter(count, all);
  BitWindow codes = in;
  Fault fault = Fault::kNone;
  std::uint64_t next = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    next += get_rice(codes, parameter, kGapBits, fault);
    if (next >= all) [[unlikely]]
      return codes.exhausted() ? Fault::kTruncated : Fault::kPosition;
    each(static_cast<std::uint32_t>(next));
    ++next;
  }
  in = codes;
  return fault;
}

// Appends the numbers of the bits that are set in `some` and not in `marks`, or in both.
[[gnu::always_inline]] inline std::uint32_t list_unmarked(const std::uint64_t* some, std::uint64_t* marks,
                                                          std::uint32_t all, std::uint16_t* places) noexcept {
  std::uint32_t found = 0;
  for (std::uint32_t word = 0; word < words_of(all); ++word) {
    std::uint64_t left = ~marks[word];
    const std::uint32_t inside = all - kWordElements * word;
    if (some != nullptr) {
      left &= some[word];
    } else if (inside < kWordElements) {
      left &= (std::uint64_t{1} << inside) - 1;
    }
    for (; left != 0; left &= left - 1) {
      places[found++] = static_cast<std::uint16_t>(kWordElements * word + countr_zero(left));
    }
  }
  return found;
}

[[gnu::always_inline]] inline void mark(std::uint64_t* marks, std::uint32_t place) noexcept {
  marks[place / kWordElements] |= std::uint64_t{1} << place % kWordElements;
}

// The places of a class's changes. `members` is null where every element is a member.
Fault get_places(BitWindow& in, std::uint32_t count, std::uint32_t all, Search members,
                 std::uint32_t elements, std::uint64_t* marks, std::uint16_t* places) noexcept {
  const bool plain = members.members == nullptr;
  if (2 * count <= all) {
    if (plain) return get_gaps(in, count, all, [&](auto at) { *places++ = static_cast<std::uint16_t>(at); });
    return get_gaps(in, count, all,
                    [&](auto rank) { *places++ = static_cast<std::uint16_t>(members.place_of(rank)); });
  }
  std::memset(marks, 0, sizeof(std::uint64_t) * words_of(elements));
  const std::uint64_t* some = members.members;
  const Fault fault =
      get_gaps(in, all - count, all, [&](auto rank) { mark(marks, plain ? rank : members.place_of(rank)); });
  if (fault == Fault::kNone) list_unmarked(some, marks, elements, places);
  return fault;
}

void get_signs(BitWindow& in, std::uint32_t* steps, std::uint32_t count) noexcept {
  for (std::uint32_t i = 0; i < count;) {
    const std::uint64_t signs = in.peek();
    const std::uint32_t bits = count - i < 32 ? count - i : 32;
    for (std::uint32_t j = 0; j < bits; ++j)
      steps[i + j] = 1 - 2 * static_cast<std::uint32_t>(signs >> j & 1);
    in.position += bits;
    i += bits;
  }
}

// Lengthens some of the steps, which are 1 or -1 yet.
Fault get_long_steps(BitWindow& in, std::uint32_t* steps, std::uint32_t count, unsigned element_bits,
                     Before& before, std::uint64_t* marks) noexcept {
  Fault fault = Fault::kNone;
  const std::uint32_t found = get_count(in, before.long_width, fault);
  if (found > count) return Fault::kCount;
  if (found == 0 || fault != Fault::kNone) return fault;
  const bool inverted = 2 * found > count;
  std::memset(marks, 0, sizeof(std::uint64_t) * words_of(count));
  fault = get_gaps(in, inverted ? count - found : found, count, [&](auto at) { mark(marks, at); });
  if (fault != Fault::kNone) return fault;
  const unsigned parameter = get_near(in, before.parameter, kMaxParameter, fault);
  before.parameter = parameter;
  const std::uint64_t most = std::uint64_t{1} << (element_bits - 1);
  for (std::uint32_t word = 0; word < words_of(count); ++word) {
    std::uint64_t left = inverted ? ~marks[word] : marks[word];
    const std::uint32_t inside = count - kWordElements * word;
    if (inside < kWordElements) left &= (std::uint64_t{1} << inside) - 1;
    for (; left != 0; left &= left - 1) {
      std::uint32_t& step = steps[kWordElements * word + countr_zero(left)];
      const std::uint64_t magnitude = 2 + get_rice(in, parameter, element_bits, fault);
      // One more step leads down than up.
      if (magnitude > most - (step == 1 ? 1 : 0)) return in.exhausted() ? Fault::kTruncated : Fault::kStep;
      step *= static_cast<std::uint32_t>(magnitude);
    }
  }
  return fault;
}

Decoded decode_full(const ChunkView& from, const CodedView& coded) noexcept {
  const std::uint64_t bytes = full_bytes(from.count, from.element.bytes);
  Fault fault = Fault::kNone;
  if (coded.bytes > bytes || coded.at[0] != static_cast<std::byte>(Form::kFull)) fault = Fault::kTrailing;
  if (coded.bytes < bytes) fault = Fault::kTruncated;
  return {fault, Form::kFull, 0};
}

// Places and steps of all classes.
Fault get_changes(BitWindow& in, const ChunkView& from, const std::uint32_t* counts, unsigned classes,
                  Scratch& scratch) noexcept {
  Before before{};
  std::uint32_t begin = 0;
  for (unsigned c = 0; c < classes; ++c) {
    if (counts[c] == 0) continue;
    const bool plain = classes == 1;
    const std::uint32_t all = plain ? from.count : scratch.ranks[c][words_of(from.count)];
    if (counts[c] > all) return Fault::kCount;
    const Search members{plain ? nullptr : scratch.members[c], plain ? nullptr : scratch.ranks[c]};
    Fault fault = get_places(in, counts[c], all, members, from.count, scratch.marks, scratch.place + begin);
    if (fault != Fault::kNone) return fault;
    get_signs(in, scratch.step + begin, counts[c]);
    fault =
        get_long_steps(in, scratch.step + begin, counts[c], 8 * from.element.bytes, before, scratch.marks);
    if (in.exhausted()) return Fault::kTruncated;
    if (fault != Fault::kNone) return fault;
    begin += counts[c];
  }
  return Fault::kNone;
}

template <class Bits>
void apply_steps(const Decoded& decoded, bool is_float, const Scratch& scratch, std::byte* weights) noexcept {
  for (std::uint32_t i = 0; i < decoded.changes; ++i) {
    std::byte* at = weights + sizeof(Bits) * scratch.place[i];
    const Bits number = ordered(load_le<Bits>(at), is_float);
    store_le(at, from_ordered(static_cast<Bits>(number + scratch.step[i]), is_float));
  }
}

}  // namespace

Decoded decode_chunk(const ChunkView& from, const CodedView& coded, Scratch& scratch) {
  BitWindow in{coded.at, coded.bytes};
  if (coded.bytes == 0) return {Fault::kTruncated, Form::kPlain, 0};
  const auto form = static_cast<Form>(in.peek() & ((1U << kFormBits) - 1));
  in.position += kFormBits;
  if (form == Form::kFull) return decode_full(from, coded);
  const bool by_class = form == Form::kByClass && from.element.exponent_mask != 0;
  if (form != Form::kPlain && !by_class) return {Fault::kForm, form, 0};
  unsigned top = 0;
  if (by_class) {
    top = static_cast<unsigned>(in.peek() & 0xFF);
    in.position += 8;
    if (top > from.element.exponent_mask) return {Fault::kForm, form, 0};
  }
  const unsigned classes = by_class ? kClasses : 1;
  Decoded decoded{Fault::kNone, form, 0};
  std::uint32_t counts[kClasses] = {};
  unsigned active = 0;
  Before before{};
  for (unsigned c = 0; c < classes; ++c) {
    counts[c] = get_count(in, before.width, decoded.fault);
    active |= static_cast<unsigned>(counts[c] != 0) << c;
    decoded.changes += counts[c];
  }
  if (in.exhausted()) decoded.fault = Fault::kTruncated;
  if (decoded.fault != Fault::kNone) return decoded;
  if (decoded.changes == 0 || decoded.changes > from.count) return {Fault::kCount, form, 0};
  if (by_class) find_members(from, top, active, nullptr, scratch);
  decoded.fault = get_changes(in, from, counts, classes, scratch);
  if (decoded.fault == Fault::kNone && !in.at_clean_end()) decoded.fault = Fault::kTrailing;
  return decoded;
}

void apply(const Decoded& decoded, const CodedView& coded, const ChunkView& from, const Scratch& scratch,
           std::byte* weights) {
  if (decoded.form == Form::kFull) {
    std::memcpy(weights, coded.at + 1, std::uint64_t{from.count} * from.element.bytes);
    return;
  }
  const bool is_float = from.element.exponent_mask != 0;
  if (from.element.bytes == 1) return apply_steps<std::uint8_t>(decoded, is_float, scratch, weights);
  if (from.element.bytes == 2) return apply_steps<std::uint16_t>(decoded, is_float, scratch, weights);
  apply_steps<std::uint32_t>(decoded, is_float, scratch, weights);
}

}  // namespace deltawire::patch::DELTAWIRE_TARGET
