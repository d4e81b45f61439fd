#include "linear/parse_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <system_error>

#include "base/errors.h"
#include "base/random.h"

namespace deltawire::linear {

namespace {

constexpr std::uint64_t kIndexMax = std::uint64_t{1} << 63;
constexpr std::array kPowersOfTen{1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

constexpr std::array kShortPowersOfTen{1e0F, 1e1F, 1e2F, 1e3F, 1e4F, 1e5F, 1e6F, 1e7F, 1e8F, 1e9F, 1e10F};

bool is_digit(char c) noexcept {
  return static_cast<unsigned char>(c - '0') < 10;
}

constexpr std::array<std::uint64_t, 9> kWholePowersOfTen{1,      10,      100,      1000,     10000,
                                                         100000, 1000000, 10000000, 100000000};

// Up to eight digits at once: bytes of a word become pairs, fours and eights of digits (D. Lemire, "Number
// parsing at a gigabyte per second", Software: Practice and Experience 2021, section 5). Returns
// their number. REQUIRES: 8 bytes at `at`.
std::ptrdiff_t take_up_to_eight(const char* at, std::uint64_t& number) noexcept {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  word ^= 0x3030303030303030;
  // The lowest byte above 9 has its highest bit set here; carries into higher bytes do not matter.
  const std::uint64_t others = (word | (word + 0x7676767676767676)) & 0x8080808080808080;
  const int count = others == 0 ? 8 : std::countr_zero(others) / 8;
  if (count == 0) return 0;
  word <<= 8 * (8 - count);  // leading zeros
  word = (10 * word + (word >> 8)) & 0x00FF00FF00FF00FF;
  word = (100 * word + (word >> 16)) & 0x0000FFFF0000FFFF;
  word = (10000 * word + (word >> 32)) & 0x00000000FFFFFFFF;
  number = number * kWholePowersOfTen[static_cast<std::size_t>(count)] + word;
  return count;
}

// Appends the digits at `at` to those of `number`; returns how many there were.
std::ptrdiff_t take_digits(const char*& at, const char* end, std::uint64_t& number) noexcept {
  const char* const first = at;
  if (end - at >= 8) {
    at += take_up_to_eight(at, number);
    if (at - first < 8) return at - first;
  }
  while (at < end && is_digit(*at)) number = 10 * number + static_cast<std::uint64_t>(*at++ - '0');
  return at - first;
}

// Whether a number that no float32 holds is too near to 0, and not too large: by the place of its first digit
// and its exponent. REQUIRES: from_chars takes [at, end), without a sign, for a number.
bool is_small(const char* at, const char* end) noexcept {
  const char* const mantissa_end = std::find_if(at, end, [](char c) { return c == 'e' || c == 'E'; });
  const char* const point = std::find(at, mantissa_end, '.');
  const char* const first = std::find_if(at, mantissa_end, [](char c) { return c >= '1' && c <= '9'; });
  std::int64_t exponent = 0;
  if (mantissa_end < end) {
    const char* digits = mantissa_end + 1;
    const bool negative = *digits == '-';
    if (*digits == '-' || *digits == '+') ++digits;
    constexpr std::int64_t kHuge = std::int64_t{1} << 62;  // beyond what a row's length can make up for
    if (std::from_chars(digits, end, exponent).ec != std::errc()) exponent = kHuge;
    if (negative) exponent = -exponent;
  }
  return exponent + (first < point ? point - first : point - first + 1) <= 0;
}

// Parses any number with the standard library.
Scan scan_slowly(const char*& at, const char* end, float& value) noexcept {
  const char* first = at;
  if (first < end && *first == '+') {
    ++first;
    if (first < end && *first == '-') return Scan::kNoNumber;
  }
  float parsed = 0;
  const auto result = std::from_chars(first, end, parsed);
  if (result.ec == std::errc::invalid_argument) return Scan::kNoNumber;
  if (result.ec == std::errc::result_out_of_range) {
    if (!is_small(first + (*first == '-' ? 1 : 0), result.ptr)) return Scan::kNotFinite;
    parsed = 0;
  }
  if (!std::isfinite(parsed)) return Scan::kNotFinite;
  value = parsed;
  at = result.ptr;
  return Scan::kNumber;
}

// Whether a correctly rounded float64 rounds to the float32 that the number itself rounds to: not where it
// lies on the border between two of them, or where float32 is subnormal.
bool rounds_once_more(double value) noexcept {
  constexpr std::uint64_t kRest = (std::uint64_t{1} << 29) - 1;
  return (std::bit_cast<std::uint64_t>(value) & kRest) != (std::uint64_t{1} << 28) && value >= 0x1p-126;
}

}  // namespace

// The usual number has at most 15 digits and no exponent: then digits and power of ten are exact in float64,
// and their quotient is rounded once (Clinger, "How to read floating point numbers accurately", PLDI 1990).
Scan scan_float(const char*& at, const char* end, float& value) noexcept {
  // Categorical data have only ones.
  if (end - at >= 2 && is_digit(*at) && (at[1] == ' ' || at[1] == '\t')) {
    value = static_cast<float>(*at++ - '0');
    return Scan::kNumber;
  }
  const char* here = at;
  bool negative = false;
  if (here < end && (*here == '-' || *here == '+')) negative = *here++ == '-';
  std::uint64_t digits = 0;
  std::ptrdiff_t count = take_digits(here, end, digits);
  std::ptrdiff_t fraction = 0;
  if (here < end && *here == '.') {
    ++here;
    fraction = take_digits(here, end, digits);
    count += fraction;
  }
  const bool exponent = here < end && (*here == 'e' || *here == 'E');
  if (count == 0 || count > 15 || exponent) return scan_slowly(at, end, value);
  // Digits and power are exact in float32, too: one rounding, and none to look at.
  if (digits < (1U << 24) && fraction <= 10) {
    const float short_value =
        static_cast<float>(digits) / kShortPowersOfTen[static_cast<std::size_t>(fraction)];
    value = negative ? -short_value : short_value;
    at = here;
    return Scan::kNumber;
  }
  const double wide = static_cast<double>(digits) / kPowersOfTen[static_cast<std::size_t>(fraction)];
  if (digits != 0 && !rounds_once_more(wide)) return scan_slowly(at, end, value);
  value = static_cast<float>(negative ? -wide : wide);
  at = here;
  return Scan::kNumber;
}

Scan scan_index(const char*& at, const char* end, std::uint64_t& value) noexcept {
  const char* here = at;
  std::uint64_t number = 0;
  // 19 digits always fit; more are leading zeros, or too large.
  while (here < end && *here == '0') ++here;
  const char* const first = here;
  if (take_digits(here, end, number) > 19 || number > kIndexMax) return Scan::kNotFinite;
  if (here == first && first == at) return Scan::kNoNumber;
  value = number;
  at = here;
  return Scan::kNumber;
}

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_blank(char c) noexcept {
  return c == ' ' || c == '\t';
}

// The end of a word: a blank, a comment, or the end of the line.
bool is_behind_word(const char* at, const char* end) noexcept {
  return at == end || is_blank(*at) || *at == '#';
}

void skip_blanks(const char*& at, const char* end) noexcept {
  while (at < end && is_blank(*at)) ++at;
}

// The word at `at`, printable for a message.
std::string word_at(const char* at, const char* end) {
  const char* last = std::find_if(at, end, is_blank);
  return "\"" + printable_line(std::string_view(at, static_cast<std::size_t>(last - at)), 40) + "\"";
}

bool held_out(const ParseOptions& options, const Place& place) noexcept {
  return options.held_out > 0 &&
         CounterRng(options.seed, place.file).uniform_at(place.offset) < options.held_out;
}

}  // namespace

std::uint32_t hashed_key(std::uint64_t index, int bits) noexcept {
  return static_cast<std::uint32_t>(CounterRng(0).at(index) >> (64 - bits));
}

tl::unexpected<Error> RowParser::wrong(const char* at, const std::string& what) const {
  return corrupt(std::to_string(line_) + ":" + std::to_string(at - line_begin_ + 1) + ": " + what);
}

Status RowParser::parse(std::string_view text, Place& place, RowSink& sink) {
  const char* at = text.data();
  const char* const end = at + text.size();
  // Editors on Windows put a byte order mark in front of UTF-8.
  if (place.offset == 0 && text.starts_with(kByteOrderMark)) {
    at += kByteOrderMark.size();
    place.offset = kByteOrderMark.size();
  }
  while (at < end) {
    const auto* feed = static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(end - at)));
    const char* const next = feed != nullptr ? feed + 1 : end;
    const char* last = feed != nullptr ? feed : end;
    if (last > at && last[-1] == '\r') --last;
    line_begin_ = at;
    line_ = place.line;
    const char* first = at;
    skip_blanks(first, last);
    if (first < last && *first != '#') {
      RETURN_IF_ERROR(parse_line(first, last));
      append_row(held_out(options_, place) ? sink.held_out : sink.training);
    }
    place.offset += static_cast<std::uint64_t>(next - at);
    ++place.line;
    at = next;
  }
  return {};
}

Status RowParser::parse_line(const char* at, const char* end) {
  // A feature takes at least three bytes and a blank.
  const std::size_t most = static_cast<std::size_t>(end - at) / 4 + 1;
  if (keys_.size() < most) {
    keys_.resize(most);
    values_.resize(most);
  }
  count_ = 0;
  sorted_ = true;
  const char* const label = at;
  const Scan scan = scan_float(at, end, label_);
  if (scan == Scan::kNotFinite) return wrong(label, "label " + word_at(label, end) + " is not finite");
  if (scan == Scan::kNoNumber || !is_behind_word(at, end)) {
    return wrong(label, "label " + word_at(label, end) + " is not a number; a row is LABEL INDEX:VALUE ...");
  }
  if (options_.positive) label_ = label_ == *options_.positive ? 1.0F : -1.0F;
  skip_blanks(at, end);
  if (end - at >= 4 && std::memcmp(at, "qid:", 4) == 0) {
    const char* const word = at;
    std::uint64_t query = 0;
    at += 4;
    if (scan_index(at, end, query) != Scan::kNumber || !is_behind_word(at, end)) {
      return wrong(word, word_at(word, end) + " is not a query number");
    }
    skip_blanks(at, end);
  }
  while (at < end && *at != '#') {
    if (!take_usual_feature(at, end)) {
      RETURN_IF_ERROR(parse_feature(at, end));
    }
    skip_blanks(at, end);
  }
  return close_row(end);
}

void RowParser::append_feature(std::uint32_t key, float value) noexcept {
  keys_[count_] = key;
  values_[count_] = value;
  ++count_;
}

// Fast path: parses an ordinary feature. False if it is not one; then nothing has changed.
bool RowParser::take_usual_feature(const char*& at, const char* end) {
  const char* here = at;
  std::uint64_t index = 0;
  if (scan_index(here, end, index) != Scan::kNumber || here == end || *here != ':') return false;
  ++here;
  float value = 0;
  if (scan_float(here, end, value) != Scan::kNumber || !is_behind_word(here, end)) return false;
  if (options_.hash_bits != 0 || index > kKeysMax) return false;
  const auto key = static_cast<std::uint32_t>(index);
  if (count_ > 0 && key <= keys_[count_ - 1]) return false;
  append_feature(key, value);
  at = here;
  return true;
}

Status RowParser::parse_feature(const char*& at, const char* end) {
  const char* const word = at;
  std::uint64_t index = 0;
  const Scan scan = scan_index(at, end, index);
  if (scan == Scan::kNotFinite) return wrong(word, "index of " + word_at(word, end) + " is beyond 2^63");
  if (scan == Scan::kNoNumber || at == end || *at != ':') {
    return wrong(word, word_at(word, end) + " is not a feature; write INDEX:VALUE, INDEX a whole number");
  }
  ++at;
  const char* const number = at;
  float value = 0;
  const Scan scanned = scan_float(at, end, value);
  if (scanned == Scan::kNotFinite) return wrong(number, "value " + word_at(number, end) + " is not finite");
  if (scanned == Scan::kNoNumber || !is_behind_word(at, end)) {
    return wrong(number, "value " + word_at(number, end) + " is not a number");
  }
  if (options_.hash_bits == 0 && index > kKeysMax) {
    return wrong(word, "index " + std::to_string(index) + " is beyond 2^32 - 2; hash indices (--hash-bits)");
  }
  const std::uint32_t key =
      options_.hash_bits > 0 ? hashed_key(index, options_.hash_bits) : static_cast<std::uint32_t>(index);
  if (count_ > 0 && key <= keys_[count_ - 1]) {
    // Hashes are not in order, and may collide.
    if (options_.hash_bits == 0 && !options_.merge_duplicates) {
      return wrong(word,
                   "index " + std::to_string(index) +
                       (key == keys_[count_ - 1] ? " stands twice in its row" : " is below the one before") +
                       "; sort the row's features, or give --merge-duplicates");
    }
    sorted_ = false;
  }
  append_feature(key, value);
  return {};
}

// Sorts the row, and adds features with the same key if asked to.
Status RowParser::close_row(const char* end) {
  if (sorted_) return {};
  disordered_.clear();
  for (std::size_t i = 0; i < count_; ++i) disordered_.emplace_back(keys_[i], i, values_[i]);
  std::sort(disordered_.begin(), disordered_.end());
  count_ = 0;
  for (const auto& [key, place, value] : disordered_) {
    if (count_ > 0 && keys_[count_ - 1] == key) {
      values_[count_ - 1] += value;
      if (!std::isfinite(values_[count_ - 1]))
        return wrong(end, "the sum of values of one index is not finite");
    } else {
      append_feature(key, value);
    }
  }
  return {};
}

void RowParser::append_row(RowBlock& block) {
  block.labels.push_back(label_);
  const auto count = static_cast<std::ptrdiff_t>(count_);
  block.keys.insert(block.keys.end(), keys_.begin(), keys_.begin() + count);
  block.values.insert(block.values.end(), values_.begin(), values_.begin() + count);
  block.ends.push_back(static_cast<std::uint32_t>(block.keys.size()));
}

}  // namespace deltawire::linear
