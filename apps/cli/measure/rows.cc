#include "cli/measure/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "cli/number_text.h"
#include "deltawire/codec.h"

namespace deltawire::cli {
namespace {

using RowJson = nlohmann::ordered_json;

constexpr Column kColumns[] = {
    {"bits_per_value", "bits/value", &Row::bits_per_value, Best::kLow},
    {"times_smaller", "x smaller", &Row::times_smaller, Best::kHigh},
    {"relative_l2", "rel. L2", &Row::relative_l2, Best::kLow},
    {"cosine", "cosine", &Row::cosine, Best::kHigh},
    {"max_error", "max error", &Row::max_error, Best::kLow},
    {"bias", "bias", &Row::bias, Best::kNearZero},
    {"gain", "", &Row::gain, Best::kHigh},
    {"feedback_relative_l2", "after 20", &Row::feedback_relative_l2, Best::kLow},
    {"feedback_bits_per_value", "", &Row::feedback_bits_per_value, Best::kLow},
    {"encode_gb_s", "enc GB/s", &Row::encode_gb_s, Best::kHigh},
    {"encode_to_copy", "xC", &Row::encode_to_copy, Best::kHigh},
    {"decode_gb_s", "dec GB/s", &Row::decode_gb_s, Best::kHigh},
    {"decode_to_copy", "xC", &Row::decode_to_copy, Best::kHigh},
    {"copy_gb_s", "", &Row::copy_gb_s, Best::kHigh},
};

// The sort key of a row: smaller is better; unknown is worst.
double rank_of(const Row& row, const Column& column) {
  const double value = row.*column.value;
  if (std::isnan(value)) return std::numeric_limits<double>::infinity();
  switch (column.best) {
    case Best::kLow: return value;
    case Best::kHigh: return -value;
    case Best::kNearZero: return std::abs(value);
  }
  return value;
}

std::string cell_of(const Row& row, const Column& column) {
  const double value = row.*column.value;
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (column.value != &Row::cosine) return value == 0 ? "0" : rounded(value);
  return with_decimals(value, 4);
}

// A percentage that shows 0 or 100 only if it is exactly that.
std::string percent(std::uint64_t part, std::uint64_t whole) {
  return significant(100 * static_cast<double>(part) / static_cast<double>(whole)) + " %";
}

std::string about_text(const Input& input) {
  const InputFacts facts = facts_of(input);
  std::string text = printable_line(input.name) + ": " + printable_line(input.about) + "\n" +
                     grouped(facts.values) + " values";
  if (input.steps.size() > 1) text += " in " + grouped(input.steps.size()) + " steps";
  if (facts.tensors > 1) text += ", " + grouped(facts.tensors) + " tensors";
  if (facts.pairs > 0) text += ", " + grouped(facts.pairs) + " of them given as pairs";
  text += ", " + percent(facts.zeros, facts.values) + " zeros, largest " + rounded(facts.largest) +
          ", norm " + rounded(facts.norm);
  if (facts.not_finite > 0) text += ", " + grouped(facts.not_finite) + " NaN or Inf";
  return text + "\n";
}

std::string padded(const std::string& text, std::size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

RowJson input_json(const Input& input) {
  const InputFacts facts = facts_of(input);
  return {{"name", input.name},          {"about", input.about},
          {"steps", input.steps.size()}, {"tensors", facts.tensors},
          {"values", facts.values},      {"zeros", facts.zeros},
          {"pairs", facts.pairs},        {"largest", facts.largest},
          {"norm", facts.norm},          {"not_finite", facts.not_finite}};
}

RowJson row_json(const Row& row) {
  RowJson json{{"input", row.input},
               {"method", row.method.spec},
               {"spec", row.method.canonical},
               {"failed", row.failed.empty() ? RowJson() : RowJson(row.failed)},
               {"error_feedback", row.error_feedback},
               {"streams", row.streams}};
  for (const Column& column : kColumns) {
    const double value = row.*column.value;
    json[std::string(column.key)] = std::isfinite(value) ? RowJson(value) : RowJson();
  }
  return json;
}

}  // namespace

std::span<const Column> columns() {
  return kColumns;
}

void sort_rows(std::vector<Row>& rows, std::string_view key) {
  const auto* column = std::ranges::find(kColumns, key, &Column::key);
  std::vector<std::pair<double, std::size_t>> order;
  order.reserve(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) order.emplace_back(rank_of(rows[i], *column), i);
  std::ranges::sort(order);
  std::vector<Row> sorted;
  sorted.reserve(rows.size());
  for (const auto& [rank, i] : order) sorted.push_back(std::move(rows[i]));
  rows = std::move(sorted);
}

std::string text_table(const Input& input, std::span<const Row> rows) {
  std::size_t widest = std::string_view("method").size();
  for (const Row& row : rows) widest = std::max(widest, row.method.spec.size());
  std::vector<std::string> lines{"method" + std::string(widest - 6, ' ')};
  for (const Row& row : rows)
    lines.push_back(row.method.spec + std::string(widest - row.method.spec.size(), ' '));
  for (const Column& column : kColumns) {
    if (column.heading.empty()) continue;
    std::size_t width = column.heading.size();
    for (const Row& row : rows) width = std::max(width, row.failed.empty() ? cell_of(row, column).size() : 0);
    lines[0] += "  " + padded(std::string(column.heading), width);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].failed.empty()) lines[i + 1] += "  " + padded(cell_of(rows[i], column), width);
    }
  }
  std::string text = about_text(input) + "\n" + lines[0] + "\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    text += lines[i + 1];
    if (!rows[i].failed.empty()) text += "  failed: " + printable_line(rows[i].failed);
    text += "\n";
  }
  return text;
}

std::string table_legend() {
  return "bits/value: of the whole message. after 20: relative L2 of what has come out of 20 steps, with "
         "error\n"
         "feedback where the method has it. bias: mean error by mean magnitude. xC: ratio to a copy of the\n"
         "values, one thread. 'deltawire compare --help' and docs/reference/compare.md define them.\n";
}

std::string json_of(const Report& report) {
  RowJson inputs = RowJson::array();
  for (const Input& input : report.inputs) inputs.push_back(input_json(input));
  RowJson rows = RowJson::array();
  for (const Row& row : report.rows) rows.push_back(row_json(row));
  const auto target = kernel_target_in_use();
  const RowJson json{{"kernel_target", target ? RowJson(*target) : RowJson()},
                     {"min_elements", report.options.policy.min_elements},
                     {"seconds", report.options.seconds},
                     {"feedback_steps", kFeedbackSteps},
                     {"interrupted", report.interrupted},
                     {"inputs", std::move(inputs)},
                     {"rows", std::move(rows)}};
  // A path may be no UTF-8; JSON must be.
  return json.dump(2, ' ', false, RowJson::error_handler_t::replace) + "\n";
}

}  // namespace deltawire::cli
