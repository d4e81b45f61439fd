// The messages by which ranks agree on which steps count (docs/design/commit.md).
#pragma once

#include <cstdint>
#include <variant>

#include "deltawire/transport.h"
#include "transport/mesh/rank_set.h"

namespace deltawire {

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
