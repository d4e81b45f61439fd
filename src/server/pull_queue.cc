#include "server/pull_queue.h"

#include <algorithm>

#include "base/errors.h"

namespace deltawire {

void PullQueue::begin(std::uint64_t version, const SharedBytes& view) {
  assert(changes_.empty() && view != nullptr);
  first_change_ = version;
  view_ = view;
  for (Outbox& outbox : outboxes_) {
    outbox.next = outbox.taken = version;
    outbox.pull = {change_head(PushVerdict::kCounted), view, true};
  }
}

void PullQueue::add(SharedBytes change, const std::function<bool(std::size_t worker)>& has_counted) {
  assert(change != nullptr);
  view_.reset();
  changes_.push_back(std::move(change));
  for (std::size_t worker = 0; worker < outboxes_.size(); ++worker) {
    if (workers_.is_dropped(worker)) continue;
    outboxes_[worker].verdicts.push_back(has_counted(worker) ? PushVerdict::kCounted : PushVerdict::kLate);
  }
}

Result<const Pull*> PullQueue::next(std::size_t worker, const EncodeView& encode_view) {
  assert(is_idle(worker) && !workers_.is_dropped(worker));
  Outbox& outbox = outboxes_[worker];
  if (!lacks_any(worker)) return nullptr;
  assert(outbox.next >= first_change_ && outbox.verdicts.size() == version() - outbox.next);
  ASSIGN_OR_RETURN(const bool is_whole, whole_is_smaller(outbox, encode_view));
  if (is_whole) {
    outbox.pull = {whole_head(outbox.verdicts), view_, true};
    outbox.next = version();
    outbox.verdicts.clear();
  } else {
    outbox.pull = {change_head(outbox.verdicts.front()), changes_[outbox.next++ - first_change_]};
    outbox.verdicts.pop_front();
  }
  return &outbox.pull;
}

// Whether the part itself is fewer bytes than all changes that a worker lacks.
Result<bool> PullQueue::whole_is_smaller(const Outbox& outbox, const EncodeView& encode_view) {
  const std::uint64_t lacks = version() - outbox.next;
  if (lacks < 2 || lacks > kVerdictsMax) return false;
  std::uint64_t bytes = 0;
  for (std::uint64_t at = outbox.next; at < version(); ++at) {
    bytes += pull_head_bytes(1) + changes_[at - first_change_]->size();
  }
  if (bytes <= sizeof(float) * elements_) return false;
  if (view_ == nullptr) {
    ASSIGN_OR_RETURN(view_, encode_view());
  }
  return pull_head_bytes(lacks) + view_->size() < bytes;
}

void PullQueue::taken(std::size_t worker) noexcept {
  assert(outboxes_[worker].taken <= outboxes_[worker].next);
  Outbox& outbox = outboxes_[worker];
  outbox.pull.body.reset();
  outbox.taken = outbox.next;
}

void PullQueue::drop(std::size_t worker) noexcept {
  outboxes_[worker].pull.body.reset();
  outboxes_[worker].verdicts.clear();
}

void PullQueue::forget_sent() noexcept {
  std::uint64_t oldest = version();
  for (std::size_t worker = 0; worker < outboxes_.size(); ++worker) {
    if (!workers_.is_dropped(worker)) oldest = std::min(oldest, outboxes_[worker].next);
  }
  assert(first_change_ <= oldest && oldest <= version());
  for (; first_change_ < oldest; ++first_change_) changes_.pop_front();
}

}  // namespace deltawire
