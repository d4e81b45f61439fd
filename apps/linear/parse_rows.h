// Parses libsvm text:
//
//   <label> [qid:<number>] <index>:<value> <index>:<value> ... [# comment]
//
// Source: C.-C. Chang, C.-J. Lin, "LIBSVM: a library for support vector machines", its README.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/errors.h"
#include "deltawire/result.h"
#include "linear/row_block.h"

namespace deltawire::linear {

// Fast parsing of numbers.
enum class Scan : std::uint8_t { kNumber, kNoNumber, kNotFinite };

// Parses a decimal number, with optional sign, fraction and exponent, at the front of [at, end), and moves
// `at` behind it. `value` is the nearest float32, ties to even, and 0 if the number is too small. kNotFinite:
// too large, or one of the words nan, inf and infinity. `at` moves only for kNumber.
Scan scan_float(const char*& at, const char* end, float& value) noexcept;

// Parses digits only. kNotFinite: beyond 2^63.
Scan scan_index(const char*& at, const char* end, std::uint64_t& value) noexcept;

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
std::uint32_t hashed_key(std::uint64_t index, int bits) noexcept;

// Parses whole lines (the last may lack its line feed), appends their rows to `sink`, and moves `place`
// behind the text. Skips blank lines and comments. Error messages begin with "<line>:<column>: "; the sink
// then holds the rows before.
class RowParser {
 public:
  explicit RowParser(const ParseOptions& options) : options_(options) {}
  Status parse(std::string_view text, Place& place, RowSink& sink);

 private:
  Status parse_line(const char* at, const char* end);
  bool take_usual_feature(const char*& at, const char* end);
  Status parse_feature(const char*& at, const char* end);
  void append_feature(std::uint32_t key, float value) noexcept;
  Status close_row(const char* end);
  void append_row(RowBlock& block);
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
