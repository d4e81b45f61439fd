#include "transport/mesh/step_sequence.h"

#include <string>

namespace deltawire {

std::optional<Error> StepSequence::arrive(std::uint64_t step) {
  ++place_;
  is_open_ = true;
  if (starts_ == 0 || (step != last_step_ && step != last_step_ + 1)) {
    ++starts_;
    start_step_ = step;
    peers_.broadcast(Start{step});
  }
  last_step_ = step;
  std::optional<Error> mismatch;
  peers_.each([&](const Peer& peer) {
    if (!mismatch) mismatch = compare(peer);
  });
  return mismatch;
}

std::optional<Error> StepSequence::on_start(Peer& peer, const Start& start, bool vote_is_missing) {
  ++peer.starts;
  peer.start_step = start.step;
  // A peer that starts anew without having voted on this rank's step will not take part in it. Otherwise this
  // rank may be about to start anew, too, which its next arrival will show.
  if (peer.starts <= starts_ || is_open_ || vote_is_missing) return compare(peer);
  return std::nullopt;
}

std::optional<Error> StepSequence::compare(const Peer& peer) const {
  if (starts_ == 0 || peer.starts < starts_) return std::nullopt;
  if (peer.starts == starts_ && peer.start_step == start_step_) return std::nullopt;
  const std::uint64_t own_step = peer.starts == starts_ ? start_step_ : last_step_;
  const int self = peers_.self();
  return Error{.code = ErrorCode::kMismatch,
               .message = peers_.name(peer.rank) + " continues at step " + std::to_string(peer.start_step) +
                          ", " + peers_.name(self) + " at step " + std::to_string(own_step),
               .suspect = peer.rank,
               .reporter = self,
               .ranks = {peer.rank},
               .advice = "load the same checkpoint on every rank, or on none"};
}

}  // namespace deltawire
