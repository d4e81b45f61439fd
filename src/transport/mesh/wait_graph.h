// The announced waits between ranks; finds the rank that all wait for.
#pragma once

#include <cassert>
#include <vector>

namespace deltawire {

class WaitGraph {
 public:
  static constexpr int kNobody = -1;

  explicit WaitGraph(int world_size) : waits_for_(static_cast<std::size_t>(world_size), kNobody) {}

  // `rank` announces that it waits for `other`, or no longer waits (kNobody).
  void set(int rank, int other) noexcept {
    assert(other >= kNobody && other < static_cast<int>(waits_for_.size()));
    waits_for_[static_cast<std::size_t>(rank)] = other;
  }
  int of(int rank) const noexcept { return waits_for_[static_cast<std::size_t>(rank)]; }
  bool anyone_waits() const noexcept;

  struct Verdict {
    int suspect = kNobody;
    std::vector<int> path = {};  // the ranks from the first to the suspect, or to where a cycle closes
    bool cycle = false;
    std::vector<int> circle = {};  // the ranks that wait for each other, if `self` is not among them
    std::vector<int> chain = {};   // each waits for the next; empty for a chain of one
  };
  // `self` waits for `first`: follows the announcements from there to a rank that waits for none. In a cycle
  // all ranks wait, so the suspect is `first` itself.
  Verdict follow(int self, int first) const;

 private:
  void circle_from(int rank, std::vector<int>& circle) const;

  std::vector<int> waits_for_;
};

}  // namespace deltawire
