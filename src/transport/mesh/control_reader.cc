#include "transport/mesh/control_reader.h"

#include <cerrno>
#include <new>
#include <utility>
#include <variant>

#include "transport/process/machine.h"

namespace deltawire {

void ControlReader::read(Peer& peer) {
  if (peer.is_gone) return;
  peer.control.begin_reading();
  try {
    while (const ControlMessage* message = peer.control.front()) {
      peer.heard_at = MachineClock::now();
      on_message(peer, *message);
      peer.control.pop();
      if (peer.is_gone) return;
    }
    if (peer.control.end() == ControlStream::End::kOpen) return;
    on_end(peer);
    peer.is_gone = true;
  } catch (const std::bad_alloc&) {
    peer.control.postpone();
    driver_.wake();
    throw;
  }
}

void ControlReader::read_all() {
  peers_.each([this](Peer& peer) { read(peer); });
  count_ballots();
}

void ControlReader::count_ballots() {
  if (!consensus_.may_count()) return;
  peers_.each([this](Peer& peer) { read(peer); });
  consensus_.count();
}

void ControlReader::give_up_waiting() {
  const Deadline settle_by = consensus_.settle_by();
  if (settle_by == kNever || MachineClock::now() < settle_by) return;
  // This rank itself may have been frozen.
  peers_.each([this](Peer& peer) { read(peer); });
  consensus_.give_up_waiting();
}

void ControlReader::on_message(Peer& peer, const ControlMessage& message) {
  if (const auto* vote = std::get_if<Vote>(&message)) return consensus_.receive(peer, *vote);
  if (const auto* round = std::get_if<SettleRound>(&message)) return consensus_.receive(peer, *round);
  if (const auto* verdict = std::get_if<Verdict>(&message)) return consensus_.receive(peer, *verdict);
  if (const auto* abort = std::get_if<Abort>(&message)) return on_abort(peer, *abort);
  if (const auto* waiting = std::get_if<Waiting>(&message)) return on_waiting(peer, *waiting);
  if (const auto* start = std::get_if<Start>(&message)) return on_start(peer, *start);
  if (const auto* goodbye = std::get_if<Goodbye>(&message)) return on_goodbye(peer, *goodbye);
  if (const auto* dropped = std::get_if<Dropped>(&message)) return membership_.on_dropped(peer, *dropped);
  const auto& here = std::get<Here>(message);
  peer.place = here.place;
  peer.deaf = here.deaf;
}

void ControlReader::on_end(Peer& peer) {
  consensus_.on_gone(peer.rank);
  if (consensus_.failed()) return;
  if (peer.control.end() == ControlStream::End::kDamaged) {
    membership_.blame(peer, {ErrorCode::kCorrupt,
                             "control stream from " + peers_.name(peer.rank) +
                                 " is damaged; check the network and its machine",
                             peer.rank});
  } else if (!peer.said_goodbye) {
    judge_.blame_broken(peer, peer.control.error() == EBADMSG ? EBADMSG : peer.stream_error);
  }
}

void ControlReader::on_waiting(Peer& peer, const Waiting& waiting) {
  announcer_.on_waiting(peer, waiting);
  if (waiting.rank != WaitGraph::kNobody && !consensus_.failed())
    announcer_.announce_all(MachineClock::now());
}

void ControlReader::on_start(Peer& peer, const Start& start) {
  auto mismatch = steps_.on_start(peer, start, consensus_.misses_vote_of(peer.rank));
  if (mismatch) consensus_.fail(std::move(*mismatch), peers_.self());
}

void ControlReader::on_goodbye(Peer& peer, const Goodbye& goodbye) {
  peer.said_goodbye = true;
  peer.verdict_at = kNever;
  announcer_.on_gone(peer.rank);
  consensus_.on_left(peer.rank, goodbye.decided);
  consensus_.notify_waiters();
}

void ControlReader::on_abort(Peer& peer, const Abort& abort) {
  if (consensus_.failed()) return;
  // A peer that names this rank as the origin can't know better than this rank: then the peer is the origin.
  const int origin = abort.origin < 0 || abort.origin == peers_.self() ? peer.rank : abort.origin;
  Error error = abort.error;
  if (!peers_.names().has(error.suspect, peers_.world_size())) error.suspect = origin;
  if (error.message.empty()) error.message = "a failure, and gives no reason";
  if (!peer.is_optional) return consensus_.fail(std::move(error), origin);
  // It may pass on a report about another rank; but required ranks get such reports themselves, and decide.
  membership_.drop(peer, peers_.names().reported(peer.rank, std::move(error)));
}

}  // namespace deltawire
