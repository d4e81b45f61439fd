// What a codec that cuts by significance does to the mean: each encoding of a value moves it by one unit in
// the last place of the significance at most, and a pattern encodes it 1, 2 or N times (codecs/gcomp/spec.md,
// section 6).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::cut_error_test {
namespace {

constexpr std::size_t kCount = 60000;

// Gradients of each rank, and what the optimizer sees of them: from nothing that may be cut to more than the
// last level asks for.
struct Input {
  std::vector<std::vector<float>> gradients;
  std::vector<float> significance;
};

Input input_of(int world) {
  CounterRng random(static_cast<std::uint64_t>(world));
  Input input{std::vector(static_cast<std::size_t>(world), std::vector<float>(kCount)),
              std::vector<float>(kCount)};
  for (auto& gradient : input.gradients) {
    for (float& value : gradient) {
      value = static_cast<float>((random.next_uniform() - 0.5) * (random.next_uniform() - 0.5));
    }
  }
  for (float& value : input.significance) {
    value = std::ldexp(1 + static_cast<float>(random.next_uniform()), static_cast<int>(random.next() % 20));
    if (random.next() % 2 == 0) value = -value;
  }
  return input;
}

std::vector<float> reduced(const std::string& pattern, const Input& input) {
  std::vector<std::vector<float>> results = input.gradients;
  run_ranks(static_cast<int>(results.size()), {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of(pattern + "(gcomp)");
    std::vector<float>& values = results[static_cast<std::size_t>(rank)];
    Named tensor{"w", {values.data(), kCount, DType::kF32}, 0};
    tensor.tensor.significance = input.significance.data();
    const auto report = reducer->all_reduce(std::span(&tensor, 1), {0, 0, true}, transport, in_seconds(20));
    ASSERT_TRUE(report) << report.error().message;
  });
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
  return results[0];
}

// How far the mean is from the exact one, in units in the last place of the significance.
struct Errors {
  double largest = 0;
  double drift = 0;  // the mean over all elements; positive is away from zero
};

// Fails the test for an element that is farther off than `encodings` units and the roundings of the float32
// additions, which happen without a codec too: 3 operations for each rank at most.
Errors errors_of(const Input& input, const std::vector<float>& mean, int encodings) {
  Errors errors;
  const auto world = static_cast<double>(input.gradients.size());
  for (std::size_t i = 0; i < kCount; ++i) {
    double exact = 0;
    double size = 0;
    for (const auto& gradient : input.gradients) {
      exact += static_cast<double>(gradient[i]) / world;
      size += std::fabs(static_cast<double>(gradient[i])) / world;
    }
    const double unit = std::ldexp(1.0, std::ilogb(input.significance[i]) - 23);
    const double rounded = 3 * world * 0x1p-24 * (size + encodings * unit);
    const double error = static_cast<double>(mean[i]) - exact;
    EXPECT_LE(std::fabs(error), encodings * unit + rounded) << "element " << i;
    errors.largest = std::max(errors.largest, (std::fabs(error) - rounded) / unit);
    errors.drift += (exact > 0 ? error : -error) / unit / kCount;
  }
  return errors;
}

TEST(CutError, IsOneUnitForEachEncodingAtMostAndHasNoBias) {
  for (const int world : {2, 3, 4, 5}) {
    const Input input = input_of(world);
    const struct {
      const char* pattern;
      int encodings;
    } kPatterns[] = {{"gather", 1}, {"direct", 2}, {"ring", world}};
    for (const auto& [pattern, encodings] : kPatterns) {
      SCOPED_TRACE(std::to_string(world) + " ranks, " + pattern);
      const Errors errors = errors_of(input, reduced(pattern, input), encodings);
      EXPECT_LE(std::fabs(errors.drift), 0.01);
      EXPECT_GT(errors.largest, encodings > 1 ? 1 : 0.5) << "a smaller bound would do";
    }
  }
}

}  // namespace
}  // namespace deltawire::cut_error_test
