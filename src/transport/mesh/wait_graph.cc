#include "transport/mesh/wait_graph.h"

#include <algorithm>

namespace deltawire {

bool WaitGraph::anyone_waits() const noexcept {
  return std::any_of(waits_for_.begin(), waits_for_.end(), [](int other) { return other != kNobody; });
}

void WaitGraph::circle_from(int rank, std::vector<int>& circle) const {
  int at = rank;
  do {
    circle.push_back(at);
    at = of(at);
  } while (at != rank);
}

WaitGraph::Verdict WaitGraph::follow(int self, int first) const {
  Verdict verdict;
  std::vector<bool> seen(waits_for_.size(), false);
  seen[static_cast<std::size_t>(self)] = true;
  int at = first;
  while (true) {
    if (seen[static_cast<std::size_t>(at)]) {
      verdict.suspect = first;
      verdict.cycle = true;
      if (at != self) circle_from(at, verdict.circle);
      return verdict;
    }
    seen[static_cast<std::size_t>(at)] = true;
    verdict.path.push_back(at);
    const int next = of(at);
    if (next == kNobody) {
      verdict.suspect = at;
      return verdict;
    }
    if (verdict.chain.empty()) verdict.chain.push_back(at);
    verdict.chain.push_back(next);
    at = next;
  }
}

}  // namespace deltawire
