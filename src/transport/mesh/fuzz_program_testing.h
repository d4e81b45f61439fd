// For the transport's fuzzers: an input that is read from the front, as a program.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include "deltawire/tensor.h"

namespace deltawire {

// A condition that does not hold is a finding.
inline void expect(bool holds) {
  if (!holds) std::abort();
}

// The unread rest of an input; past its end it reads zeros.
class FuzzProgram {
 public:
  explicit FuzzProgram(Bytes input) noexcept : rest_(input) {}

  bool empty() const noexcept { return rest_.empty(); }
  Bytes rest() const noexcept { return rest_; }

  // The next bytes, at most `wanted` of them.
  Bytes take(std::size_t wanted) noexcept {
    const Bytes taken = rest_.first(std::min(wanted, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  std::size_t take_byte() noexcept {
    const Bytes one = take(1);
    return one.empty() ? 0 : std::to_integer<std::size_t>(one[0]);
  }
  // As many bytes as the next one says.
  Bytes take_counted() noexcept { return take(take_byte()); }
  // An array.
  template <class Block>
  Block take_block() noexcept {
    Block block{};
    std::ranges::copy(take(block.size()), block.begin());
    return block;
  }

 private:
  Bytes rest_;
};

}  // namespace deltawire
