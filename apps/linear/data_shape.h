// Published data sets of sparse rows, as far as a generator needs to know them.
//
// Rows and features are those of FastSGD's table 2 (Yang et al., 2021), which LIBSVM's page of data sets has
// as well; non-zeros a row follow from published totals: URL 277,058,644 (Ma et al., ICML 2009), KDD10
// (bridge to algebra) 566,345,888 and WebSpam (trigrams) 1,304,697,446 (Yu, Hsieh, Chang, Lin: "Large Linear
// Classification When Data Cannot Fit in Memory", KDD 2010), KDD12 11 in every row. KDD12's fields are the
// columns of the contest's track 2; their distinct values sum up to its features.
//
// Popular features: Zipf's law with exponent 0.9. With it, and with popular features in front, a row of URL
// and KDD10 takes about the bytes that table 2's sizes give, as does WebSpam's with values of 4 digits
// (KDD12's rows are a fifth shorter here, where all values are 1); KDD12's fields and WebSpam's trigrams lie
// in no order. The spread of rows' lengths, and shares of positive labels but for KDD12's, are rounded from
// memory of the sets, and no published figures.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace deltawire::linear {

inline constexpr double kSkew = 0.9;  // of Zipf's law

// Features of one kind: a row has one of them, or (a set without fields) all of its features.
struct Field {
  std::string_view name;
  std::uint64_t features;
};

struct DataShape {
  std::string_view name;
  std::uint64_t rows;
  std::uint64_t features;
  double features_a_row;          // the mean
  double spread;                  // of the logarithm of a row's number of features; 0: all alike
  bool popular_first;             // a feature's place is its rank
  bool unit_length;               // values are counts, scaled so that a row has length 1; else all are 1
  double positives;               // the share of labels that are 1
  std::span<const Field> fields;  // empty: one, of all features
};

std::optional<DataShape> find_shape(std::string_view name) noexcept;
std::span<const DataShape> all_shapes() noexcept;

}  // namespace deltawire::linear
