// Rows drawn in the shape of a published data set, with labels that planted weights gave them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "linear/data_shape.h"

namespace deltawire::linear {

struct GenerateSettings {
  std::uint64_t features = 0;  // of all rows together; indices are 1 to `features`
  double noise = 0.1;          // the share of rows whose label is drawn by lot
  std::uint64_t seed = 1;
};

// Row i is a function of shape, settings and i: rows can be drawn in any order, and nothing is kept of them.
// Logarithms and powers are the C library's: other libraries may draw other rows now and then.
//
// A row's label is 1 where w.x is above the threshold, else -1; but with the chance `noise` it is 1 with the
// shape's share of positives, whatever w.x. So the planted weights are right in a share of
// 1 - 2 noise positives (1 - positives) of the rows, and no model can expect to do better. The threshold is
// such that of a sample of rows (of 1e6 features, 256 rows at least; none that is written) the share above it
// is the shape's. A row has an eighth of all features at most.
class RowGenerator {
 public:
  // REQUIRES: at least as many features as the shape has fields, and below 2^32 - 1.
  RowGenerator(const DataShape& shape, const GenerateSettings& settings);

  // Appends "<label> <index>:<value> ...\n"; indices grow.
  void append(std::uint64_t row, std::string& text);

  // The planted model: w of `index`, from a standard normal, and minus the threshold as its bias.
  float weight_of(std::uint64_t index) const noexcept;
  double threshold() const noexcept { return threshold_; }

 private:
  struct Range {
    std::uint64_t first;  // the index before its first
    std::uint64_t features;
    double reach;  // (features + 1)^(1 - skew) - 1
  };
  struct Feature {
    std::uint32_t index;
    float value;
  };

  void draw(std::uint64_t row);
  std::uint32_t draw_index(const Range& range, std::uint64_t random) const noexcept;
  void scale_to_length(std::uint64_t row);
  double margin() const noexcept;

  DataShape shape_;
  GenerateSettings settings_;
  std::vector<Range> ranges_;
  std::vector<Feature> features_;  // of the row that was drawn last
  double threshold_ = 0;
};

}  // namespace deltawire::linear
