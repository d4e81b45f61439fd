// Lengths of codes: which symbols get one, and how long it is.
#include <algorithm>

#include "codecs/gcomp/gcomp_static_tables.h"
#include "codecs/gcomp/gcomp_table.h"

namespace deltawire::gcomp {

namespace {

constexpr std::uint32_t kMaxSymbols = 1U << kMaxCodeBits;
constexpr std::uint32_t kShareForOwnCode = 1024;  // a symbol seen less often than this is escaped

// From rare to frequent; of equally frequent ones the highest symbol counts as the rarest.
bool rarer(const SymbolWeight& a, const SymbolWeight& b) noexcept {
  return a.weight != b.weight ? a.weight < b.weight : a.symbol > b.symbol;
}

// One round of package-merge: pairs of `before` become packages, and packages and leaves one ascending list,
// leaves first among equals. is_leaf[i] says which they are. Returns the length of the list.
std::uint32_t merge_packages(std::span<const SymbolWeight> leaves, const std::uint64_t* before,
                             std::uint32_t before_count, std::uint64_t* list, bool* is_leaf) noexcept {
  const std::uint32_t packages = before_count / 2;
  std::uint32_t leaf = 0;
  std::uint32_t package = 0;
  std::uint32_t at = 0;
  while (leaf < leaves.size() || package < packages) {
    const std::uint64_t packed = package < packages ? before[2 * package] + before[2 * package + 1] : 0;
    is_leaf[at] = package == packages || (leaf < leaves.size() && leaves[leaf].weight <= packed);
    list[at] = is_leaf[at] ? leaves[leaf].weight : packed;
    if (is_leaf[at]) {
      ++leaf;
    } else {
      ++package;
    }
    ++at;
  }
  return at;
}

// Levels whose symbols a chunk under `rule` may hold.
std::uint32_t levels_of(const Rule& rule) noexcept {
  switch (rule.keep) {
    case Keep::kLevel: return 1;
    case Keep::kEverything: return 2;  // kTinySymbol counts as level 1
    case Keep::kSignificance: return kLevels;
  }
  return kLevels;
}

// What a histogram holds, frequent symbols first.
struct Seen {
  SymbolWeight symbols[kPlainSymbols];
  std::uint32_t count = 0;
  std::uint64_t total = 0;
};

void collect(const Histogram& histogram, Seen& seen) noexcept {
  for (std::uint32_t symbol = 0; symbol < kPlainSymbols; ++symbol) {
    if (histogram.counts[symbol] == 0) continue;
    seen.symbols[seen.count++] = {histogram.counts[symbol], symbol};
    seen.total += histogram.counts[symbol];
  }
  std::sort(seen.symbols, seen.symbols + seen.count,
            [](const auto& a, const auto& b) { return rarer(b, a); });
}

// The symbols that get a code of their own; returns how many. What the others were counted goes to the escape
// of their level.
std::uint32_t pick_symbols(const Seen& seen, SymbolWeight* picked, std::uint32_t* escaped) noexcept {
  std::uint32_t own = 0;
  while (own < seen.count && own < kMaxCodedSymbols &&
         std::uint64_t{seen.symbols[own].weight} * kShareForOwnCode >= seen.total) {
    picked[own] = seen.symbols[own];
    ++own;
  }
  for (std::uint32_t i = own; i < seen.count; ++i) {
    escaped[seen.symbols[i].symbol % kLevels] += seen.symbols[i].weight;
  }
  return own;
}

// REQUIRES: `seen` isn't empty.
void choose_lengths(const Seen& seen, bool complete, const Rule& rule, CodeLengths& lengths) noexcept {
  SymbolWeight symbols[kMaxCodedSymbols + kLevels];
  std::uint32_t escaped[kLevels] = {};
  std::uint32_t count = pick_symbols(seen, symbols, escaped);
  const std::uint32_t levels = levels_of(rule);
  for (std::uint32_t level = 0; level < levels; ++level) {
    // A sample may have missed any symbol, so all escapes exist. A code needs two symbols.
    const bool needed = escaped[level] > 0 || !complete || (count == 1 && level + 1 == levels);
    if (needed) symbols[count++] = {std::max(escaped[level], 1U), kPlainSymbols + level};
  }
  lengths = {};
  limit_lengths({symbols, count}, lengths);
}

// Bits that the seen symbols take with these lengths.
std::uint64_t code_bits(const Seen& seen, const CodeLengths& lengths) noexcept {
  std::uint64_t bits = 0;
  for (std::uint32_t i = 0; i < seen.count; ++i) {
    const std::uint32_t symbol = seen.symbols[i].symbol;
    const std::uint32_t own = lengths.bits[symbol];
    const std::uint32_t escape = lengths.bits[kPlainSymbols + symbol % kLevels] + kExponentBits;
    bits += std::uint64_t{seen.symbols[i].weight} * (own != 0 ? own : escape);
  }
  return bits;
}

// The same for a static table, without laying it out. REQUIRES: a uniform chunk's symbols.
std::uint64_t static_bits(const Seen& seen, const StaticShape& shape, std::uint32_t base) noexcept {
  std::uint64_t bits = 0;
  for (std::uint32_t i = 0; i < seen.count; ++i) {
    const std::uint32_t exponent = seen.symbols[i].symbol / kLevels;
    const std::uint32_t below = base - exponent;  // wraps far beyond the shape above the base
    std::uint32_t length = shape.escape + kExponentBits;
    if (below < kStaticExponents) length = shape.exponents[below];
    if (exponent == 0) length = shape.zero;
    bits += std::uint64_t{seen.symbols[i].weight} * length;
  }
  return bits;
}

std::uint32_t highest_exponent(const Seen& seen) noexcept {
  std::uint32_t highest = 0;
  for (std::uint32_t i = 0; i < seen.count; ++i) {
    const std::uint32_t exponent = seen.symbols[i].symbol / kLevels;
    if (exponent < 255) highest = std::max(highest, exponent);
  }
  return highest;
}

}  // namespace

void limit_lengths(std::span<SymbolWeight> symbols, CodeLengths& lengths) {
  std::sort(symbols.begin(), symbols.end(), rarer);
  const auto count = static_cast<std::uint32_t>(symbols.size());
  std::uint64_t lists[2][2 * kMaxSymbols];
  bool is_leaf[kMaxCodeBits][2 * kMaxSymbols];
  std::uint32_t listed = 0;
  for (unsigned round = 0; round < kMaxCodeBits; ++round) {
    listed = merge_packages(symbols, lists[(round + 1) % 2], listed, lists[round % 2], is_leaf[round]);
  }
  // The cheapest 2 (count - 1) of the last list are taken, with all that their packages hold: a package taken
  // means two of the list before. Leaves are taken from the rarest on, and each makes its code a bit longer.
  std::uint32_t taken = 2 * (count - 1);
  for (unsigned round = kMaxCodeBits; round-- > 0;) {
    std::uint32_t leaves = 0;
    for (std::uint32_t i = 0; i < taken; ++i) leaves += is_leaf[round][i] ? 1 : 0;
    for (std::uint32_t i = 0; i < leaves; ++i) ++lengths.bits[symbols[i].symbol];
    taken = 2 * (taken - leaves);
  }
}

void choose_table(const Histogram& histogram, const Rule& rule, TableChoice& choice) {
  Seen seen;
  collect(histogram, seen);
  choose_lengths(seen, histogram.complete, rule, choice.lengths);
  choice.id = 0;
  choice.base = 0;
  if (!histogram.complete || rule.mixed()) return;

  std::byte own[kMaxTableBytes];
  std::uint64_t smallest =
      std::uint64_t{write_table(choice, false, own)} * 8 + code_bits(seen, choice.lengths);
  const std::uint32_t highest = highest_exponent(seen);
  for (std::uint32_t id = 1; id <= kStaticTables; ++id) {
    for (std::uint32_t down = 0; down < kStaticBases && down <= highest; ++down) {
      const std::uint32_t base = highest + 1 - down;
      if (!static_fits(base)) continue;
      const std::uint64_t bits = 8 + static_bits(seen, kStaticShapes[id - 1], base);
      if (bits >= smallest) continue;
      smallest = bits;
      choice.id = id;
      choice.base = base;
    }
  }
  if (choice.id != 0) static_lengths(choice.id, choice.base, choice.lengths);
}

}  // namespace deltawire::gcomp
