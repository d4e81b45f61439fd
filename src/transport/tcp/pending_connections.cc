#include "transport/tcp/pending_connections.h"

#include "base/errors.h"

namespace deltawire {

PendingConnections::PendingConnections(std::unique_ptr<TcpListener> listener, int world_size,
                                       const EncryptionPolicy& policy)
    : strangers_(std::move(listener), places_for_strangers(world_size), policy) {}

Status PendingConnections::advance(Deadline now, PeerTable& peer_table) {
  const Claims own = peer_table.own_claims(Claims::Role::kListener);
  const int error = strangers_.accept_all(now, peer_table.token(), own);
  for (Greeting& greeting : strangers_.hear(now)) {
    configure_connection(greeting.fd(), greeting.peer().stream);
    ranks_.push_back(std::move(greeting));
  }
  if (is_descriptor_shortage(error)) {
    RETURN_IF_ERROR(shortage_.note(now, peer_table.rank(), peer_table.world_size(), error));
  }
  return hear_ranks(peer_table);
}

Status PendingConnections::hear_ranks(PeerTable& peer_table) {
  for (auto rank = ranks_.begin(); rank != ranks_.end();) {
    const Exchange state = rank->advance();
    if (state == Exchange::kMore) {
      ++rank;
      continue;
    }
    if (state == Exchange::kDone) {
      RETURN_IF_ERROR(welcome(*rank, peer_table));
    }
    rank = ranks_.erase(rank);
  }
  return {};
}

Status PendingConnections::welcome(Greeting& greeting, PeerTable& peer_table) {
  const Claims& claims = greeting.peer();
  if (peer_table.has_given_up()) {
    peer_table.note_told(claims.rank);
    return {};
  }
  RETURN_IF_ERROR(peer_table.check(claims));
  if (greeting.lacks_encryption()) {
    peer_table.note_told(claims.rank);
    const int rank = static_cast<int>(claims.rank);
    return mismatch(
        peer_table.name(rank) + " came in the clear: " +
            refusal_of_clear_text(peer_table.name(peer_table.rank()), claims.encryption, greeting.fd()),
        rank);
  }
  return peer_table.add(claims, greeting.take_connection());
}

void PendingConnections::add_interests(Deadline now, std::vector<pollfd>& polls) const {
  strangers_.add_interests(now, polls);
  for (const Greeting& rank : ranks_) polls.push_back({rank.fd(), rank.awaits(), 0});
}

}  // namespace deltawire
