// How much of a reducer's buckets is on its way at one time, so that memory is in proportion to that and not
// to the buckets, however many there are and however long.
#pragma once

#include <algorithm>
#include <chrono>
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
      : pieces_(kPieces * (4 * piece_elements + kFrameBytes)), most_(pieces_) {}

  // Adds what a line of 1 Gbit/s holds in a round trip, at most 32 MiB, for the mean of a piece comes a round
  // trip after its push. All owners share a rank's line. REQUIRES: ranks > 0.
  void fit_line(std::chrono::microseconds round_trip, int ranks) noexcept {
    const auto held = static_cast<std::uint64_t>(round_trip.count()) * kLineBytesPerMicrosecond;
    most_ = pieces_ + std::min(held, kMostHeldBytes) / static_cast<std::uint64_t>(std::max(1, ranks - 1));
  }

  std::uint64_t most_bytes() const noexcept { return most_; }
  bool has_room(std::uint64_t bytes) const noexcept { return open_ + bytes <= most_; }
  void open(std::uint64_t bytes) noexcept { open_ += bytes; }
  void close(std::uint64_t bytes) noexcept { open_ -= bytes; }

 private:
  static constexpr std::uint64_t kFrameBytes = 4096;
  static constexpr std::uint64_t kLineBytesPerMicrosecond = 125;
  static constexpr std::uint64_t kMostHeldBytes = std::uint64_t{32} << 20;

  std::uint64_t pieces_;
  std::uint64_t most_;
  std::uint64_t open_ = 0;
};

}  // namespace deltawire
