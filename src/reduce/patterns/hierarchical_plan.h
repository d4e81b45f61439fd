// Which parts travel when in `hierarchical`, and whose messages come when. The same on all ranks, but for the
// rank's own place.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "deltawire/tensor.h"
#include "reduce/patterns/message_plan.h"
#include "reduce/patterns/owners.h"
#include "reduce/patterns/rank_groups.h"

namespace deltawire {

// The parts of a tensor; `owner` is the list of each.
std::vector<OwnedRange> hierarchical_ranges(std::string_view name, std::uint64_t count, std::size_t lists);

// Messages in a fixed order, each of which comes from several ranks (shares, sums) or from one (means). Order
// and sources are the same on both ends of a stream.
struct Arrivals {
  std::vector<MessagePlan::Place> places = {};
  std::size_t sources = 1;  // of each
  std::size_t from = 0;     // number of the first receive
  std::size_t next = 0;     // place,
  std::size_t source = 0;   // and source of it

  bool is_done() const noexcept { return next == places.size(); }
  const MessagePlan::Place& place() const noexcept {
    assert(!is_done());
    return places[next];
  }
  std::size_t receive_of(std::size_t at, std::size_t of) const noexcept { return from + at * sources + of; }
  std::size_t receive() const noexcept { return receive_of(next, source); }
  // Whether that was the place's last source.
  bool advance() noexcept {
    assert(!is_done() && source < sources);
    if (++source < sources) return false;
    source = 0;
    ++next;
    return true;
  }
};

class HierarchicalPlan {
 public:
  struct Where {
    int members = 1;  // of a group
    int world = 1;
    int rank = 0;
  };

  // Cuts the tensors into messages, and lists what comes to the rank.
  void cut(std::span<const Named> tensors, const Where& where);
  // For the tensors that were cut last, when they lie elsewhere.
  void place(std::span<const Named> tensors);

  Arrivals shares;  // of the group's gradients
  Arrivals sums;    // of groups, of what this rank owns
  Arrivals means;   // of what others own

  MessagePlan& messages() noexcept { return messages_; }
  const MessagePlan& messages() const noexcept { return messages_; }
  const PartMessage& message(const MessagePlan::Place& place) const noexcept {
    return messages_.message(place);
  }
  const RankGroups& groups() const noexcept { return groups_; }
  int group() const noexcept { return groups_.of(rank_); }
  bool adds(std::size_t list) const noexcept { return groups_.adder(group(), list) == rank_; }
  // From its owner, or through the member of this rank's group that adds up the list.
  int sender_of_mean(std::size_t list) const noexcept;

  std::size_t most_sends() const noexcept;
  // What this rank sends, uncompressed.
  std::uint64_t raw_bytes_sent() const noexcept;

 private:
  MessagePlan messages_;
  RankGroups groups_{1, 1};
  int rank_ = 0;
};

}  // namespace deltawire
