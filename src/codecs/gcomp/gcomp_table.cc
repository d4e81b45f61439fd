#include "codecs/gcomp/gcomp_table.h"

#include <algorithm>

namespace deltawire::gcomp {

// Lengths of codes: which symbols get one, and how long it is.
namespace {

constexpr std::uint32_t kMaxSymbols = 1U << kMaxCodeBits;
constexpr std::uint32_t kShareForOwnCode = 2048;  // a symbol seen less often than this share has no code
constexpr std::uint32_t kExponentBits = 8;        // behind an escape
// Behind the code of an escape.
constexpr std::uint32_t escaped_bits(Precision precision) noexcept {
  return kExponentBits + kSignMantissaBits - precision.unused;
}

// Behind the code of a slot that is no escape.
constexpr std::uint32_t width_of(std::uint32_t slot, Precision precision) noexcept {
  return precision.step * precision.steps_behind(slot);
}

// A weight and a slot in one number: sorts from rare to frequent; among equally frequent slots the highest
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
  // Without branches: which of the two comes next is unpredictable.
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
  std::uint32_t end = kSlots;  // no slot from here on was seen
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

// Only the first `kUsed` levels hold anything. A constant, because loops over all levels would take as long
// as coding a short part.
template <std::uint32_t kUsed>
void collect(const Histogram& histogram, Seen& seen) noexcept {
  std::uint32_t exponents[256] = {};
  for (std::uint32_t level = 0; level < kUsed; ++level) {
    for (std::uint32_t e = 1; e < 256; ++e) exponents[e] += histogram.counts[level * 256 + e];
  }
  seen.base = best_base(exponents);
  if (kUsed == 1) seen.end = kTinySlot + 1;
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

// A rare symbol joins the next lower level of its exponent, from the highest level down, and at the lowest
// the escape.
void join_rare(Seen& seen) noexcept {
  for (std::uint32_t slot = seen.end; slot-- > 0;) {
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
  for (std::uint32_t slot = 0; slot < seen.end; ++slot) {
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
  for (std::uint32_t slot = 0; slot < seen.end; ++slot) {
    if (seen.slots[slot] == 0) continue;
    const std::uint32_t length = lengths.bits[slot];
    const std::uint32_t each = slot != kEscapeSlot && length != 0
                                   ? length + width_of(slot, lengths.precision)
                                   : lengths.bits[kEscapeSlot] + escaped_bits(lengths.precision);
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

// The counts of normal numbers in a chunk with one level; values that are never cut have level 0.
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

// Bits that the counted values take with a static table, whose codes are all at `level`.
std::uint64_t static_bits(const Histogram& histogram, const AllCounted& counted, const StaticShape& shape,
                          std::uint32_t top, std::uint32_t level) noexcept {
  const std::uint32_t escaped = shape.escape + escaped_bits(kFloat32);
  const std::uint32_t width = width_of(level * kRows + 1, kFloat32);
  std::uint64_t bits = std::uint64_t{histogram.counts[kZeroCount]} * shape.zero +
                       std::uint64_t{histogram.counts[kTinyCount]} * escaped;
  for (std::uint32_t i = 0; i < counted.size; ++i) {
    const Counted& each = counted.of[i];
    const std::uint32_t below = top - each.exponent;
    const bool coded = each.level == level && below < kStaticExponents;
    bits += std::uint64_t{each.count} * (coded ? shape.exponents[below] + width : escaped);
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
      const std::uint64_t bits = 8 + static_bits(histogram, counted, kStaticShapes[id - 1], top, level);
      if (bits >= smallest) continue;
      smallest = bits;
      choice.id = id;
      choice.top = top;
    }
  }
  if (choice.id != 0) static_lengths(choice.id, choice.top, level, choice.lengths);
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
  choice.lengths.precision = rule.precision;
  choice.id = 0;
  choice.top = 0;
  choice.bits = coded_bits(seen, choice.lengths);
  choice.worth_coding = choice.bits < seen.total * kValueBytes * 8;
  if (!histogram.complete || rule.keep == Keep::kSignificance || rule.precision.is_half()) return;
  std::byte own[kMaxTableBytes];
  const std::uint64_t table_bits = std::uint64_t{write_table(choice, rule.whole(), own)} * 8;
  try_static_tables(histogram, rule.whole() ? 0 : rule.level, table_bits + choice.bits, choice);
}

void choose_table(const Kernels& kernels, const Values& chunk, TableChoice& choice) {
  Histogram histogram;
  kernels.histogram(chunk, histogram.counts);
  histogram.complete = sample_share(chunk.count) == 0;
  choose_table(histogram, chunk.rule, choice);
}

// Tables as bytes, and as lookup tables for encoders and decoders.
namespace {

constexpr std::uint32_t kCompleteCode = 1U << kMaxCodeBits;  // sum of 2^(kMaxCodeBits - length)

// Rows of one level that have codes.
struct Rows {
  std::uint32_t first = 1;
  std::uint32_t end = 1;
};

Rows rows_of(const CodeLengths& lengths, std::uint32_t level) noexcept {
  const std::uint8_t* bits = lengths.bits + level * kRows;
  Rows rows{1, kWindow + 1};
  while (rows.first < rows.end && bits[rows.first] == 0) ++rows.first;
  while (rows.end > rows.first && bits[rows.end - 1] == 0) --rows.end;
  return rows;
}

// Lengths of the exponents of one level: how many, the first, and a nibble for each. Nothing if there are
// none.
std::uint32_t write_window(const CodeLengths& lengths, std::uint32_t level, std::byte* out) noexcept {
  const std::uint8_t* bits = lengths.bits + level * kRows;
  const Rows rows = rows_of(lengths, level);
  if (rows.first == rows.end) return 0;
  out[0] = static_cast<std::byte>(rows.end - rows.first);
  out[1] = static_cast<std::byte>(lengths.base + rows.first);
  std::uint32_t at = 2;
  for (std::uint32_t row = rows.first; row < rows.end; row += 2) {
    out[at++] = two_lengths(bits[row], row + 1 < rows.end ? bits[row + 1] : 0U);
  }
  return at;
}

// Lengths by exponent, as they are read: the lowest exponent is known only at the end.
struct ReadLengths {
  std::uint8_t escape = 0;
  std::uint8_t zero = 0;
  std::uint8_t tiny = 0;
  std::uint8_t bits[kCounts] = {};
  std::uint32_t lowest = 255;
  std::uint32_t highest = 0;
};

// Reads a table's bytes one by one; past the end it returns 0 and sets `truncated`.
class TableReader {
 public:
  explicit TableReader(const TableBytes& in) noexcept : in_(in) {}

  std::uint32_t next() noexcept {
    if (used_ == in_.bytes) {
      truncated_ = true;
      return 0;
    }
    return std::to_integer<std::uint32_t>(in_.at[used_++]);
  }

  // A byte of two lengths.
  Fault next_pair(std::uint8_t& low, std::uint8_t& high) noexcept {
    const std::uint32_t pair = next();
    low = static_cast<std::uint8_t>(pair & 0xF);
    high = static_cast<std::uint8_t>(pair >> kNibbleBits);
    return low <= kMaxCodeBits && high <= kMaxCodeBits ? nullptr : &faults::kTableLength;
  }

  Fault next_window(ReadLengths& lengths, std::uint32_t level) noexcept {
    const std::uint32_t count = next();
    const std::uint32_t first = next();
    const std::uint32_t highest = level == 0 ? 255 : 254;  // NaN and Inf are never cut
    if (count == 0 || count > kWindow || first == 0 || first + count - 1 > highest) {
      return truncated_ ? &faults::kTruncated : &faults::kTableWindow;
    }
    std::uint8_t* bits = lengths.bits + level * 256 + first;
    for (std::uint32_t i = 0; i < count; i += 2) {
      std::uint8_t second = 0;
      if (const Fault fault = next_pair(bits[i], second); fault != nullptr) return fault;
      if (i + 1 < count) {
        bits[i + 1] = second;
      } else if (second != 0) {
        return &faults::kTablePadding;
      }
    }
    lengths.lowest = std::min(lengths.lowest, first);
    lengths.highest = std::max(lengths.highest, first + count - 1);
    return (bits[0] != 0 && bits[count - 1] != 0) || truncated_ ? nullptr : &faults::kTableWindow;
  }

  bool truncated() const noexcept { return truncated_; }
  std::uint32_t used() const noexcept { return used_; }

 private:
  const TableBytes& in_;
  std::uint32_t used_ = 0;
  bool truncated_ = false;
};

Fault read_windows(TableReader& reader, bool whole, ReadLengths& lengths) noexcept {
  if (const Fault fault = reader.next_pair(lengths.escape, lengths.zero); fault != nullptr) return fault;
  std::uint8_t padding = 0;
  if (whole) {
    if (const Fault fault = reader.next_pair(lengths.tiny, padding); fault != nullptr) return fault;
    if (padding != 0) return &faults::kTablePadding;
  }
  const std::uint32_t levels = reader.next();
  if (whole && levels > 1) return &faults::kTableWindow;
  for (std::uint32_t level = 0; level < kLevels; ++level) {
    if ((levels >> level & 1) == 0) continue;
    if (const Fault fault = reader.next_window(lengths, level); fault != nullptr) return fault;
  }
  return nullptr;
}

Fault read_own_table(TableReader& reader, bool whole, CodeLengths& lengths) noexcept {
  ReadLengths read;
  const Fault fault = read_windows(reader, whole, read);
  if (reader.truncated()) return &faults::kTruncated;
  if (fault != nullptr) return fault;
  lengths.bits[kEscapeSlot] = read.escape;
  lengths.bits[kZeroSlot] = read.zero;
  lengths.bits[kTinySlot] = read.tiny;
  if (read.highest == 0) return nullptr;
  if (read.highest - read.lowest >= kWindow) return &faults::kTableWindow;
  lengths.base = read.lowest - 1;
  for (std::uint32_t level = 0; level < kLevels; ++level) {
    for (std::uint32_t e = read.lowest; e <= read.highest; ++e) {
      lengths.bits[level * kRows + e - lengths.base] = read.bits[level * 256 + e];
    }
  }
  return nullptr;
}

// The first code of each length: codes of one length count up by symbol, and shorter ones come before longer
// ones. Returns the sum of 2^(kMaxCodeBits - length), kCompleteCode for a complete code.
std::uint32_t first_codes(const CodeLengths& lengths, std::uint32_t (&first)[kMaxCodeBits + 1]) noexcept {
  std::uint32_t with_length[kMaxCodeBits + 1] = {};
  // Slots without a code are skipped: most have none, and each count waits for the one before it.
  for (const std::uint8_t bits : lengths.bits) {
    if (bits != 0) ++with_length[bits];
  }
  std::uint32_t at = 0;  // in units of the longest code
  for (unsigned length = 1; length <= kMaxCodeBits; ++length) {
    first[length] = at >> (kMaxCodeBits - length);
    at += with_length[length] << (kMaxCodeBits - length);
  }
  return at;
}

// A code as it stands in the stream: its first bit is the lowest.
std::uint32_t reversed(std::uint32_t code, unsigned length) noexcept {
  std::uint32_t out = 0;
  for (unsigned i = 0; i < length; ++i) out |= (code >> i & 1) << (length - 1 - i);
  return out;
}

void make_decode_table(const CodeLengths& lengths, std::uint32_t (&first)[kMaxCodeBits + 1],
                       DecodeTable& table) noexcept {
  for (std::uint64_t& word : table.coded) word = 0;
  table.base = lengths.base;
  table.step = lengths.precision.step;
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    const unsigned length = lengths.bits[slot];
    if (length == 0) continue;
    const std::uint32_t row = slot % kRows;
    const std::uint32_t width = width_of(slot, lengths.precision);
    const std::uint32_t entry = length | width << kEntryWidthShift | row << kEntryRowShift;
    for (std::uint32_t at = reversed(first[length]++, length); at < kCompleteCode; at += 1U << length) {
      table.entry[at] = static_cast<std::uint16_t>(entry);
    }
    // What an escape may not stand for: exponents with a code at level 0, and tiny values with one.
    const bool plain = slot < kRows && row > 0 && row <= kWindow;
    const std::uint32_t exponent = plain ? lengths.base + row : 0;
    if (plain || slot == kTinySlot) table.coded[exponent / 64] |= std::uint64_t{1} << exponent % 64;
  }
}

}  // namespace

std::uint32_t write_table(const TableChoice& choice, bool whole, std::byte* out) {
  if (choice.id != 0) {
    out[0] = static_cast<std::byte>(choice.top);
    return 1;
  }
  const CodeLengths& lengths = choice.lengths;
  std::uint32_t at = 0;
  out[at++] = two_lengths(lengths.bits[kEscapeSlot], lengths.bits[kZeroSlot]);
  if (whole) out[at++] = two_lengths(lengths.bits[kTinySlot], 0);
  const std::uint32_t levels_at = at++;
  std::uint32_t levels = 0;
  for (std::uint32_t level = 0; level < (whole ? 1 : kLevels); ++level) {
    const std::uint32_t bytes = write_window(lengths, level, out + at);
    levels |= (bytes > 0 ? 1U : 0U) << level;
    at += bytes;
  }
  out[levels_at] = static_cast<std::byte>(levels);
  return at;
}

void make_encode_table(const CodeLengths& lengths, EncodeTable& table) {
  std::uint32_t first[kMaxCodeBits + 1] = {};
  first_codes(lengths, first);
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
    const unsigned length = lengths.bits[slot];
    table.entry[slot] = 0;
    if (length == 0) continue;
    const std::uint32_t steps = lengths.precision.steps_behind(slot);
    table.entry[slot] = static_cast<std::uint16_t>(reversed(first[length]++, length) << kEntryCodeShift |
                                                   length | steps << kEntryStepsShift);
  }
  table.base = lengths.base;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    const std::uint32_t row = exponent - lengths.base;
    const bool inside = row - 1 < kWindow;
    table.row[exponent] = static_cast<std::uint8_t>(inside ? row : kEscapeSlot);
    table.levels[exponent] = static_cast<std::uint8_t>(inside ? kSlots - kRows : 0);
  }
  table.row[0] = kZeroSlot;
  table.levels[0] = static_cast<std::uint8_t>(kSlots - kRows);
  table.escape = table.entry[kEscapeSlot];
  // A slot without a code uses that of the level below; at the lowest level, or for tiny values, the
  // escape's.
  const auto fill = [&table](std::uint32_t slot, std::uint16_t with) {
    table.entry[slot] = table.entry[slot] != 0 ? table.entry[slot] : with;
  };
  for (std::uint32_t slot = 1; slot < kRows; ++slot) fill(slot, table.escape);
  fill(kTinySlot, table.escape);
  for (std::uint32_t level = 1; level < kLevels; ++level) {
    for (std::uint32_t slot = level * kRows; slot < (level + 1) * kRows; ++slot) {
      fill(slot, table.entry[slot - kRows]);
    }
  }
}

Fault read_table(const TableBytes& in, DecodeTable& table, std::uint32_t& used) {
  CodeLengths lengths;
  lengths.precision = in.precision;
  TableReader reader(in);
  if (in.id == 0) {
    const Fault fault = read_own_table(reader, in.whole, lengths);
    if (fault != nullptr) return fault;
  } else {
    const std::uint32_t top = reader.next();
    if (reader.truncated()) return &faults::kTruncated;
    if (!static_fits(top)) return &faults::kTableWindow;
    static_lengths(in.id, top, in.level, lengths);
  }
  std::uint32_t first[kMaxCodeBits + 1] = {};
  if (first_codes(lengths, first) != kCompleteCode) return &faults::kTableKraft;
  table.whole = in.whole;
  table.in_bytes = in.whole && !in.precision.is_half();
  make_decode_table(lengths, first, table);
  used = reader.used();
  return nullptr;
}

}  // namespace deltawire::gcomp
