#include "cli/measure/rows.h"

#include <limits>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace deltawire::cli {
namespace {

Row row_of(const char* method, double bits, double bias) {
  Row row;
  row.input = "in";
  row.method = {method, method};
  row.bits_per_value = bits;
  row.bias = bias;
  row.times_smaller = 32 / bits;
  row.relative_l2 = 0.5;
  return row;
}

std::string order_by(std::string_view key) {
  Row failed;
  failed.method.spec = "f";
  failed.failed = "refused, \"NaN\"";
  std::vector<Row> rows{failed, row_of("a", 8, -0.1), row_of("b", 2, 0.2), row_of("c", 8, 0)};
  sort_rows(rows, key);
  std::string order;
  for (const Row& row : rows) order += row.method.spec;
  return order;
}

TEST(Rows, AreSortedBestFirst) {
  EXPECT_EQ(order_by("bits_per_value"), "bacf");
  EXPECT_EQ(order_by("times_smaller"), "bacf");
  EXPECT_EQ(order_by("bias"), "cabf");
  EXPECT_EQ(order_by("relative_l2"), "abcf");
  EXPECT_EQ(order_by("cosine"), "fabc");  // nobody has it
}

TEST(Rows, AsJsonHaveNullWhereNothingIsKnown) {
  Report report;
  report.rows = {row_of("a", 8, std::numeric_limits<double>::infinity())};
  report.interrupted = true;
  const auto json = nlohmann::json::parse(json_of(report));
  const auto& row = json["rows"][0];
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_EQ(row["bits_per_value"], 8);
  EXPECT_TRUE(row["bias"].is_null() && row["cosine"].is_null() && row["failed"].is_null());
  for (const Column& column : columns()) EXPECT_TRUE(row.contains(column.key)) << column.key;
}

}  // namespace
}  // namespace deltawire::cli
