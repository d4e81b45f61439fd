// Lengths of codes: which symbols get one, and how long it is.
#include <algorithm>

#include "codecs/gcomp/gcomp_static_tables.h"
#include "codecs/gcomp/gcomp_table.h"

namespace deltawire::gcomp {

namespace {

constexpr std::uint32_t kMaxSymbols = 1U << kMaxCodeBits;
constexpr std::uint32_t kShareForOwnCode = 2048;  // a symbol seen less often than this has no code of its own
constexpr std::uint32_t kExponentBits = 8;        // behind an escape
constexpr std::uint32_t kEscapedBits = kExponentBits + kSignMantissaBits;

// A weight and a slot in one number: from rare to frequent, and of equally frequent ones the highest slot
// counts as the rarest.
std::uint64_t sort_key(const SlotWeight& entry) noexcept {
  return std::uint64_t{entry.weight} << 32 | (kSlots - entry.slot);
}

// One round of package-merge: pairs of `before` become packages, and packages and leaves one ascending list,
// leaves first among equals. is_leaf[i] says which they are. Returns the length of the list.
std::uint32_t merge_packages(std::span<const SlotWeight> leaves, const std::uint32_t* before,
                             std::uint32_t before_count, std::uint32_t* list,
                             std::uint8_t* is_leaf) noexcept {
  const std::uint32_t packages = before_count / 2;
  const auto leaf_count = static_cast<std::uint32_t>(leaves.size());
  std::uint32_t leaf = 0;
  std::uint32_t package = 0;
  std::uint32_t at = 0;
  // Without branches: which of the two comes next is anybody's guess.
  while (leaf < leaf_count && package < packages) {
    const std::uint32_t packed = before[2 * package] + before[2 * package + 1];
    const std::uint32_t weight = leaves[leaf].weight;
    const bool first = weight <= packed;
    list[at] = first ? weight : packed;
    is_leaf[at++] = first ? 1 : 0;
    leaf += first ? 1 : 0;
    package += first ? 0 : 1;
  }
  for (; leaf < leaf_count; ++leaf, ++at) {
    list[at] = leaves[leaf].weight;
    is_leaf[at] = 1;
  }
  for (; package < packages; ++package, ++at) {
    list[at] = before[2 * package] + before[2 * package + 1];
    is_leaf[at] = 0;
  }
  return at;
}

// A histogram by slots.
struct Seen {
  std::uint32_t slots[kSlots] = {};  // kEscapeSlot: what has no slot
  std::uint32_t base = 0;
  std::uint64_t total = 0;
};

// The exponent below the window of kWindow exponents that holds most; the lowest such.
std::uint32_t best_base(const std::uint32_t (&exponents)[256]) noexcept {
  std::uint32_t within = 0;
  for (std::uint32_t exponent = 1; exponent <= kWindow; ++exponent) within += exponents[exponent];
  std::uint32_t most = within;
  std::uint32_t best = 0;
  for (std::uint32_t base = 1; base + kWindow <= 255; ++base) {
    within += exponents[base + kWindow] - exponents[base];
    if (within <= most) continue;
    most = within;
    best = base;
  }
  return best;
}

// Of `kUsed` levels alone there is anything. A constant: the loops over all would take as long as coding a
// short part.
template <std::uint32_t kUsed>
void collect(const Histogram& histogram, Seen& seen) noexcept {
  std::uint32_t exponents[256] = {};
  for (std::uint32_t level = 0; level < kUsed; ++level) {
    for (std::uint32_t e = 1; e < 256; ++e) exponents[e] += histogram.counts[level * 256 + e];
  }
  seen.base = best_base(exponents);
  seen.slots[kZeroSlot] = histogram.counts[kZeroCount];
  seen.slots[kTinySlot] = histogram.counts[kTinyCount];
  std::uint32_t slotted = 0;
  for (std::uint32_t level = 0; level < kUsed; ++level) {
    for (std::uint32_t row = 1; row <= kWindow; ++row) {
      const std::uint32_t count = histogram.counts[level * 256 + seen.base + row];
      seen.slots[level * kRows + row] = count;
      slotted += count;
    }
  }
  for (std::uint32_t e = 1; e < 256; ++e) seen.total += exponents[e];
  seen.slots[kEscapeSlot] = static_cast<std::uint32_t>(seen.total) - slotted;
  seen.total += std::uint64_t{seen.slots[kZeroSlot]} + seen.slots[kTinySlot];
}

// What is rare joins the next lower level of its exponent, from the highest level on, and at the lowest one
// the escape.
void join_rare(Seen& seen) noexcept {
  for (std::uint32_t slot = kSlots; slot-- > 0;) {
    const bool bare = slot == kZeroSlot || slot == kEscapeSlot;
    const std::uint32_t count = seen.slots[slot];
    if (bare || count == 0 || std::uint64_t{count} * kShareForOwnCode >= seen.total) continue;
    const bool lower = slot >= kRows && slot != kTinySlot;
    seen.slots[lower ? slot - kRows : kEscapeSlot] += count;
    seen.slots[slot] = 0;
  }
}

void choose_lengths(const Seen& seen, bool complete, CodeLengths& lengths) noexcept {
  SlotWeight slots[kSlots];
  std::uint32_t count = 0;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    if (seen.slots[slot] > 0) slots[count++] = {seen.slots[slot], slot};
  }
  // A sample may have missed anything. A code needs two symbols.
  const bool unseen = !complete || (count == 1 && seen.slots[kEscapeSlot] == 0);
  if (!complete && seen.slots[kZeroSlot] == 0) slots[count++] = {1, kZeroSlot};
  if (unseen && seen.slots[kEscapeSlot] == 0) slots[count++] = {1, kEscapeSlot};
  if (count == 1) slots[count++] = {1, kZeroSlot};  // escapes alone
  lengths = {};
  lengths.base = seen.base;
  limit_lengths({slots, count}, lengths);
}

// Bits that the seen values take with these lengths. REQUIRES: all of them have codes, or an escape.
std::uint64_t coded_bits(const Seen& seen, const CodeLengths& lengths) noexcept {
  std::uint64_t bits = 0;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    if (seen.slots[slot] == 0) continue;
    const std::uint32_t length = lengths.bits[slot];
    const std::uint32_t each = slot != kEscapeSlot && length != 0 ? length + 3 * thirds_of(slot)
                                                                  : lengths.bits[kEscapeSlot] + kEscapedBits;
    bits += std::uint64_t{seen.slots[slot]} * each;
  }
  return bits;
}

// What was counted of one exponent at one level.
struct Counted {
  std::uint32_t level = 0;
  std::uint32_t exponent = 0;
  std::uint32_t count = 0;
};

// What there is of the normal numbers of a chunk with one level: what is never cut has level 0.
struct AllCounted {
  Counted of[2 * 256];
  std::uint32_t size = 0;
  std::uint32_t highest = 0;  // exponent below that of NaN; 0: none

  AllCounted(const Histogram& histogram, std::uint32_t level) noexcept {
    for (std::uint32_t exponent = 1; exponent < 256; ++exponent) {
      add({0, exponent, histogram.counts[exponent]});
      if (level > 0) add({level, exponent, histogram.counts[level * 256 + exponent]});
    }
  }

 private:
  void add(const Counted& counted) noexcept {
    if (counted.count == 0) return;
    of[size++] = counted;
    if (counted.exponent < 255) highest = counted.exponent;
  }
};

// Bits of what was counted with a static table.
std::uint64_t static_bits(const Histogram& histogram, const AllCounted& counted,
                          const CodeLengths& lengths) noexcept {
  const std::uint32_t escaped = lengths.bits[kEscapeSlot] + kEscapedBits;
  std::uint64_t bits = std::uint64_t{histogram.counts[kZeroCount]} * lengths.bits[kZeroSlot] +
                       std::uint64_t{histogram.counts[kTinyCount]} * escaped;
  for (std::uint32_t i = 0; i < counted.size; ++i) {
    const Counted& each = counted.of[i];
    const std::uint32_t row = each.exponent - lengths.base;
    const std::uint32_t slot = each.level * kRows + row;
    const std::uint32_t length = row - 1 < kWindow ? lengths.bits[slot] : 0;
    bits += std::uint64_t{each.count} * (length != 0 ? length + 3 * thirds_of(slot) : escaped);
  }
  return bits;
}

// Takes a static table if it makes a short chunk smaller than `smallest` bits.
void try_static_tables(const Histogram& histogram, std::uint32_t level, std::uint64_t smallest,
                       TableChoice& choice) noexcept {
  const AllCounted counted(histogram, level);
  for (std::uint32_t id = 1; id <= kStaticTables; ++id) {
    for (std::uint32_t down = 0; down < kStaticTops && down <= counted.highest; ++down) {
      const std::uint32_t top = counted.highest + 1 - down;
      if (!static_fits(top)) continue;
      CodeLengths lengths;
      static_lengths(id, top, level, lengths);
      const std::uint64_t bits = 8 + static_bits(histogram, counted, lengths);
      if (bits >= smallest) continue;
      smallest = bits;
      choice.id = id;
      choice.top = top;
      choice.lengths = lengths;
    }
  }
}

}  // namespace

void limit_lengths(std::span<SlotWeight> slots, CodeLengths& lengths) {
  std::sort(slots.begin(), slots.end(),
            [](const SlotWeight& a, const SlotWeight& b) { return sort_key(a) < sort_key(b); });
  const auto count = static_cast<std::uint32_t>(slots.size());
  std::uint32_t lists[2][2 * kMaxSymbols];
  std::uint8_t is_leaf[kMaxCodeBits][2 * kMaxSymbols];
  std::uint32_t listed = 0;
  for (unsigned round = 0; round < kMaxCodeBits; ++round) {
    listed = merge_packages(slots, lists[(round + 1) % 2], listed, lists[round % 2], is_leaf[round]);
  }
  // The cheapest 2 (count - 1) of the last list are taken, with all that their packages hold: a package taken
  // means two of the list before. Leaves are taken from the rarest on, and each makes its code a bit longer.
  std::uint32_t taken = 2 * (count - 1);
  for (unsigned round = kMaxCodeBits; round-- > 0;) {
    std::uint32_t leaves = 0;
    for (std::uint32_t i = 0; i < taken; ++i) leaves += is_leaf[round][i];
    for (std::uint32_t i = 0; i < leaves; ++i) ++lengths.bits[slots[i].slot];
    taken = 2 * (taken - leaves);
  }
}

void choose_table(const Histogram& histogram, const Rule& rule, TableChoice& choice) {
  Seen seen;
  rule.whole() ? collect<1>(histogram, seen) : collect<kLevels>(histogram, seen);
  join_rare(seen);
  choose_lengths(seen, histogram.complete, choice.lengths);
  choice.id = 0;
  choice.top = 0;
  const std::uint64_t bits = coded_bits(seen, choice.lengths);
  choice.worth_coding = bits < seen.total * kValueBytes * 8;
  if (!histogram.complete || rule.keep == Keep::kSignificance) return;
  std::byte own[kMaxTableBytes];
  const std::uint64_t table_bits = std::uint64_t{write_table(choice, rule.whole(), own)} * 8;
  try_static_tables(histogram, rule.whole() ? 0 : rule.level, table_bits + bits, choice);
}

}  // namespace deltawire::gcomp
