// Text of libsvm's form to rows:
//
//   <label> [qid:<number>] <index>:<value> <index>:<value> ... [# comment]
//
// Source of the form: C.-C. Chang, C.-J. Lin, "LIBSVM: a library for support vector machines", its README.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "deltawire/result.h"
#include "linear/row_block.h"

namespace deltawire::linear {

// An index is below this one, or is hashed: keys are 32 bits wide, and so is what says how many there are.
inline constexpr std::uint64_t kKeysMax = 0xFFFFFFFE;

struct ParseOptions {
  bool merge_duplicates = false;  // sort a row's features and add up those with one index; else an error
  int hash_bits = 0;              // 1 to 31: a feature's key is a hash of its index of so many bits
  std::optional<float> positive;  // labels become +1 where they are equal to it, else -1
  std::uint64_t seed = 1;         // of the split
  double held_out = 0;            // the share of rows that go to RowSink::held_out, 0 to 1
};

// Where a text lies, for errors and for the split: a row's half follows from `seed` and its place alone.
struct Place {
  std::uint64_t line = 1;    // of the text's first row, counted from 1
  std::uint64_t offset = 0;  // of the text's first byte
  std::uint64_t file = 0;    // its number among the data's files
};

struct RowSink {
  RowBlock training;
  RowBlock held_out;
};

// The key of a hashed index: the high bits of a product (Dietzfelbinger et al.), after a mix.
std::uint32_t hashed_key(std::uint64_t index, int bits) noexcept;

// Appends whole lines (the last may lack its line feed) to `sink`; blank lines and comments are no rows.
// Moves `place` behind the text. Error messages begin with "<line>:<column>: ", and the sink then holds the
// rows before.
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
  tl::unexpected<Error> wrong(const char* at, const std::string& what) const;

  ParseOptions options_;
  float label_ = 0;
  bool sorted_ = true;
  std::vector<std::uint32_t> keys_;  // of the row; room for more
  std::vector<float> values_;
  std::size_t count_ = 0;  // of the row's features
  // Key, place in the row, value: equal keys stay in the order of the text, in which they are added up.
  std::vector<std::tuple<std::uint32_t, std::size_t, float>> disordered_;
  const char* line_begin_ = nullptr;
  std::uint64_t line_ = 0;
};

}  // namespace deltawire::linear
