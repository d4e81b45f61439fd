// A set of keys, as bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "linear/row_block.h"

namespace deltawire::linear {

class KeySet {
 public:
  // An empty set for keys below `end`.
  explicit KeySet(std::uint64_t end = 0) : words_(ceil_div(end, kBits), 0) {}

  // False if the key was in the set.
  bool add(std::uint32_t key) noexcept {
    std::uint64_t& word = words_[key / kBits];
    const std::uint64_t bit = std::uint64_t{1} << (key % kBits);
    return (std::exchange(word, word | bit) & bit) == 0;
  }

  // Adds the keys of these rows, and appends those that were not in the set to `fresh`.
  void add_rows(const RowBlock& block, std::span<const std::uint32_t> rows,
                std::vector<std::uint32_t>& fresh) {
    for (const std::uint32_t row : rows) {
      for (std::size_t i = block.first_of(row); i < block.ends[row]; ++i) {
        if (add(block.keys[i])) fresh.push_back(block.keys[i]);
      }
    }
  }

  // Calls visit(key) for all keys, in order, and removes them.
  void remove_all(const auto& visit) {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t bits = std::exchange(words_[i], 0); bits != 0; bits &= bits - 1) {
        visit(static_cast<std::uint32_t>(kBits * i + static_cast<unsigned>(std::countr_zero(bits))));
      }
    }
  }

 private:
  static constexpr std::uint64_t kBits = 64;

  std::vector<std::uint64_t> words_;
};

}  // namespace deltawire::linear
