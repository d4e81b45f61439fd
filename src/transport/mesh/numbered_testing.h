// Numbers recurring values, with 16 bits each.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

namespace deltawire::agreement_worlds {

using Id = std::uint16_t;

// Gives equal values the same number, from 0.
template <class T>
class Numbered {
 public:
  Id id_of(const T& value, std::uint64_t hash) {
    auto& bucket = buckets_[hash];
    for (const Id id : bucket) {
      if (values_[id] == value) return id;
    }
    values_.push_back(value);
    EXPECT_LT(values_.size(), 65000u) << "too many states for 16 bits";
    bucket.push_back(static_cast<Id>(values_.size() - 1));
    return bucket.back();
  }
  const T& operator[](Id id) const { return values_[id]; }
  std::size_t size() const { return values_.size(); }

 private:
  std::deque<T> values_;
  std::unordered_map<std::uint64_t, std::vector<Id>> buckets_;
};

}  // namespace deltawire::agreement_worlds
