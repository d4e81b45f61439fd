#include "transport/tcp/pending_connections.h"

#include <algorithm>
#include <cerrno>

#include <sys/socket.h>

namespace deltawire {
namespace {

constexpr std::size_t kStrangersMax = 64;
// How long a stranger may take from one complete message to the next.
constexpr std::chrono::seconds kSilenceMax{5};
constexpr std::chrono::milliseconds kAcceptPause{50};
// A stranger that has sent its claims gets at least this long for the rest, however many others connect.
constexpr std::chrono::milliseconds kFairTime{20};

}  // namespace

// All other ranks may connect at once, on both streams, and strangers, too.
PendingConnections::PendingConnections(std::unique_ptr<TcpListener> listener, int world_size,
                                       const EncryptionPolicy& policy) noexcept
    : listener_(std::move(listener)),
      policy_(policy),
      strangers_max_(
          descriptors_for_strangers(world_size, kStrangersMax + 2 * static_cast<std::size_t>(world_size))) {}

Status PendingConnections::advance(Deadline now, PeerTable& peer_table) {
  if (Status status = accept_all(now, peer_table); !status) return status;
  hear_strangers(now);
  return hear_ranks(peer_table);
}

void PendingConnections::hear_strangers(Deadline now) {
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    Greeting& greeting = stranger->greeting;
    const bool had_heard = greeting.has_heard();
    const Exchange state = greeting.advance();
    if (greeting.has_heard() != had_heard) stranger->heard_at = now;
    const bool goes_on = state == Exchange::kMore || state == Exchange::kDone;
    if (goes_on && greeting.is_trusted()) {
      configure_connection(greeting.fd(), greeting.peer().stream);
      ranks_.push_back(std::move(*stranger));
    } else if (state == Exchange::kMore && now < stranger->heard_at + kSilenceMax) {
      ++stranger;
      continue;
    }
    if (state == Exchange::kStranger) ++refused_;
    stranger = strangers_.erase(stranger);
  }
}

Status PendingConnections::hear_ranks(PeerTable& peer_table) {
  for (auto rank = ranks_.begin(); rank != ranks_.end();) {
    const Exchange state = rank->greeting.advance();
    if (state == Exchange::kMore) {
      ++rank;
      continue;
    }
    if (state == Exchange::kDone) {
      if (Status status = welcome(rank->greeting, peer_table); !status) return status;
    }
    rank = ranks_.erase(rank);
  }
  return {};
}

Status PendingConnections::accept_all(Deadline now, const PeerTable& peer_table) {
  if (now < accept_at_) return {};
  accept_at_ = Deadline{};
  while (true) {
    if (strangers_.size() == strangers_max_ && !make_room(now)) {
      accept_at_ = now + kFairTime;
      return {};
    }
    GuardedFd socket = listener_->accept();
    const auto nonce = socket ? random_nonce() : std::nullopt;
    if (!socket || !nonce) {
      const int error = errno;
      if (error == EINTR || error == ECONNABORTED) continue;
      if (error == EAGAIN || error == EWOULDBLOCK) return {};
      // Out of descriptors or memory: others may free some; polling at once would spin.
      accept_at_ = now + kAcceptPause;
      if (!is_descriptor_shortage(error)) return {};
      (void)make_room(now);
      return shortage_.note(now, peer_table.rank(), peer_table.world_size(), error);
    }
    const Claims own = peer_table.own_claims(Claims::Role::kListener);
    strangers_.push_back({Greeting(std::move(socket), policy_, peer_table.token(), own, *nonce), now});
    // Read at once, or a burst of strangers could push out a rank that came with them.
    if (strangers_.size() == strangers_max_) return {};
  }
}

// A real rank sends its claims at once, so among many connections it is never the oldest silent one.
bool PendingConnections::make_room(Deadline now) {
  auto leaves = std::ranges::find_if(
      strangers_, [](const PendingConnection& stranger) { return !stranger.greeting.has_heard(); });
  if (leaves == strangers_.end()) leaves = strangers_.begin();
  if (leaves == strangers_.end() || (leaves->greeting.has_heard() && now - leaves->heard_at < kFairTime))
    return false;
  strangers_.erase(leaves);
  return true;
}

Status PendingConnections::welcome(Greeting& greeting, PeerTable& peer_table) {
  const Claims& claims = greeting.peer();
  if (peer_table.has_given_up()) {
    peer_table.note_told(claims.rank);
    return {};
  }
  if (Status status = peer_table.check(claims); !status) return status;
  if (greeting.lacks_encryption()) {
    peer_table.note_told(claims.rank);
    const int rank = static_cast<int>(claims.rank);
    return fail(ErrorCode::kMismatch,
                "rank " + std::to_string(rank) + " came in the clear: " +
                    refusal_of_clear_text("rank " + std::to_string(peer_table.rank()),
                                                         claims.encryption, greeting.fd()),
                rank);
  }
  return peer_table.add(claims, greeting.take_connection());
}

void PendingConnections::add_interests(Deadline now, std::vector<pollfd>& polls) const {
  if (now >= accept_at_) listener_->add_interests(polls);
  for (const std::deque<PendingConnection>* connections : {&strangers_, &ranks_}) {
    for (const PendingConnection& connection : *connections) {
      polls.push_back({connection.greeting.fd(), connection.greeting.awaits(), 0});
    }
  }
}

Deadline PendingConnections::wake_at() const noexcept {
  Deadline at = accept_at_ == Deadline{} ? kNever : accept_at_;
  for (const PendingConnection& stranger : strangers_) at = std::min(at, stranger.heard_at + kSilenceMax);
  return at;
}

}  // namespace deltawire
