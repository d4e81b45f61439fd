// Generates rows in the shape of published data sets, with labels from planted weights.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deltawire::linear {

// Published data sets of sparse rows, as far as a generator needs to know them.
//
// Rows and features are those of FastSGD's table 2 (Yang et al., 2021), which LIBSVM's page of data sets has
// as well. Non-zeros per row follow from published totals: URL 277,058,644 (Ma et al., ICML 2009), KDD10
// (bridge to algebra) 566,345,888 and WebSpam (trigrams) 1,304,697,446 (Yu, Hsieh, Chang, Lin: "Large Linear
// Classification When Data Cannot Fit in Memory", KDD 2010), KDD12 11 in every row. KDD12's fields are the
// columns of the contest's track 2; their distinct values add up to its features.
//
// Popularity of features: Zipf's law with exponent 0.9. With popular features in front, rows of URL and KDD10
// then take about as many bytes as the sizes in table 2 imply, and so do WebSpam's with values of 4 digits
// (KDD12's rows are a fifth shorter here, where all values are 1). KDD12's fields and WebSpam's trigrams are
// in no order. The spread of row lengths, and the proportions of positive labels except KDD12's, are
// approximations, not published figures.
inline constexpr double kSkew = 0.9;  // the exponent of Zipf's law

// Features of one kind, of which each row has one.
struct Field {
  std::string_view name;
  std::uint64_t features;
};

struct DataShape {
  std::string_view name;
  std::uint64_t rows;
  std::uint64_t features;
  double features_a_row;          // the mean
  double spread;                  // of the logarithm of a row's number of features; 0: all the same
  bool popular_first;             // features are numbered by popularity
  bool unit_length;               // values are counts, scaled to rows of length 1; else all are 1
  double positives;               // the proportion of labels that are 1
  std::span<const Field> fields;  // empty: features are all of one kind
};

std::optional<DataShape> find_shape(std::string_view name) noexcept;
std::span<const DataShape> all_shapes() noexcept;

struct GenerateSettings {
  std::uint64_t features = 0;  // indices are 1 to `features`
  double noise = 0.1;          // the proportion of rows with a random label
  std::uint64_t seed = 1;
};

// Row i is a function of shape, settings and i alone, so rows can be generated in any order. Logarithms and
// powers are the C library's: another library may give other rows now and then.
//
// The label is 1 if w.x is above the threshold, else -1. With probability `noise` it is random instead, and 1
// with the shape's proportion of positives. So the planted weights are right for a proportion of 1 - 2 noise
// positives (1 - positives) of the rows, and no model can be expected to do better. The threshold is chosen
// so that a sample (1e6 features, at least 256 rows, none of which is written) has the shape's proportion
// above it. A row has at most an eighth of all features.
class RowGenerator {
 public:
  // REQUIRES: at least as many features as the shape has fields, and below 2^32 - 1.
  RowGenerator(const DataShape& shape, const GenerateSettings& settings);

  // Appends "<label> <index>:<value> ...\n"; indices grow.
  void append(std::uint64_t row, std::string& text);

  // The planted model: weights from a standard normal distribution, and minus the threshold as its bias.
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
