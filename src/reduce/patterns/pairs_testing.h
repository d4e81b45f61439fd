// For tests: what ranks have in key-value form.
#pragma once

#include <string>
#include <vector>

#include "base/random.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire {

// Partitioned among the ranks by `direct`; raw; whole.
inline const std::vector<std::uint64_t> kDimensions{80000, 50, 300};
inline const std::vector<std::string> kNames{"clicks", "bias", "users"};

// A rank's update of a tensor: keys that some other ranks have too.
inline Pairs update_of(int rank, std::uint64_t dimension, std::uint64_t step) {
  CounterRng random(step * 100 + static_cast<std::uint64_t>(rank), dimension);
  Pairs pairs;
  pairs.dimension = dimension;
  for (std::uint64_t key = 0; key < dimension; key += 1 + random.next() % 40) {
    pairs.keys.push_back(static_cast<std::uint32_t>(key));
    pairs.values.push_back(static_cast<float>(random.next_uniform() - 0.5));
  }
  return pairs;
}

inline std::vector<float> dense_of(const Pairs& pairs) {
  std::vector<float> dense(pairs.dimension, 0.0F);
  for (std::size_t i = 0; i < pairs.keys.size(); ++i) dense[pairs.keys[i]] = pairs.values[i];
  return dense;
}

inline bool same(const Pairs& a, const Pairs& b) {
  return a.keys == b.keys && a.values == b.values && a.dimension == b.dimension;
}

inline Named named(std::string_view name, Pairs& own) {
  return {name, {own.values.data(), own.values.size(), DType::kF32, own.keys.data(), own.dimension}, 0};
}

inline Named named(std::string_view name, std::vector<float>& values) {
  return {name, {values.data(), values.size(), DType::kF32}, 0};
}

// A rank's bucket of key-value tensors.
struct Updates {
  Updates(int rank, std::uint64_t step) {
    for (const std::uint64_t dimension : kDimensions) pairs.push_back(update_of(rank, dimension, step));
    for (std::size_t i = 0; i < pairs.size(); ++i) list.push_back(named(kNames[i], pairs[i]));
  }
  Bucket bucket() { return {list, means}; }

  std::vector<Pairs> pairs;
  std::vector<Named> list;
  std::vector<Pairs> means = std::vector<Pairs>(kDimensions.size());
};

// One tensor alone.
inline Result<Report> reduce(Reducer& reducer, const Named& tensor, Pairs& mean, Transport& transport) {
  return reducer.all_reduce({std::span(&tensor, 1), std::span(&mean, 1)}, {0, 0, true}, transport,
                            in_seconds(20));
}

}  // namespace deltawire
