// Which parts travel when in `hierarchical`, and whose messages come when. The same on all ranks, but for the
// rank's own place.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "deltawire/tensor.h"
#include "reduce/patterns/message_plan.h"
#include "reduce/patterns/owners.h"

namespace deltawire {

// The groups of ranks of `hierarchical`, and who stands for whom. A function of the numbers of ranks alone,
// the same on all ranks; docs/reference/format.md states it: it is on the wire.
//
// Ranks in a row form a group: 0 to most - 1, most to 2 most - 1 and so on. The last may have fewer.
//
// The parts of tensors are divided among a few lists. In each group one member adds up what its group has of
// a list, and one of these, the list's owner, forms the mean. There are as many lists as a whole group has
// members, or the least multiple of that with which each group has an owner: so every site sends equally
// much, and the number of a rank's messages grows with the members of a group and the number of groups alone.
class RankGroups {
 public:
  RankGroups(int world, int most) noexcept : world_(world), most_(std::min(most, world)) {
    assert(world >= 1 && most >= 1);
  }

  int count() const noexcept { return (world_ + most_ - 1) / most_; }
  int of(int rank) const noexcept { return rank / most_; }
  int first(int group) const noexcept { return group * most_; }
  int members(int group) const noexcept { return std::min(most_, world_ - first(group)); }

  std::size_t lists() const noexcept {
    return static_cast<std::size_t>(most_) * static_cast<std::size_t>((count() + most_ - 1) / most_);
  }
  // The member of a group that adds up the list.
  int adder(int group, std::size_t list) const noexcept {
    const int column = static_cast<int>(list % static_cast<std::size_t>(most_));
    return first(group) + column % members(group);
  }
  int owner(std::size_t list) const noexcept {
    return adder(static_cast<int>(list % static_cast<std::size_t>(count())), list);
  }

 private:
  int world_;
  int most_;
};

// The parts of a tensor; `owner` is the list of each.
inline std::vector<OwnedRange> hierarchical_ranges(std::string_view name, std::uint64_t count,
                                                   std::size_t lists) {
  return owned_ranges(name, count, static_cast<int>(lists), kPieceElements);
}

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
  void cut(std::span<const Named> tensors, const Where& where) {
    assert(where.rank >= 0 && where.rank < where.world);
    groups_ = RankGroups(where.world, where.members);
    rank_ = where.rank;
    messages_.cut(tensors, groups_.lists(), {kPieceElements, kPieceElements}, [&](const Named& tensor) {
      return TensorParts{hierarchical_ranges(tensor.name, tensor.tensor.count, groups_.lists())};
    });
    shares = {{}, static_cast<std::size_t>(groups_.members(group()))};
    sums = {{}, static_cast<std::size_t>(groups_.count())};
    means = {};
    for (std::size_t list = 0; list < messages_.lists(); ++list) {
      const bool owns = groups_.owner(list) == rank_;
      for (std::size_t message = 0; message < messages_.list(list).size(); ++message) {
        if (adds(list)) shares.places.push_back({list, message});
        (owns ? sums : means).places.push_back({list, message});
      }
    }
    sums.from = shares.receive_of(shares.places.size(), 0);
    means.from = sums.receive_of(sums.places.size(), 0);
  }

  // For the tensors that were cut last, when they lie elsewhere.
  void place(std::span<const Named> tensors) {
    messages_.place(tensors);
    for (Arrivals* each : {&shares, &sums, &means}) each->next = each->source = 0;
  }

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
  int sender_of_mean(std::size_t list) const noexcept {
    const int owner = groups_.owner(list);
    return groups_.of(owner) == group() || adds(list) ? owner : groups_.adder(group(), list);
  }

  std::size_t most_sends() const noexcept {
    const int each = 2 * groups_.members(group()) + groups_.count();
    std::size_t messages = 0;
    for (std::size_t list = 0; list < messages_.lists(); ++list) messages += messages_.list(list).size();
    return static_cast<std::size_t>(each) * messages;
  }

  // What this rank sends, uncompressed.
  std::uint64_t raw_bytes_sent() const noexcept {
    const auto others = static_cast<std::uint64_t>(groups_.members(group()) - 1);
    const auto groups = static_cast<std::uint64_t>(groups_.count() - 1);
    std::uint64_t bytes = 0;
    for (std::size_t list = 0; list < messages_.lists(); ++list) {
      std::uint64_t copies = 1;  // of gradients, or of the sum
      if (adds(list)) copies = others + (groups_.owner(list) == rank_ ? groups : 1);
      for (const PartMessage& message : messages_.list(list)) bytes += copies * message.raw_bytes();
    }
    return bytes;
  }

 private:
  MessagePlan messages_;
  RankGroups groups_{1, 1};
  int rank_ = 0;
};

}  // namespace deltawire
