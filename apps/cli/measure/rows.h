// The rows of `deltawire compare` as a table and as JSON.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/measure/method.h"

namespace deltawire::cli {

enum class Best : std::uint8_t { kLow, kHigh, kNearZero };

// A figure of a row. The table, JSON and the choices of --sort come from one list of columns.
struct Column {
  std::string_view key;      // in JSON
  std::string_view heading;  // in the table; empty if not shown there
  double Row::* value;
  Best best;
};
std::span<const Column> columns();

// Best first; rows without the figure last, in their order. REQUIRES: `key` is a column's.
void sort_rows(std::vector<Row>& rows, std::string_view key);

// One line about the input, and a table of its rows.
std::string text_table(const Input& input, std::span<const Row> rows);

// Explains the table's headings.
std::string table_legend();

struct Report {
  std::vector<Input> inputs;
  std::vector<Row> rows;
  MeasureOptions options;
  bool interrupted = false;  // some rows are missing
};

// UTF-8 with a line break at its end; unknown and infinite figures are null.
std::string json_of(const Report& report);

}  // namespace deltawire::cli
