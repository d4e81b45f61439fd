#include "server/worker_group.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <string>

namespace deltawire {

std::size_t WorkerGroup::needed() const noexcept {
  assert(backup_ < size() && dropped_.size() <= size());
  return std::min(size() - backup_, left());
}

void WorkerGroup::drop(std::size_t worker, std::uint64_t step, const Error& why) {
  assert(!is_dropped(worker));
  is_dropped_[worker] = 1;
  dropped_.push_back({rank_of(worker), step, why, std::chrono::system_clock::now()});
}

namespace {

tl::unexpected<Error> blame(const DroppedWorker& last, const std::string& what) {
  const int suspect = last.why.suspect == kNoSuspect ? last.rank : last.why.suspect;
  return tl::unexpected<Error>(Error{.code = ErrorCode::kPeerLost,
                                     .message = what + "; the last that was lost is rank " +
                                                std::to_string(last.rank) + ": " + last.why.message,
                                     .suspect = suspect,
                                     .ranks = {last.rank},
                                     .advice = last.why.advice});
}

}  // namespace

tl::unexpected<Error> WorkerGroup::ended_amid_step() const {
  if (dropped_.empty()) return fail(ErrorCode::kMismatch, "workers have closed in the midst of a step");
  return blame(dropped_.back(),
               "too few workers are left in the midst of a step, because the others have closed");
}

Status WorkerGroup::check_left() const {
  if (dropped_.empty() || left() >= min_workers_) return {};
  return blame(dropped_.back(), std::to_string(left()) + " of " + std::to_string(size()) +
                                    " workers are left, below min_workers=" + std::to_string(min_workers_));
}

}  // namespace deltawire
