// Rows as people, spreadsheets and programs read them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/measure/method.h"

namespace deltawire::cli {

enum class Best : std::uint8_t { kLow, kHigh, kNearZero };

// A figure of a row. One list of them makes the table, the files and what --sort takes.
struct Column {
  std::string_view key;      // in JSON and CSV
  std::string_view heading;  // of the table; empty: not in it
  double Row::* value;
  Best best;
};
std::span<const Column> columns();

// The best first; rows without the figure last, in the order they have. REQUIRES: `key` is a column's.
void sort_rows(std::vector<Row>& rows, std::string_view key);

// What an input is, on a line, and a table of its rows.
std::string text_table(const Input& input, std::span<const Row> rows);
std::string markdown_table(const Input& input, std::span<const Row> rows);

// What the table's words mean.
std::string table_legend();

// RFC 4180, a header line first; unknown figures are empty.
std::string csv_of(std::span<const Row> rows);

struct Report {
  std::vector<Input> inputs;
  std::vector<Row> rows;
  MeasureOptions options;
  bool interrupted = false;  // some rows are missing
};

// UTF-8 with a line break at its end; unknown and infinite figures are null.
std::string json_of(const Report& report);

}  // namespace deltawire::cli
