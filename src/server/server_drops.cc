// Workers that the run goes on without (ServerOptions::on_worker_loss).
#include <string>

#include "server/server_rank.h"

namespace deltawire {

// The transport says of an operation with a worker, or this server of its push, what went wrong: where the
// worker alone is lost it is dropped, and all is well.
Status Server::dropped_or(std::size_t worker, const Error& error) {
  const std::optional<Error> loss = transport_.departure_of(rank_of(worker));
  if (!loss) return tl::unexpected<Error>(error);
  if (!is_dropped_[worker]) drop(worker, *loss);
  return check_workers();
}

// Its operations have failed and are forgotten here. A push that had come whole counts in its step.
void Server::drop(std::size_t worker, const Error& why) {
  is_dropped_[worker] = 1;
  dropped_.push_back({rank_of(worker), step_, why, std::chrono::system_clock::now()});
  for (OwnPart& own : own_) {
    Outbox& outbox = own.outboxes[worker];
    for (const Handle handle : {std::exchange(own.inboxes[worker].receive, Handle::kNone),
                                std::exchange(outbox.handle, Handle::kNone)}) {
      (void)transport_.wait(handle, Clock::now());
    }
    outbox.body.reset();
    outbox.verdicts.clear();
  }
}

Status Server::check_workers() const {
  if (dropped_.empty() || workers_left() >= static_cast<std::size_t>(options_.min_workers) || is_closing_)
    return {};
  const DroppedWorker& last = dropped_.back();
  const int suspect = last.why.suspect == kNoSuspect ? last.rank : last.why.suspect;
  return fail(ErrorCode::kPeerLost,
              std::to_string(workers_left()) + " of " + std::to_string(counted_.size()) +
                  " workers are left, below " + "min_workers=" + std::to_string(options_.min_workers) +
                  "; the last that was lost is rank " + std::to_string(last.rank) + ": " + last.why.message,
              suspect);
}

}  // namespace deltawire
