// How much of a reducer's buckets is on its way at one time, so that memory is in proportion to that and not
// to the buckets, however many there are and however long.
#pragma once

#include <cstdint>

namespace deltawire {

class PieceWindow {
 public:
  // Full pieces of fp32 that may be on their way to each owner, or their bytes of other codecs' bounds: while
  // one is on the wire others are coded, added up and pulled. More would hide longer delays of a rank, and
  // take more memory.
  static constexpr std::uint64_t kPieces = 3;

  // Of full pieces of so many elements, with room for what frames add.
  explicit PieceWindow(std::uint64_t piece_elements) noexcept
      : most_(kPieces * (4 * piece_elements + kFrameBytes)) {}

  std::uint64_t most_bytes() const noexcept { return most_; }
  bool has_room(std::uint64_t bytes) const noexcept { return open_ + bytes <= most_; }
  void open(std::uint64_t bytes) noexcept { open_ += bytes; }
  void close(std::uint64_t bytes) noexcept { open_ -= bytes; }

 private:
  static constexpr std::uint64_t kFrameBytes = 4096;

  std::uint64_t most_;
  std::uint64_t open_ = 0;
};

}  // namespace deltawire
