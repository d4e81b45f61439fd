// The messages by which ranks agree on which steps count (docs/design/commit.md).
#pragma once

#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire {

// A set of ranks of one mesh.

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

// What a rank knows about the ballots: how many were unanimous, and who has voted how on the next one.
struct Knowledge {
  std::uint64_t decided = 0;
  RankSet voters;      // on ballot number `decided`
  Ballot ballot = {};  // theirs; meaningless without voters
  bool split = false;  // two of them differ; a rank that knows this needs no rounds, so it is never sent

  void add(int voter, const Ballot& cast) noexcept;
  void merge(const Knowledge& other) noexcept;
  // The number of ballots that count, according to this knowledge.
  std::uint64_t verdict(int world_size) const noexcept;
  bool operator==(const Knowledge&) const = default;
};

// A rank's ballot. A vote on ballot number n also says that those before n were unanimous.
struct Vote {
  std::uint64_t number = 0;  // from 0
  Ballot ballot;

  bool operator==(const Vote&) const = default;
};

// One round of settling: all that the sender knew when the round began, and the ranks it has given up on.
struct SettleRound {
  std::uint32_t number = 0;  // from 1
  Knowledge known;
  RankSet absent;

  bool operator==(const SettleRound&) const = default;
};

// The sender has settled: its final number of ballots that count. It has given up on the absent ranks.
struct Verdict {
  std::uint64_t decided = 0;
  RankSet absent;

  bool operator==(const Verdict&) const = default;
};

using AgreementMessage = std::variant<Vote, SettleRound, Verdict>;

}  // namespace deltawire
