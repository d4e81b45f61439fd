// The order of training rows in a data epoch: shuffled blocks, and shuffled rows within each block.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/random.h"
#include "linear/block_store.h"

namespace deltawire::linear {

// A Fisher-Yates shuffle by counter-based random numbers.
inline void shuffle(std::span<std::uint32_t> numbers, std::uint64_t seed, std::uint64_t stream) {
  const CounterRng random(seed, stream);
  for (std::size_t left = numbers.size(); left > 1; --left) {
    std::swap(numbers[left - 1], numbers[random.at(left) % left]);
  }
}

class EpochRows {
 public:
  EpochRows(BlockStore& store, std::uint64_t seed, std::uint64_t epoch)
      : store_(store), seed_(seed), stream_(epoch << 32) {
    for (std::uint32_t i = 0; i < store.entries().size(); ++i) {
      if (store.entries()[i].held_out == 0) blocks_.push_back(i);
    }
    shuffle(blocks_, seed_, stream_);
  }

  // Calls visit(block, row numbers) with up to `count` of the next rows, all of one block. Returns how many,
  // 0 at the end. Errors: those of BlockStore::load.
  Result<std::uint64_t> take(std::uint64_t count, const auto& visit) {
    if (at_ == rows_.size()) {
      if (next_ == blocks_.size()) return 0;
      const std::uint32_t number = blocks_[next_++];
      ASSIGN_OR_RETURN(block_, store_.load(number));
      rows_.resize(block_->rows());
      for (std::uint32_t i = 0; i < rows_.size(); ++i) rows_[i] = i;
      shuffle(rows_, seed_, stream_ + 1 + number);
      at_ = 0;
    }
    const std::uint64_t taken = std::min<std::uint64_t>(count, rows_.size() - at_);
    visit(*block_, std::span<const std::uint32_t>(rows_).subspan(at_, taken));
    at_ += taken;
    return taken;
  }

 private:
  BlockStore& store_;
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::vector<std::uint32_t> blocks_;
  std::size_t next_ = 0;
  std::shared_ptr<const RowBlock> block_;
  std::vector<std::uint32_t> rows_;
  std::size_t at_ = 0;
};

}  // namespace deltawire::linear
