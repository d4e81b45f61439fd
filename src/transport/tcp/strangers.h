// The connections that a listener has accepted, until they have proved that they know the token. Each has
// little time and memory, and there are only so many of them: when more come, one from the address that has
// the most of them gives way, a silent one first, and otherwise any. So many strangers make somebody with the
// token come again, at worst, and keep nobody out.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/errors.h"
#include "base/little_endian.h"
#include "transport/links/link.h"
#include "transport/tcp/address.h"
#include "transport/tcp/descriptors.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/peer_table.h"

namespace deltawire {

class Strangers {
 public:
  // `policy` must outlive it.
  Strangers(std::unique_ptr<TcpListener> listener, std::size_t places, const EncryptionPolicy& policy)
      : listener_(std::move(listener)), places_(places), policy_(policy) {
    const Nonce seed = random_nonce().value_or(Nonce{});
    dice_.seed(load_le<std::uint32_t>(seed.data()));
  }

  // Accepts who has come. Returns why nobody can be accepted at present, an errno, e.g. because descriptors
  // have run out; 0 if there is no reason.
  int accept_all(Deadline now, const Token& token, const Claims& own) {
    if (now < accept_at_) return 0;
    accept_at_ = Deadline{};
    while (true) {
      GuardedFd socket = listener_->accept();
      const auto nonce = socket ? random_nonce() : std::nullopt;
      if (!socket || !nonce) {
        const int error = errno;
        if (error == EINTR || error == ECONNABORTED) continue;
        if (error == EAGAIN || error == EWOULDBLOCK) return 0;
        // Out of descriptors or memory: others may free some; polling at once would spin.
        accept_at_ = now + kAcceptPause;
        if (is_descriptor_shortage(error)) make_room(false);
        return error;
      }
      const std::uint64_t from = source_of(socket.get());
      if (strangers_.size() == places_) make_room(false);
      strangers_.push_back({Greeting(std::move(socket), policy_, token, own, *nonce), now, from});
      // Read at once, or a burst of strangers could push out somebody who came with them.
      if (strangers_.size() == places_) return 0;
    }
  }

  // Continues the handshakes; returns those whose other ends have proved that they know the token. Hangs up
  // on those with another one, and on who is silent.
  std::vector<Greeting> hear(Deadline now) {
    polls_.clear();
    for (const Stranger& each : strangers_) polls_.push_back({each.greeting.fd(), each.greeting.awaits(), 0});
    (void)::poll(polls_.data(), polls_.size(), 0);
    std::vector<Greeting> trusted;
    std::size_t number = 0;
    for (Place each = strangers_.begin(); each != strangers_.end();) {
      Greeting& greeting = each->greeting;
      const bool had_heard = greeting.has_heard();
      const Exchange state = polls_[number++].revents != 0 ? greeting.advance() : Exchange::kMore;
      if (greeting.has_heard() != had_heard) each->heard_at = now;
      if (greeting.has_begun_tls() && !each->is_counted_as_tls) {
        each->is_counted_as_tls = true;
        ++with_tls_;
      }
      const bool goes_on = state == Exchange::kMore || state == Exchange::kDone;
      if (goes_on && greeting.is_trusted()) {
        trusted.push_back(std::move(greeting));
      } else if (state == Exchange::kMore && now < each->heard_at + kSilenceMax) {
        ++each;
        continue;
      }
      if (state == Exchange::kStranger) ++refused_;
      if (each->is_counted_as_tls) --with_tls_;
      each = strangers_.erase(each);
    }
    while (with_tls_ > kTlsPlaces) make_room(true);
    return trusted;
  }

  // Hangs up on all.
  void send_away() noexcept { strangers_.clear(); }

  void add_interests(Deadline now, std::vector<pollfd>& polls) const {
    if (now >= accept_at_) listener_->add_interests(polls);
    for (const Stranger& each : strangers_) polls.push_back({each.greeting.fd(), each.greeting.awaits(), 0});
  }
  // When to hang up on a silent one, or to try accepting again.
  Deadline wake_at() const noexcept {
    Deadline at = accept_at_ == Deadline{} ? kNever : accept_at_;
    for (const Stranger& each : strangers_) at = std::min(at, each.heard_at + kSilenceMax);
    return at;
  }

  Endpoint endpoint() const { return listener_->endpoint(); }
  std::size_t size() const noexcept { return strangers_.size(); }
  // How many had another token.
  int refused() const noexcept { return refused_; }

 private:
  // How long a stranger may take from one complete message to the next.
  static constexpr std::chrono::seconds kSilenceMax{5};
  static constexpr std::chrono::milliseconds kAcceptPause{50};

  // A stranger in TLS's handshake can make OpenSSL keep up to 192 KiB.
  static constexpr std::size_t kTlsPlaces = 512;

  // Where a connection comes from: its IPv4 address, the network of its IPv6 address, or this machine's user.
  static std::uint64_t source_of(int fd) noexcept {
    constexpr std::uint64_t kUser = std::uint64_t{1} << 40;
    const auto peer = SocketAddress::of_peer(fd);
    if (!peer) return 0;
    if (peer->family() == AF_INET) {
      return reinterpret_cast<const sockaddr_in*>(peer->get())->sin_addr.s_addr;
    }
    if (peer->family() == AF_INET6) {
      const in6_addr& host = reinterpret_cast<const sockaddr_in6*>(peer->get())->sin6_addr;
      const auto* bytes = reinterpret_cast<const std::byte*>(&host);
      return IN6_IS_ADDR_V4MAPPED(&host) != 0 ? load_le<std::uint32_t>(bytes + 12)
                                              : load_le<std::uint64_t>(bytes);
    }
    ucred user{};
    socklen_t length = sizeof user;
    const bool is_known = ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &length) == 0;
    return kUser + (is_known ? user.uid : 0);
  }

  struct Stranger {
    Greeting greeting;
    Deadline heard_at;  // when it connected, or last completed a message
    std::uint64_t from;
    bool is_counted_as_tls = false;
  };
  using Place = std::deque<Stranger>::iterator;

  // One of all, or of those that have begun TLS, gives way.
  void make_room(bool among_tls) {
    const auto counts = [among_tls](const Stranger& each) { return each.is_counted_as_tls || !among_tls; };
    std::map<std::uint64_t, std::size_t> by_source;
    std::uint64_t most = 0;
    for (const Stranger& each : strangers_) {
      if (!counts(each)) continue;
      const std::size_t count = ++by_source[each.from];
      if (count > by_source[most]) most = each.from;
    }
    std::vector<Place> heard;
    for (Place each = strangers_.begin(); each != strangers_.end(); ++each) {
      if (!counts(*each) || each->from != most) continue;
      // Who knows the token speaks at once, so it is never the oldest silent one.
      if (!each->greeting.has_heard()) return remove(each);
      heard.push_back(each);
    }
    if (!heard.empty()) remove(heard[dice_() % heard.size()]);
  }

  void remove(Place place) {
    place->greeting.turn_away();
    if (place->is_counted_as_tls) --with_tls_;
    strangers_.erase(place);
  }

  std::unique_ptr<TcpListener> listener_;
  std::size_t places_;
  const EncryptionPolicy& policy_;
  std::deque<Stranger> strangers_;  // the oldest first
  std::size_t with_tls_ = 0;
  std::vector<pollfd> polls_;
  std::minstd_rand dice_;
  Deadline accept_at_{};
  int refused_ = 0;
};

// The incoming connections of a mesh until their handshakes are complete. Who has proved that it knows the
// token is a rank, and only the mesh's connect_timeout limits it.
class PendingConnections {
 public:
  // `policy` must outlive it.
  PendingConnections(std::unique_ptr<TcpListener> listener, int world_size, const EncryptionPolicy& policy)
      : strangers_(std::move(listener), places_for_strangers(world_size), policy) {}

  // Accepts connections, continues handshakes, and adds ranks of this mesh to `peer_table`; strangers are
  // silently disconnected. Errors: a rank with the right token does not belong to the mesh, or descriptors
  // have run out.
  Status advance(Deadline now, PeerTable& peer_table) {
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

  void add_interests(Deadline now, std::vector<pollfd>& polls) const {
    strangers_.add_interests(now, polls);
    for (const Greeting& rank : ranks_) polls.push_back({rank.fd(), rank.awaits(), 0});
  }
  Deadline wake_at() const noexcept { return strangers_.wake_at(); }

  // Hangs up on all pending connections: ranks will connect again.
  void send_away() noexcept {
    strangers_.send_away();
    ranks_.clear();
  }

  // How many had another token.
  int refused() const noexcept { return strangers_.refused(); }

 private:
  Status hear_ranks(PeerTable& peer_table) {
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

  static Status welcome(Greeting& greeting, PeerTable& peer_table) {
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

  Strangers strangers_;
  std::deque<Greeting> ranks_;  // their proofs are verified, and the rest is missing
  DescriptorShortage shortage_;
};

}  // namespace deltawire
