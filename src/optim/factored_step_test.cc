// The factored second moment against a model of it in double, of whole tensors and of parts of them.
#include "optim/factored_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "optim/optimizer_testing.h"

namespace deltawire {
namespace {

using testing::optimizer_of;
using testing::random_values;

using Dims = std::vector<std::uint64_t>;

struct Part {
  Dims dims;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

// A matrix, a convolution, a vector, one row; a part that begins and ends within rows, one that has not all
// columns, one within a row.
const std::vector<Part>& parts() {
  static const std::vector<Part> all = {{{6, 8}, 0, 48}, {{4, 3, 5}, 0, 60}, {{20}, 0, 20},
                                        {{1, 7}, 0, 7},  {{6, 8}, 13, 22},   {{4, 3, 5}, 17, 30},
                                        {{6, 8}, 6, 4},  {{6, 8}, 9, 5},     {{}, 0, 5}};
  return all;
}

// (Row, column) of an element of a part; the column is -1 where there is one row.
struct Place {
  std::size_t row = 0;
  std::ptrdiff_t column = -1;
};

std::vector<Place> places_of(const Part& part) {
  std::vector<Place> places(part.count);
  if (part.dims.size() < 2) return places;
  std::uint64_t in_a_row = 1;
  for (std::size_t dim = 1; dim < part.dims.size(); ++dim) in_a_row *= part.dims[dim];
  const std::uint64_t first_row = part.first / in_a_row;
  if ((part.first + part.count - 1) / in_a_row == first_row) return places;
  for (std::uint64_t i = 0; i < part.count; ++i) {
    const std::uint64_t at = part.first + i;
    places[i].row = at / in_a_row - first_row;
    places[i].column = static_cast<std::ptrdiff_t>(at % in_a_row / (in_a_row / part.dims[1]));
  }
  return places;
}

// The means of elements by lines, in double; of a column without elements 0.
struct Means {
  std::vector<double> rows = {}, columns = {};
};

Means means_of(const Part& part, const std::vector<double>& values) {
  const std::vector<Place> places = places_of(part);
  Means means{.rows = std::vector<double>(places.back().row + 1)};
  if (places[0].column >= 0) means.columns.resize(part.dims[1]);
  std::vector<double> in_row(means.rows.size()), in_column(means.columns.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    means.rows[places[i].row] += values[i];
    in_row[places[i].row] += 1;
    if (places[i].column < 0) continue;
    means.columns[static_cast<std::size_t>(places[i].column)] += values[i];
    in_column[static_cast<std::size_t>(places[i].column)] += 1;
  }
  for (std::size_t row = 0; row < in_row.size(); ++row) means.rows[row] /= in_row[row];
  for (std::size_t column = 0; column < in_column.size(); ++column) {
    if (in_column[column] > 0) means.columns[column] /= in_column[column];
  }
  return means;
}

std::vector<double> wide(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

TEST(Lines, HaveTheMeansOfRowsAndColumns) {
  for (const Part& part : parts()) {
    SCOPED_TRACE(::testing::PrintToString(part.dims) + " from " + std::to_string(part.first));
    const Lines lines(part.dims, part.first, part.count);
    const std::vector<float> values = random_values(part.count, 5);
    std::vector<float> means(lines.count());
    lines.means(values, [](float value) { return 2 * value; }, means);
    std::vector<double> doubled = wide(values);
    for (double& value : doubled) value *= 2;
    const Means expected = means_of(part, doubled);
    ASSERT_EQ(lines.rows(), expected.rows.size());
    ASSERT_EQ(lines.count(), expected.rows.size() + expected.columns.size());
    for (std::size_t i = 0; i < means.size(); ++i) {
      const bool is_row = i < lines.rows();
      EXPECT_NEAR(means[i], is_row ? expected.rows[i] : expected.columns[i - lines.rows()], 1e-6) << i;
    }
  }
}

TEST(Lines, MakeATensorOfRankOne) {
  for (const Part& part : {parts()[0], parts()[1], parts()[4]}) {
    const Lines lines(part.dims, part.first, part.count);
    std::vector<float> means = random_values(lines.count(), 6);
    for (float& mean : means) mean = std::abs(mean) + 0.1F;
    const std::vector<float> shape = lines.shape_of_rows(means);
    const std::vector<Place> places = places_of(part);
    double total = 0;
    for (const Place& place : places) total += means[place.row] / static_cast<double>(part.count);
    lines.for_each_row([&](std::size_t row, std::size_t at, std::size_t elements, std::size_t place) {
      for (std::size_t i = 0; i < elements; ++i) {
        const auto column = static_cast<std::size_t>(places[at + i].column);
        EXPECT_EQ(places[at + i].row, row);
        EXPECT_NEAR(means[row] * shape[place + i], means[row] * means[lines.rows() + column] / total, 1e-5);
      }
    });
  }
}

// A part of a tensor, stepped in double.
struct Model {
  Part part;
  OptimizerSettings settings;
  std::vector<double> parameters = {}, first = {}, second = {};
  double steps = 0;

  void step(const std::vector<double>& gradient, const Means& squares, const FactoredStep& by) {
    const OptimizerSettings& s = settings;
    const bool decoupled = s.kind == OptimizerKind::kAdamW;
    const std::vector<Place> places = places_of(part);
    Means known = means_of(part, second);
    std::vector<double> decayed(parameters.size());
    for (std::size_t i = 0; i < decayed.size(); ++i) {
      decayed[i] = decoupled ? 0 : std::pow(s.weight_decay * parameters[i], 2);
    }
    const Means of_decay = means_of(part, decayed);
    const auto count_in = [&](std::vector<double>& mine, const auto& theirs, const auto& decay) {
      for (std::size_t i = 0; i < mine.size(); ++i) {
        mine[i] = s.beta2 * mine[i] + (1 - s.beta2) * (theirs[i] + decay[i]);
      }
    };
    count_in(known.rows, squares.rows, of_decay.rows);
    count_in(known.columns, squares.columns, of_decay.columns);
    ++steps;
    double total = 0, own = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (decoupled) parameters[i] *= 1 - s.learning_rate * s.weight_decay;
      total += known.rows[places[i].row] / static_cast<double>(parameters.size());
      own += parameters[i] * parameters[i] / static_cast<double>(parameters.size());
    }
    const double bound = std::max(by.most_rms, by.most_change * std::sqrt(own) / s.learning_rate);
    std::vector<double> due(parameters.size()), squared(parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const double g = gradient[i] + (decoupled ? 0 : s.weight_decay * parameters[i]);
      first[i] = s.beta1 * first[i] + (1 - s.beta1) * g;
      second[i] = known.rows[places[i].row];
      if (places[i].column >= 0)
        second[i] *= known.columns[static_cast<std::size_t>(places[i].column)] / total;
      const double v = second[i] / (1 - std::pow(s.beta2, steps));
      due[i] = first[i] / (1 - std::pow(s.beta1, steps)) / (std::sqrt(v) + s.eps);
      squared[i] = due[i] * due[i];
    }
    const Means lengths = means_of(part, squared);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const double unit = std::max(bound, std::sqrt(lengths.rows[places[i].row]));
      const double share = std::clamp(due[i] / unit, -by.longest_step, by.longest_step);
      parameters[i] -= s.learning_rate * bound * share;
    }
  }
};

void expect_steps_of_the_model(const Part& part, const std::string& spec, double most_rms) {
  SCOPED_TRACE(spec + ", " + ::testing::PrintToString(part.dims) + " from " + std::to_string(part.first));
  Optimizer optimizer = optimizer_of(spec);
  const Lines lines(part.dims, part.first, part.count);
  std::vector<float> parameters = random_values(part.count, 1);
  Model model{.part = part, .settings = optimizer.settings(), .parameters = wide(parameters)};
  model.first.resize(part.count);
  model.second.resize(part.count);
  for (std::uint64_t step = 0; step < 6; ++step) {
    const std::vector<float> gradient = random_values(part.count, 10 + step, step == 3 ? 50 : 1);
    const std::vector<float> exact = random_values(part.count, 20 + step, 0.5F);
    std::vector<float> squares(lines.count());
    lines.means(exact, [](float value) { return value * value; }, squares);
    std::vector<double> squared = wide(exact);
    for (double& value : squared) value *= value;
    const FactoredStep by{lines, squares, most_rms, 0.001, 1.5};
    ASSERT_TRUE(optimizer.step_by(optimizer.settings(), "t", parameters, gradient, &by));
    model.step(wide(gradient), means_of(part, squared), by);
    const MomentsView moments = optimizer.moments("t");
    EXPECT_EQ(moments.steps, step + 1);
    for (std::size_t i = 0; i < part.count; ++i) {
      ASSERT_NEAR(parameters[i], model.parameters[i], 2e-5) << i;
      ASSERT_NEAR(moments.first[i], model.first[i], 2e-5) << i;
      ASSERT_NEAR(moments.second[i], model.second[i], 2e-6) << i;
    }
  }
}

TEST(FactoredStep, IsTheModels) {
  for (const Part& part : parts()) {
    for (const std::string spec : {"adam:lr=0.01,beta1=0.5,beta2=0.9,eps=0.001,weight_decay=0.3",
                                   "adamw:lr=0.01,beta1=0.5,beta2=0.9,eps=0.001,weight_decay=0.3"}) {
      expect_steps_of_the_model(part, spec, 1);
      expect_steps_of_the_model(part, spec, 0);  // a row is bounded by the tensor's own length
    }
  }
}

// As an optimizer has it that stepped without the rule before.
TEST(FactoredStep, GoesOnFromMomentsOfElements) {
  const Part part = parts()[0];
  Optimizer optimizer = optimizer_of("adamw:lr=0.01,beta2=0.9");
  std::vector<float> parameters = random_values(part.count, 1);
  ASSERT_TRUE(optimizer.step("t", parameters, random_values(part.count, 2)));
  const std::vector<float> before(optimizer.moments("t").second.begin(), optimizer.moments("t").second.end());
  const Lines lines(part.dims, 0, part.count);
  const std::vector<float> squares(lines.count(), 0.25F);
  const FactoredStep by{lines, squares, 1, 0.1, 3};
  ASSERT_TRUE(optimizer.step_by(optimizer.settings(), "t", parameters, random_values(part.count, 3), &by));
  const Means mine = means_of(part, wide(before));
  const Means now =
      means_of(part, {optimizer.moments("t").second.begin(), optimizer.moments("t").second.end()});
  for (std::size_t row = 0; row < mine.rows.size(); ++row) {
    EXPECT_NEAR(now.rows[row], 0.9 * mine.rows[row] + 0.1 * 0.25, 1e-6);
  }
}

// What a worker sends is not trusted.
TEST(FactoredStep, TakesNoSquaresThatAreNone) {
  const Part part = parts()[0];
  const Lines lines(part.dims, 0, part.count);
  std::vector<float> squares(lines.count(), 0.25F);
  squares[1] = -4;
  squares[2] = std::numeric_limits<float>::quiet_NaN();
  const FactoredStep by{lines, squares, 1, 0.1, 3};
  Optimizer optimizer = optimizer_of("adamw:lr=0.01");
  std::vector<float> parameters = random_values(part.count, 1);
  ASSERT_TRUE(optimizer.step_by(optimizer.settings(), "t", parameters, random_values(part.count, 3), &by));
  for (const float value : parameters) EXPECT_TRUE(std::isfinite(value));
  for (const float value : optimizer.moments("t").second) EXPECT_GE(value, 0);
}

}  // namespace
}  // namespace deltawire
