// What the workers have not been sent yet of one part: each change is encoded once and shared by all of them.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "deltawire/codec.h"
#include "deltawire/result.h"
#include "deltawire/transport.h"
#include "server/served_model.h"

namespace deltawire {

using SharedBytes = std::shared_ptr<const std::vector<std::byte>>;

// A message to one worker.
struct Pull {
  std::vector<std::byte> head;
  SharedBytes body;
  bool is_whole = false;

  std::uint64_t bytes() const noexcept { return head.size() + body->size(); }
};

// One message a worker at a time; what the worker lacks beyond it waits. It keeps the handles of sends, but
// makes no call of the transport. Version v of the part is the servers' view after v steps.
class PullQueue {
 public:
  using EncodeView = std::function<Result<SharedBytes>()>;

  // A part of `elements`. `workers` must outlive it.
  PullQueue(const WorkerGroup& workers, std::uint64_t elements)
      : workers_(workers), elements_(elements), outboxes_(workers.size()) {}

  // The first messages: the view of this version, for every worker.
  void begin(std::uint64_t version, const SharedBytes& view) {
    assert(changes_.empty() && view != nullptr);
    first_change_ = version;
    view_ = view;
    for (Outbox& outbox : outboxes_) {
      outbox.next = outbox.taken = version;
      outbox.pull = {change_head(PushVerdict::kCounted), view, true};
    }
  }

  std::uint64_t version() const noexcept { return first_change_ + changes_.size(); }

  // The change from version() to the next one; `has_counted` says it of each worker's push.
  void add(SharedBytes change, const std::function<bool(std::size_t worker)>& has_counted) {
    assert(change != nullptr);
    view_.reset();
    changes_.push_back(std::move(change));
    for (std::size_t worker = 0; worker < outboxes_.size(); ++worker) {
      if (workers_.is_dropped(worker)) continue;
      outboxes_[worker].verdicts.push_back(has_counted(worker) ? PushVerdict::kCounted : PushVerdict::kLate);
    }
  }

  // What the worker is sent next: the first change that it lacks or, if all that it lacks are more bytes than
  // the part itself, the part as it is now, which `encode_view` makes once for all workers. The pull stays
  // until the worker's next one, which is_idle(). Null: it was sent everything.
  Result<const Pull*> next(std::size_t worker, const EncodeView& encode_view) {
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

  // The worker's last pull.
  const Pull& pull(std::size_t worker) const noexcept { return outboxes_[worker].pull; }

  // The send of the worker's last pull.
  void sent(std::size_t worker, Handle send) noexcept {
    assert(is_idle(worker));
    outboxes_[worker].send = send;
  }
  Handle send(std::size_t worker) const noexcept { return outboxes_[worker].send; }
  Handle take_send(std::size_t worker) noexcept {
    return std::exchange(outboxes_[worker].send, Handle::kNone);
  }
  bool is_idle(std::size_t worker) const noexcept { return send(worker) == Handle::kNone; }

  // The worker has taken the last pull; or it was dropped, and nothing of its own is kept.
  void taken(std::size_t worker) noexcept {
    assert(outboxes_[worker].taken <= outboxes_[worker].next);
    Outbox& outbox = outboxes_[worker];
    outbox.pull.body.reset();
    outbox.taken = outbox.next;
  }

  void drop(std::size_t worker) noexcept {
    outboxes_[worker].pull.body.reset();
    outboxes_[worker].verdicts.clear();
  }

  bool lacks_any(std::size_t worker) const noexcept { return outboxes_[worker].next < version(); }
  // Whether the worker has yet to take more than the last lag - 1 changes.
  bool is_behind(std::size_t worker, std::uint64_t lag) const noexcept {
    assert(lag >= 1);
    return outboxes_[worker].taken + lag <= version();
  }

  // True once for each worker: the end of all pulls is the next message.
  bool end(std::size_t worker) noexcept { return !std::exchange(outboxes_[worker].is_ended, true); }
  bool is_ended(std::size_t worker) const noexcept { return outboxes_[worker].is_ended; }

  // Frees the changes that all workers have been sent.
  void forget_sent() noexcept {
    std::uint64_t oldest = version();
    for (std::size_t worker = 0; worker < outboxes_.size(); ++worker) {
      if (!workers_.is_dropped(worker)) oldest = std::min(oldest, outboxes_[worker].next);
    }
    assert(first_change_ <= oldest && oldest <= version());
    for (; first_change_ < oldest; ++first_change_) changes_.pop_front();
  }

 private:
  struct Outbox {
    Handle send = Handle::kNone;
    Pull pull;
    std::uint64_t next = 0;            // the first version that the worker has not been sent
    std::uint64_t taken = 0;           // versions before this one have left
    std::deque<PushVerdict> verdicts;  // on its pushes, from step `next` on
    bool is_ended = false;
  };

  // Whether the part itself is fewer bytes than all changes that a worker lacks.
  Result<bool> whole_is_smaller(const Outbox& outbox, const EncodeView& encode_view) {
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

  const WorkerGroup& workers_;
  std::uint64_t elements_;
  std::vector<Outbox> outboxes_;  // by worker
  std::deque<SharedBytes> changes_;
  std::uint64_t first_change_ = 0;  // leads from this version to the next
  SharedBytes view_;                // of version(), once a worker needed it
};

}  // namespace deltawire
