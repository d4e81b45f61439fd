// A set of ranks of one mesh.
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/tensor.h"

namespace deltawire {

class RankSet {
 public:
  RankSet() = default;
  explicit RankSet(int world_size) : bytes_((static_cast<std::size_t>(world_size) + 7) / 8) {}

  bool has(int rank) const noexcept {
    assert(rank >= 0 && at(rank) < bytes_.size());
    return (bytes_[at(rank)] & bit(rank)) != std::byte{0};
  }
  void add(int rank) noexcept {
    assert(rank >= 0 && at(rank) < bytes_.size());
    bytes_[at(rank)] |= bit(rank);
  }
  void add(const RankSet& other) noexcept {
    assert(other.bytes_.size() == bytes_.size());
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] |= other.bytes_[i];
  }
  int count() const noexcept {
    int total = 0;
    for (const std::byte each : bytes_) total += std::popcount(static_cast<std::uint8_t>(each));
    return total;
  }
  bool operator==(const RankSet&) const = default;

  // Rank r is bit r % 8 of byte r / 8, as in a control message.
  Bytes bytes() const noexcept { return bytes_; }
  MutBytes bytes() noexcept { return bytes_; }

 private:
  static std::size_t at(int rank) noexcept { return static_cast<std::size_t>(rank) / 8; }
  static std::byte bit(int rank) noexcept { return std::byte{1} << (rank % 8); }

  std::vector<std::byte> bytes_;
};

}  // namespace deltawire
