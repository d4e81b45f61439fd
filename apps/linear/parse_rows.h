// Parses libsvm text:
//
//   <label> [qid:<number>] <index>:<value> <index>:<value> ... [# comment]
//
// Source: C.-C. Chang, C.-J. Lin, "LIBSVM: a library for support vector machines", its README.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <vector>

#include "base/errors.h"
#include "base/random.h"
#include "deltawire/result.h"
#include "linear/row_block.h"

namespace deltawire::linear {

// Fast parsing of numbers.
enum class Scan : std::uint8_t { kNumber, kNoNumber, kNotFinite };

inline constexpr std::uint64_t kIndexMax = std::uint64_t{1} << 63;

inline bool is_digit(char c) noexcept {
  return static_cast<unsigned char>(c - '0') < 10;
}

// Whether a number that no float32 holds is too near to 0, and not too large: by the place of its first
// digit and its exponent. REQUIRES: from_chars takes [at, end), without a sign, for a number.
inline bool is_small(const char* at, const char* end) noexcept {
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

// Parses a decimal number, with optional sign, fraction and exponent, at the front of [at, end), and moves
// `at` behind it. `value` is the nearest float32, ties to even, and 0 if the number is too small. kNotFinite:
// too large, or one of the words nan, inf and infinity. `at` moves only for kNumber.
inline Scan scan_float(const char*& at, const char* end, float& value) noexcept {
  // Categorical data have only ones.
  if (end - at >= 2 && is_digit(*at) && (at[1] == ' ' || at[1] == '\t')) {
    value = static_cast<float>(*at++ - '0');
    return Scan::kNumber;
  }
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

// Parses digits only. kNotFinite: beyond 2^63.
inline Scan scan_index(const char*& at, const char* end, std::uint64_t& value) noexcept {
  std::uint64_t number = 0;
  const auto result = std::from_chars(at, end, number);
  if (result.ec == std::errc::invalid_argument) return Scan::kNoNumber;
  if (result.ec == std::errc::result_out_of_range || number > kIndexMax) return Scan::kNotFinite;
  value = number;
  at = result.ptr;
  return Scan::kNumber;
}

// Larger indices must be hashed: keys, and their number, are 32 bits wide.
inline constexpr std::uint64_t kKeysMax = 0xFFFFFFFE;

struct ParseOptions {
  bool merge_duplicates = false;  // sort a row's features and add up those with one index; else an error
  int hash_bits = 0;              // 1 to 31: keys are hashes of the indices with this many bits
  std::optional<float> positive;  // if set, labels equal to it become +1, others -1
  std::uint64_t seed = 1;         // of the split into training and held-out rows
  double held_out = 0;            // the proportion of rows that go to RowSink::held_out, 0 to 1
};

// The position of a text, for errors and for the split: whether a row is held out depends on `seed` and its
// position.
struct Place {
  std::uint64_t line = 1;    // of its first row, counted from 1
  std::uint64_t offset = 0;  // of its first byte
  std::uint64_t file = 0;    // the number of its file
};

struct RowSink {
  RowBlock training;
  RowBlock held_out;
};

// The key of a hashed index: the high bits of a product (Dietzfelbinger et al.), after a mix.
inline std::uint32_t hashed_key(std::uint64_t index, int bits) noexcept {
  return static_cast<std::uint32_t>(CounterRng(0).at(index) >> (64 - bits));
}

// Parses whole lines (the last may lack its line feed), appends their rows to `sink`, and moves `place`
// behind the text. Skips blank lines and comments. Error messages begin with "<line>:<column>: "; the sink
// then holds the rows before.
class RowParser {
 public:
  explicit RowParser(const ParseOptions& options) : options_(options) {}
  Status parse(std::string_view text, Place& place, RowSink& sink) {
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

 private:
  static constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

  static bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }

  // The end of a word: a blank, a comment, or the end of the line.
  static bool is_behind_word(const char* at, const char* end) noexcept {
    return at == end || is_blank(*at) || *at == '#';
  }

  static void skip_blanks(const char*& at, const char* end) noexcept {
    while (at < end && is_blank(*at)) ++at;
  }

  // The word at `at`, printable for a message.
  static std::string word_at(const char* at, const char* end) {
    const char* last = std::find_if(at, end, is_blank);
    return "\"" + printable_line(std::string_view(at, static_cast<std::size_t>(last - at)), 40) + "\"";
  }

  static bool held_out(const ParseOptions& options, const Place& place) noexcept {
    return options.held_out > 0 &&
           CounterRng(options.seed, place.file).uniform_at(place.offset) < options.held_out;
  }

  Status parse_line(const char* at, const char* end) {
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
      return wrong(label,
                   "label " + word_at(label, end) + " is not a number; a row is LABEL INDEX:VALUE ...");
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

  // Fast path: parses an ordinary feature. False if it is not one; then nothing has changed.
  bool take_usual_feature(const char*& at, const char* end) {
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

  Status parse_feature(const char*& at, const char* end) {
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
      return wrong(word,
                   "index " + std::to_string(index) + " is beyond 2^32 - 2; hash indices (--hash-bits)");
    }
    const std::uint32_t key =
        options_.hash_bits > 0 ? hashed_key(index, options_.hash_bits) : static_cast<std::uint32_t>(index);
    if (count_ > 0 && key <= keys_[count_ - 1]) {
      // Hashes are not in order, and may collide.
      if (options_.hash_bits == 0 && !options_.merge_duplicates) {
        return wrong(
            word, "index " + std::to_string(index) +
                      (key == keys_[count_ - 1] ? " stands twice in its row" : " is below the one before") +
                      "; sort the row's features, or give --merge-duplicates");
      }
      sorted_ = false;
    }
    append_feature(key, value);
    return {};
  }

  void append_feature(std::uint32_t key, float value) noexcept {
    keys_[count_] = key;
    values_[count_] = value;
    ++count_;
  }

  // Sorts the row, and adds features with the same key if asked to.
  Status close_row(const char* end) {
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

  void append_row(RowBlock& block) {
    block.labels.push_back(label_);
    const auto count = static_cast<std::ptrdiff_t>(count_);
    block.keys.insert(block.keys.end(), keys_.begin(), keys_.begin() + count);
    block.values.insert(block.values.end(), values_.begin(), values_.begin() + count);
    block.ends.push_back(static_cast<std::uint32_t>(block.keys.size()));
  }

  tl::unexpected<Error> wrong(const char* at, const std::string& what) const {
    return corrupt(std::to_string(line_) + ":" + std::to_string(at - line_begin_ + 1) + ": " + what);
  }

  ParseOptions options_;
  float label_ = 0;
  bool sorted_ = true;
  std::vector<std::uint32_t> keys_;  // of the row; may be longer
  std::vector<float> values_;
  std::size_t count_ = 0;  // of the row's features
  // Key, position in the row, value: equal keys keep the order of the text, in which they are added.
  std::vector<std::tuple<std::uint32_t, std::size_t, float>> disordered_;
  const char* line_begin_ = nullptr;
  std::uint64_t line_ = 0;
};

}  // namespace deltawire::linear
