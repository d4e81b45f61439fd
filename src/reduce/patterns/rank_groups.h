// The groups of ranks of `hierarchical`, and who stands for whom. A function of the numbers of ranks alone,
// the same on all ranks; docs/reference/format.md states it: it is on the wire.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>

namespace deltawire {

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

}  // namespace deltawire
