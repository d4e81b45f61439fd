#include "transport/mesh/waiters.h"

#include <algorithm>
#include <cassert>

namespace deltawire {
namespace {

// While others are already announcing, a wait that lasts this long is announced, too.
constexpr std::chrono::milliseconds kPromptAnnouncement{20};
// A departure extends other waits by no more than this, however long this rank has waited before.
constexpr std::chrono::hours kLongestRenewal{24};

Clock::duration span_of(const Waiter& waiter) noexcept {
  return std::max(waiter.deadline - waiter.began_at, Clock::duration{0});
}

}  // namespace

void Waiters::add(Waiter& waiter, bool others_announce) {
  assert(waiter.operation != nullptr && waiter.operation->waiter == nullptr);
  waiter.span = span_of(waiter);
  longest_wait_ = std::max(longest_wait_, std::min<Clock::duration>(waiter.span, kLongestRenewal));
  if (waiter.deadline < renewed_until_) {
    waiter.deadline = renewed_until_;
    waiter.span = span_of(waiter);
  }
  waiter.announce_at = waiter.began_at + waiter.span / 2;
  if (others_announce) {
    waiter.announce_at = std::min(waiter.announce_at, waiter.began_at + kPromptAnnouncement);
  }
  waiters_.push_back(&waiter);
  set_changed(waiter, &waiter.changed);
}

void Waiters::remove(Waiter& waiter) noexcept {
  set_changed(waiter, nullptr);
  assert(std::ranges::count(waiters_, &waiter) == 1);
  std::erase(waiters_, &waiter);
}

void Waiters::set_changed(const Waiter& waiter, Condition* changed) noexcept {
  waiter.operation->waiter = changed;
  for (const Handle other : waiter.others) {
    assert(operations_.find(other) != nullptr);
    operations_.find(other)->waiter = changed;
  }
}

bool Waiters::has_ended(const Waiter& waiter) const noexcept {
  return waiter.operation->done || (waiter.heeds_wake && wake_due_) ||
         std::ranges::any_of(waiter.others, [this](Handle other) { return operations_.find(other)->done; });
}

void Waiters::notify_all() noexcept {
  for (Waiter* waiter : waiters_) waiter->changed.notify_all();
}

void Waiters::wake() noexcept {
  wake_due_ = true;
  for (Waiter* waiter : waiters_) {
    if (waiter->heeds_wake) waiter->changed.notify_one();
  }
}

void Waiters::renew_all(Deadline now) {
  renewed_until_ = now + longest_wait_;
  for (Waiter* waiter : waiters_) extend_to_renewal(*waiter, now);
}

void Waiters::renew(Waiter& waiter, Deadline now) noexcept {
  renewed_until_ = now + longest_wait_;
  extend_to_renewal(waiter, now);
}

void Waiters::extend_to_renewal(Waiter& waiter, Deadline now) noexcept {
  if (waiter.deadline >= renewed_until_) return;
  waiter.deadline = renewed_until_;
  waiter.announced = false;
  waiter.asked_at = kNever;
  waiter.announce_at = now + longest_wait_ / 2;
}

}  // namespace deltawire
