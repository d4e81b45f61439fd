#include "codecs/gcomp/gcomp_table.h"

#include <algorithm>

#include "codecs/gcomp/gcomp_static_tables.h"

namespace deltawire::gcomp {

namespace {

constexpr std::uint32_t kCompleteCode = 1U << kMaxCodeBits;  // sum of 2^(kMaxCodeBits - length)

// Exponents that a window of `level` may cover; NaN and Inf are never cut.
constexpr std::uint32_t last_exponent(std::uint32_t level) noexcept {
  return level == 0 ? 255 : 254;
}

// Lengths of the exponents of one level: how many, the first, and a nibble for each.
std::uint32_t write_window(const CodeLengths& lengths, std::uint32_t level, std::byte* out) noexcept {
  const auto length = [&](std::uint32_t exponent) { return lengths.bits[symbol_of(exponent, level)]; };
  std::uint32_t first = 1;
  std::uint32_t end = last_exponent(level) + 1;
  while (first < end && length(first) == 0) ++first;
  while (end > first && length(end - 1) == 0) --end;
  out[0] = static_cast<std::byte>(end - first);
  if (first == end) return 1;
  out[1] = static_cast<std::byte>(first);
  std::uint32_t at = 2;
  for (std::uint32_t exponent = first; exponent < end; exponent += 2) {
    out[at++] = two_lengths(length(exponent), exponent + 1 < end ? length(exponent + 1) : 0U);
  }
  return at;
}

// Reads a table's bytes one after another; what it gives past the end is 0, and `truncated` then set.
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

  // A byte of two lengths, for two symbols.
  Fault next_pair(CodeLengths& lengths, std::uint32_t low, std::uint32_t high) noexcept {
    const std::uint32_t pair = next();
    lengths.bits[low] = static_cast<std::uint8_t>(pair & 0xF);
    lengths.bits[high] = static_cast<std::uint8_t>(pair >> kNibbleBits);
    const bool legal = lengths.bits[low] <= kMaxCodeBits && lengths.bits[high] <= kMaxCodeBits;
    return legal ? Fault::kNone : Fault::kTableLength;
  }

  Fault next_window(CodeLengths& lengths, std::uint32_t level) noexcept {
    const std::uint32_t count = next();
    if (count == 0) return Fault::kNone;
    const std::uint32_t first = next();
    if (first == 0 || first + count - 1 > last_exponent(level)) {
      return truncated_ ? Fault::kTruncated : Fault::kTableWindow;
    }
    for (std::uint32_t i = 0; i < count; i += 2) {
      CodeLengths pair;
      if (const Fault fault = next_pair(pair, 0, 1); fault != Fault::kNone) return fault;
      lengths.bits[symbol_of(first + i, level)] = pair.bits[0];
      if (i + 1 < count) {
        lengths.bits[symbol_of(first + i + 1, level)] = pair.bits[1];
      } else if (pair.bits[1] != 0) {
        return Fault::kTablePadding;
      }
    }
    const bool filled =
        lengths.bits[symbol_of(first, level)] != 0 && lengths.bits[symbol_of(first + count - 1, level)] != 0;
    return filled || truncated_ ? Fault::kNone : Fault::kTableWindow;
  }

  bool truncated() const noexcept { return truncated_; }
  std::uint32_t used() const noexcept { return used_; }

 private:
  const TableBytes& in_;
  std::uint32_t used_ = 0;
  bool truncated_ = false;
};

Fault read_own_table(TableReader& reader, bool mixed, CodeLengths& lengths) noexcept {
  Fault fault = Fault::kNone;
  const auto pair = [&](std::uint32_t low, std::uint32_t high) {
    if (fault == Fault::kNone) fault = reader.next_pair(lengths, low, high);
  };
  if (mixed) {
    pair(kPlainSymbols, kPlainSymbols + 1);
    pair(kPlainSymbols + 2, kPlainSymbols + 3);
    pair(kZeroSymbol, kTinySymbol);
  } else {
    pair(kPlainSymbols, kZeroSymbol);
  }
  for (std::uint32_t level = 0; level < (mixed ? kLevels : 1); ++level) {
    if (fault == Fault::kNone) fault = reader.next_window(lengths, level);
  }
  return reader.truncated() ? Fault::kTruncated : fault;
}

// The first code of each length: codes of one length count up by symbol, and shorter ones come before longer
// ones. Returns the sum of 2^(kMaxCodeBits - length), kCompleteCode for a complete code.
std::uint32_t first_codes(const CodeLengths& lengths, std::uint32_t (&first)[kMaxCodeBits + 1]) noexcept {
  std::uint32_t with_length[kMaxCodeBits + 1] = {};
  for (const std::uint8_t bits : lengths.bits) ++with_length[bits];
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
  for (std::uint32_t symbol = 0; symbol < kSymbols; ++symbol) {
    const unsigned length = lengths.bits[symbol];
    if (length == 0) continue;
    const std::uint32_t entry = make_entry(symbol, table.uniform_level, length);
    for (std::uint32_t at = reversed(first[length]++, length); at < kCompleteCode; at += 1U << length) {
      table.entry[at] = entry;
    }
    if (symbol < kPlainSymbols) table.coded[symbol / 64] |= std::uint64_t{1} << symbol % 64;
  }
}

}  // namespace

std::uint32_t write_table(const TableChoice& choice, bool mixed, std::byte* out) {
  if (choice.id != 0) {
    out[0] = static_cast<std::byte>(choice.base);
    return 1;
  }
  const auto& bits = choice.lengths.bits;
  const std::uint8_t* escapes = bits + kPlainSymbols;
  if (!mixed) {
    out[0] = two_lengths(escapes[0], bits[kZeroSymbol]);
    return 1 + write_window(choice.lengths, 0, out + 1);
  }
  out[0] = two_lengths(escapes[0], escapes[1]);
  out[1] = two_lengths(escapes[2], escapes[3]);
  out[2] = two_lengths(bits[kZeroSymbol], bits[kTinySymbol]);
  std::uint32_t at = 3;
  for (std::uint32_t level = 0; level < kLevels; ++level) {
    at += write_window(choice.lengths, level, out + at);
  }
  return at;
}

void make_encode_table(const CodeLengths& lengths, std::uint32_t uniform_level, EncodeTable& table) {
  std::uint32_t first[kMaxCodeBits + 1] = {};
  first_codes(lengths, first);
  std::uint32_t codes[kSymbols] = {};
  for (std::uint32_t symbol = 0; symbol < kSymbols; ++symbol) {
    const unsigned length = lengths.bits[symbol];
    if (length > 0) codes[symbol] = reversed(first[length]++, length) | length << kCodeLengthShift;
  }
  for (std::uint32_t symbol = 0; symbol < kPlainSymbols; ++symbol) {
    std::uint32_t code = codes[symbol];
    if (code == 0) {
      code = codes[kPlainSymbols + symbol % kLevels];
      code |= symbol / kLevels << (code >> kCodeLengthShift);
      code += kExponentBits << kCodeLengthShift;
    }
    table.code[symbol] = code | mantissa_width(symbol, uniform_level) << kCodeMantissaShift;
  }
}

Fault read_table(const TableBytes& in, DecodeTable& table, std::uint32_t& used) {
  CodeLengths lengths;
  TableReader reader(in);
  if (in.id == 0) {
    const Fault fault = read_own_table(reader, in.mixed, lengths);
    if (fault != Fault::kNone) return fault;
  } else {
    const std::uint32_t base = reader.next();
    if (reader.truncated()) return Fault::kTruncated;
    if (!static_fits(base)) return Fault::kTableWindow;
    static_lengths(in.id, base, lengths);
  }
  std::uint32_t first[kMaxCodeBits + 1] = {};
  if (first_codes(lengths, first) != kCompleteCode) return Fault::kTableKraft;
  table.uniform_level = in.uniform_level;
  table.mixed = in.mixed;
  make_decode_table(lengths, first, table);
  used = reader.used();
  return Fault::kNone;
}

}  // namespace deltawire::gcomp
