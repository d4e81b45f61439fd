#include "linear/generate_rows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "linear/parse_rows.h"

namespace deltawire::linear {
namespace {

struct Drawn {
  std::string text;
  RowBlock rows;
};

Drawn draw(RowGenerator& generator, std::uint64_t rows) {
  Drawn drawn;
  for (std::uint64_t row = 0; row < rows; ++row) generator.append(row, drawn.text);
  RowSink sink;
  Place place;
  const Status parsed = RowParser({}).parse(drawn.text, place, sink);
  EXPECT_TRUE(parsed) << parsed.error().message;
  drawn.rows = std::move(sink.training);
  return drawn;
}

Drawn draw(std::string_view name, std::uint64_t rows, const GenerateSettings& settings) {
  RowGenerator generator(*find_shape(name), settings);
  return draw(generator, rows);
}

double margin_of(const RowGenerator& generator, const RowBlock& rows, std::size_t row) {
  double sum = 0;
  for (std::size_t i = rows.first_of(row); i < rows.ends[row]; ++i) {
    sum += static_cast<double>(generator.weight_of(rows.keys[i])) * static_cast<double>(rows.values[i]);
  }
  return sum;
}

TEST(DataShape, FieldsSumUpToTheFeatures) {
  for (const DataShape& shape : all_shapes()) {
    std::uint64_t sum = 0;
    for (const Field& field : shape.fields) sum += field.features;
    if (!shape.fields.empty()) {
      EXPECT_EQ(sum, shape.features);
      EXPECT_EQ(static_cast<double>(shape.fields.size()), shape.features_a_row);
    }
    EXPECT_EQ(find_shape(shape.name)->rows, shape.rows);
  }
  EXPECT_FALSE(find_shape("a9a"));
}

// At the sets' full width: non-zeros a row, and bytes a row against the file sizes of the paper's table 2.
TEST(GenerateRows, HasTheNonZerosAndBytesOfThePublishedSets) {
  const std::map<std::string_view, double> gigabytes{
      {"url", 2.1}, {"kdd10", 4.8}, {"kdd12", 20.9}, {"webspam", 23.3}};
  for (const DataShape& shape : all_shapes()) {
    const std::uint64_t rows = shape.name == "webspam" ? 150 : 3000;
    const Drawn drawn = draw(shape.name, rows, {.features = shape.features});
    const double non_zeros = static_cast<double>(drawn.rows.keys.size()) / static_cast<double>(rows);
    EXPECT_NEAR(non_zeros / shape.features_a_row, 1, shape.name == "webspam" ? 0.25 : 0.02) << shape.name;
    const double bytes = static_cast<double>(drawn.text.size()) / static_cast<double>(rows);
    const double published = gigabytes.at(shape.name) * 1e9 / static_cast<double>(shape.rows);
    EXPECT_NEAR(bytes / published, 1, 0.25) << shape.name << ": " << bytes << " bytes a row";
    EXPECT_LE(*std::ranges::max_element(drawn.rows.keys), shape.features);
    EXPECT_GE(*std::ranges::min_element(drawn.rows.keys), 1U);
    const auto positives = static_cast<double>(std::ranges::count(drawn.rows.labels, 1.0F));
    EXPECT_NEAR(positives / static_cast<double>(rows), shape.positives, 0.12) << shape.name;
  }
}

// Counts of the most popular features against Zipf's law, and how often the rarest half is met.
TEST(GenerateRows, FeaturesAreMetByZipfsLaw) {
  constexpr std::uint64_t kFeatures = 100000;
  const Drawn drawn = draw("kdd10", 20000, {.features = kFeatures});
  std::vector<double> counts(kFeatures + 1);
  for (const std::uint32_t key : drawn.rows.keys) counts[key] += 1;
  const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
  const auto share = [&](double first, double last) {
    const double reach = std::pow(kFeatures + 1, 1 - kSkew) - 1;
    return (std::pow(last + 1, 1 - kSkew) - std::pow(first, 1 - kSkew)) / reach;
  };
  const auto counted = [&](std::size_t first, std::size_t last) {
    double sum = 0;
    for (std::size_t i = first; i <= last; ++i) sum += counts[i];
    return sum / all;
  };
  // A row has a feature once: the most popular ones are met a little less than the law says.
  EXPECT_NEAR(counted(10, 99) / share(10, 99), 1, 0.1);
  EXPECT_NEAR(counted(1000, 9999) / share(1000, 9999), 1, 0.1);
  EXPECT_NEAR(counted(50000, 100000) / share(50000, 100000), 1, 0.1);
}

TEST(GenerateRows, EveryFieldHasOneFeatureInARow) {
  const DataShape shape = *find_shape("kdd12");
  for (const std::uint64_t features : {shape.features, std::uint64_t{500'000}, std::uint64_t{11}}) {
    const Drawn drawn = draw("kdd12", 200, {.features = features});
    for (std::size_t row = 0; row < 200; ++row) {
      EXPECT_EQ(drawn.rows.ends[row] - drawn.rows.first_of(row), 11U);
    }
    EXPECT_LE(*std::ranges::max_element(drawn.rows.keys), features);
  }
}

TEST(GenerateRows, RowsOfWebspamHaveLengthOne) {
  const Drawn drawn = draw("webspam", 20, {.features = 4000});
  for (std::size_t row = 0; row < 20; ++row) {
    double squares = 0;
    for (std::size_t i = drawn.rows.first_of(row); i < drawn.rows.ends[row]; ++i) {
      squares += std::pow(static_cast<double>(drawn.rows.values[i]), 2);
    }
    EXPECT_NEAR(squares, 1, 1e-3);
  }
}

TEST(GenerateRows, PlantedWeightsAreRightButForTheNoise) {
  for (const double noise : {0.0, 0.2}) {
    const DataShape shape = *find_shape("url");
    RowGenerator generator(shape, {.features = 20000, .noise = noise});
    const Drawn drawn = draw(generator, 4000);
    double right = 0;
    for (std::size_t row = 0; row < drawn.rows.rows(); ++row) {
      const bool positive = margin_of(generator, drawn.rows, row) > generator.threshold();
      right += positive == (drawn.rows.labels[row] == 1) ? 1 : 0;
    }
    const double expected = 1 - 2 * noise * shape.positives * (1 - shape.positives);
    EXPECT_NEAR(right / 4000, expected, noise == 0 ? 0 : 0.015);
  }
}

TEST(GenerateRows, RowsFollowFromSeedAndNumberAlone) {
  RowGenerator generator(*find_shape("url"), {.features = 20000});
  const std::string in_order = draw(generator, 3).text;
  std::string backwards;
  for (const std::uint64_t row : {2U, 1U, 0U}) {
    std::string text;
    generator.append(row, text);
    backwards = text + backwards;
  }
  EXPECT_EQ(in_order, backwards);
  EXPECT_EQ(in_order, draw("url", 3, {.features = 20000}).text);
  EXPECT_NE(in_order, draw("url", 3, {.features = 20000, .seed = 2}).text);
}

// No two places of a field fall together: with every feature drawn often enough, all are met.
TEST(GenerateRows, EveryFeatureHasItsPlace) {
  const Drawn drawn = draw("kdd12", 20000, {.features = 300});
  std::vector<bool> met(301);
  for (const std::uint32_t key : drawn.rows.keys) met[key] = true;
  EXPECT_EQ(std::ranges::count(met, true), 300);
}

}  // namespace
}  // namespace deltawire::linear
