// How much of a reducer's buckets is on its way at one time: memory in proportion to that, not to the buckets.
#pragma once

#include <cstdint>

#include "reduce/patterns/owners.h"

namespace deltawire {

class PieceWindow {
 public:
  // Of the longest piece of each round that is open, over all buckets: two full ones, so that one is on the
  // wire while another is coded.
  static constexpr std::uint64_t kOpenElements = 2 * kPieceElements;

  bool has_room(std::uint64_t elements) const noexcept { return open_ + elements <= kOpenElements; }
  void open(std::uint64_t elements) noexcept { open_ += elements; }
  void close(std::uint64_t elements) noexcept { open_ -= elements; }

 private:
  std::uint64_t open_ = 0;
};

}  // namespace deltawire
