// Text from anywhere as libsvm rows: rows that hold together, or an error that says where; and the same rows
// whatever pieces the text comes in.
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "linear/parse_rows.h"

namespace deltawire::linear {
namespace {

void expect(bool holds) {
  if (!holds) std::abort();
}

void check(const RowBlock& rows, const ParseOptions& options) {
  expect(rows.ends.size() == rows.labels.size() && rows.keys.size() == rows.values.size());
  expect(rows.rows() == 0 ? rows.keys.empty() : rows.ends.back() == rows.keys.size());
  for (std::size_t row = 0; row < rows.rows(); ++row) {
    expect(std::isfinite(rows.labels[row]));
    for (std::size_t i = rows.first_of(row); i < rows.ends[row]; ++i) {
      expect(std::isfinite(rows.values[i]));
      expect(i == rows.first_of(row) || rows.keys[i] > rows.keys[i - 1]);
      expect(options.hash_bits == 0 || rows.keys[i] >> options.hash_bits == 0);
    }
  }
}

void parse(std::string_view text, const ParseOptions& options) {
  RowSink whole;
  Place place;
  const Status parsed = RowParser(options).parse(text, place, whole);
  check(whole.training, options);
  check(whole.held_out, options);
  if (!parsed) {
    expect(parsed.error().message.find(':') != std::string::npos);
    return;
  }
  expect(place.offset == text.size());
  RowSink pieces;
  Place at;
  RowParser parser(options);
  const std::size_t feed = text.find('\n', text.size() / 2);
  const std::size_t cut = feed == std::string_view::npos ? text.size() : feed + 1;
  expect(parser.parse(text.substr(0, cut), at, pieces).has_value());
  expect(parser.parse(text.substr(cut), at, pieces).has_value());
  expect(pieces.training.keys == whole.training.keys && pieces.held_out.labels == whole.held_out.labels);
}

}  // namespace
}  // namespace deltawire::linear

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace deltawire::linear;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  parse(text, {});
  ParseOptions options;
  options.merge_duplicates = true;
  options.held_out = 0.5;
  parse(text, options);
  options.hash_bits = 5;
  parse(text, options);
  return 0;
}
