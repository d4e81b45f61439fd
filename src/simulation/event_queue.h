// What is going to happen in a simulation, in the order of time.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "deltawire/transport.h"

namespace deltawire::simulation {

struct Event {
  Deadline when;
  std::size_t fiber = 0;
  std::uint64_t token = 0;       // of the fiber's wait that it ends
  std::function<void()> action;  // instead of a fiber
  std::uint64_t number = 0;      // of equal times the earlier; the queue's
};

class EventQueue {
 public:
  bool empty() const noexcept { return events_.empty(); }
  void push(Event event) {
    event.number = pushed_++;
    events_.push_back(std::move(event));
    std::ranges::push_heap(events_, is_later);
  }
  // The next one.
  Event pop() {
    assert(!empty());
    std::ranges::pop_heap(events_, is_later);
    Event next = std::move(events_.back());
    events_.pop_back();
    return next;
  }

 private:
  static bool is_later(const Event& one, const Event& other) noexcept {
    return one.when != other.when ? one.when > other.when : one.number > other.number;
  }

  std::vector<Event> events_;  // a heap
  std::uint64_t pushed_ = 0;
};

}  // namespace deltawire::simulation
