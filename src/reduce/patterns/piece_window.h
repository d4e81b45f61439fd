// How much of a reducer's buckets is on its way at one time, so that memory is in proportion to that and not
// to the buckets, however many there are and however long.
#pragma once

#include <cstdint>

namespace deltawire {

class PieceWindow {
 public:
  // Full pieces that may be on their way to each owner: while one is on the wire others are coded, added up
  // and pulled. More would hide longer delays of a rank, and take more memory.
  static constexpr std::uint64_t kPieces = 3;

  // Of full pieces of so many elements.
  explicit PieceWindow(std::uint64_t piece_elements) noexcept : most_(kPieces * piece_elements) {}

  std::uint64_t most_elements() const noexcept { return most_; }
  bool has_room(std::uint64_t elements) const noexcept { return open_ + elements <= most_; }
  void open(std::uint64_t elements) noexcept { open_ += elements; }
  void close(std::uint64_t elements) noexcept { open_ -= elements; }

 private:
  std::uint64_t most_;
  std::uint64_t open_ = 0;
};

}  // namespace deltawire
