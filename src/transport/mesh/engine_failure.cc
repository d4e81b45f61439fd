#include <algorithm>
#include <system_error>

#include "transport/mesh/engine.h"

namespace deltawire {
namespace {

// How long a peer whose data stream broke may take to explain itself on its control stream. A crash ends
// both at once, so this passes only if one connection alone was cut.
constexpr std::chrono::milliseconds kExplanationTime{200};

std::string rank_name(int rank) {
  return "rank " + std::to_string(rank);
}

}  // namespace

void Engine::read_control(Peer& peer) {
  if (peer.control.end() != ControlStream::End::kOpen) return;
  std::vector<ControlMessage> news = std::move(news_);
  news.clear();
  peer.control.receive(news);
  for (const ControlMessage& message : news) on_control(peer, message);
  news_ = std::move(news);
  if (peer.control.end() == ControlStream::End::kOpen || failure_) return;
  if (peer.control.end() == ControlStream::End::kDamaged) {
    fail({ErrorCode::kCorrupt,
          "control stream from " + rank_name(peer.rank) + " is damaged; check the network and its machine",
          peer.rank},
         rank_);
  } else if (!peer.said_goodbye) {
    fail_lost(peer, peer.stream_error);
  }
}

void Engine::on_control(Peer& peer, const ControlMessage& message) {
  switch (message.kind) {
    case ControlMessage::Kind::kAbort: on_abort(peer, message); return;
    case ControlMessage::Kind::kWaiting:
      waits_.set(peer.rank, message.rank);
      // Deadlines differ, so that the first to pass half of its own may be the first to end: whoever waits
      // answers at once, or he would be taken for the one that everybody waits for.
      if (message.rank != WaitGraph::kNobody) announce_all_waits();
      return;
    case ControlMessage::Kind::kGoodbye:
      peer.said_goodbye = true;
      peer.verdict_at = kNever;
      waits_.set(peer.rank, WaitGraph::kNobody);
      notify_waiters();
      return;
  }
}

void Engine::on_abort(Peer& peer, const ControlMessage& message) {
  if (failure_) return;
  const int origin = message.origin < 0 ? peer.rank : message.origin;
  const int suspect = message.rank < 0 ? origin : message.rank;
  fail({message.code, message.text, suspect}, origin);
}

// The first error wins; all others learn it from here, even if its origin can't reach them.
void Engine::fail(Error error, int origin) {
  if (failure_) return;
  ControlMessage news;
  news.kind = ControlMessage::Kind::kAbort;
  news.code = error.code;
  news.rank = error.suspect;
  news.origin = origin;
  news.text = error.message;
  if (origin != rank_ && !error.message.starts_with(rank_name(origin) + " ")) {
    error.message = rank_name(origin) + " reports: " + error.message;
  }
  failure_ = std::move(error);
  each_peer([](Peer& peer) {
    peer.sender.clear();
    peer.receiver.clear();
  });
  notify_waiters();
  broadcast(news);
  wake_io_thread();
}

void Engine::on_data_lost(Peer& peer, int error) {
  if (error != 0) peer.stream_error = error;
  // The peer's last words come first: one that aborted and left is not to blame.
  read_control(peer);
  if (failure_) return;
  if (peer.said_goodbye) {
    notify_waiters();
  } else if (peer.verdict_at == kNever) {
    peer.verdict_at = Clock::now() + kExplanationTime;
    wake_io_thread();
  }
}

void Engine::fail_lost(Peer& peer, int error) {
  const std::string name = rank_name(peer.rank);
  std::string message;
  if (error != 0) {
    message = "the connection to " + name + " broke (" + std::generic_category().message(error) +
              "); check the network and " + name + "'s machine";
  } else if (peer.control.end() == ControlStream::End::kOpen) {
    message = "the data connection to " + name +
              " was cut while its control connection still stands; check the network between";
  } else {
    message =
        name + " closed its connection without a farewell (killed or crashed?); see " + name + "'s own log";
  }
  fail({ErrorCode::kPeerLost, std::move(message), peer.rank}, rank_);
}

void Engine::fail_left(const Peer& peer) {
  const std::string name = rank_name(peer.rank);
  fail({ErrorCode::kPeerLost,
        name + " left in good order while " + rank_name(rank_) +
            " still waits for it; do all ranks run the same number of steps?",
        peer.rank},
       rank_);
}

void Engine::fail_timeout(const Waiter& waiter) {
  // This rank itself may have been the frozen one: the verdict of the others is then here already.
  each_peer([this](Peer& peer) { read_control(peer); });
  if (failure_) return;
  const Operation& operation = *waiter.operation;
  const WaitGraph::Verdict verdict = waits_.follow(rank_, operation.peer);
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - waiter.began_at);
  std::string message =
      rank_name(rank_) + " waited " + std::to_string(waited.count()) + " ms for " +
      rank_name(operation.peer) +
      (operation.kind == Operation::Kind::kSend ? " to take a message; " : " to send one; ");
  if (verdict.cycle) {
    message +=
        verdict.chain + ": the ranks wait for each other in a circle, so do they all run the same steps?";
  } else {
    if (!verdict.chain.empty()) message += verdict.chain + "; ";
    message += rank_name(verdict.suspect) + " waits for nobody: frozen, stuck or busy, see its own log";
  }
  fail({ErrorCode::kTimeout, std::move(message), verdict.suspect}, rank_);
}

void Engine::broadcast(const ControlMessage& message) {
  each_peer([&message](Peer& peer) { peer.control.send(message); });
}

// Tells the others whom the longest of the waits worth announcing is for, if that has changed.
void Engine::update_announcement() {
  int target = WaitGraph::kNobody;
  for (const Waiter* waiter : waiters_) {
    if (!waiter->announced || waiter->operation->done) continue;
    target = waiter->operation->peer;
    break;
  }
  if (target == announced_ || failure_) return;
  announced_ = target;
  ControlMessage news;
  news.kind = ControlMessage::Kind::kWaiting;
  news.rank = target;
  broadcast(news);
}

void Engine::announce_all_waits() {
  for (Waiter* waiter : waiters_) waiter->announced = true;
  update_announcement();
}

void Engine::notify_waiters() noexcept {
  for (Waiter* waiter : waiters_) waiter->changed.notify_all();
}

}  // namespace deltawire
