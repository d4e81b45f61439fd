// A carrier for tests: bytes pass through queues between threads of one process.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "deltawire/connect.h"

namespace deltawire::test {

// What is between all ranks' carriers.
struct Queues {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<Bytes>> sent;  // by sender and receiver
  std::set<int> gone;
  std::size_t carried = 0;
};

// As with most libraries, a send waits for its receive.
class MemoryCarrier : public Carrier {
 public:
  MemoryCarrier(std::shared_ptr<Queues> queues, int rank) : queues_(std::move(queues)), rank_(rank) {}
  ~MemoryCarrier() override {
    const std::lock_guard lock(queues_->mutex);
    queues_->gone.insert(rank_);
    queues_->changed.notify_all();
  }
  MemoryCarrier(const MemoryCarrier&) = delete;
  MemoryCarrier& operator=(const MemoryCarrier&) = delete;

  bool send(int peer, Bytes bytes) noexcept override {
    std::unique_lock lock(queues_->mutex);
    auto& sent = queues_->sent[{rank_, peer}];
    sent.push_back(bytes);
    queues_->changed.notify_all();
    queues_->changed.wait(lock, [&] { return sent.empty() || queues_->gone.contains(peer); });
    const bool taken = sent.empty();
    sent.clear();
    return taken;
  }
  bool receive(int peer, MutBytes into) noexcept override {
    std::unique_lock lock(queues_->mutex);
    auto& sent = queues_->sent[{peer, rank_}];
    queues_->changed.wait(lock, [&] { return !sent.empty() || queues_->gone.contains(peer); });
    if (sent.empty() || sent.front().size() != into.size()) return false;
    std::ranges::copy(sent.front(), into.begin());
    sent.pop_front();
    queues_->carried += into.size();
    queues_->changed.notify_all();
    return true;
  }

 private:
  const std::shared_ptr<Queues> queues_;
  const int rank_;
};

// The options of all ranks of a mesh, or others, with carriers.
inline std::vector<LinkOptions> carried(int world_size, std::vector<LinkOptions> links = {}) {
  const auto queues = std::make_shared<Queues>();
  links.resize(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    links[static_cast<std::size_t>(rank)].carrier = std::make_shared<MemoryCarrier>(queues, rank);
  }
  return links;
}

}  // namespace deltawire::test
