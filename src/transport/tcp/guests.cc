#include "transport/tcp/guests.h"

#include <algorithm>
#include <cerrno>

#include <sys/socket.h>

#include "transport/tcp/descriptors.h"

namespace deltawire {
namespace {

constexpr std::size_t kStrangersMax = 64;
constexpr std::chrono::seconds kSilenceMax{5};
constexpr std::chrono::milliseconds kAcceptPause{50};
// How long a rank waits for descriptors: some are strangers', and come back.
constexpr std::chrono::milliseconds kShortageMax{2000};

}  // namespace

Status Guests::advance(Deadline now, Roster& roster) {
  if (Status status = accept_all(now, roster); !status) return status;
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const Exchange state = exchange_hellos(guest->handshake, guest->socket.get());
    if (state == Exchange::kMore && now < guest->drop_at) {
      ++guest;
      continue;
    }
    if (state == Exchange::kStranger) ++strangers_;
    if (state == Exchange::kDone) {
      if (Status status = welcome(*guest, roster); !status) return status;
    }
    guest = guests_.erase(guest);
  }
  return {};
}

Status Guests::accept_all(Deadline now, const Roster& roster) {
  if (now < accept_at_) return {};
  accept_at_ = Deadline{};
  // All other ranks may knock at once, on both streams.
  const std::size_t most = kStrangersMax + 2 * roster.sockets().size();
  while (true) {
    GuardedFd socket = GuardedFd::open(
        [this] { return ::accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
    const auto nonce = socket ? random_nonce() : std::nullopt;
    if (!socket || !nonce) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        shortage_until_ = kNever;
        return {};
      }
      // Out of descriptors or memory: others may free some; polling at once would spin.
      accept_at_ = now + kAcceptPause;
      return is_descriptor_shortage(errno) ? bear_shortage(now, roster, errno) : Status{};
    }
    shortage_until_ = kNever;
    if (guests_.size() == most) make_room();
    guests_.push_back({std::move(socket),
                       Handshake(roster.token(), roster.own_hello(Hello::Role::kListener), *nonce),
                       now + kSilenceMax});
    // Read at once, or a burst of strangers could push out a rank that came with them.
    if (guests_.size() == most) return {};
  }
}

Status Guests::bear_shortage(Deadline now, const Roster& roster, int error) {
  if (!guests_.empty()) make_room();
  if (shortage_until_ == kNever) shortage_until_ = now + kShortageMax;
  if (now < shortage_until_) return {};
  return tl::unexpected<Error>(descriptor_shortage(roster.rank(), roster.world_size(), error));
}

// A real rank says hello at once, so among many it is never the oldest that still says nothing.
void Guests::make_room() {
  const auto silent =
      std::ranges::find_if(guests_, [](const Guest& guest) { return !guest.handshake.has_heard(); });
  guests_.erase(silent == guests_.end() ? guests_.begin() : silent);
}

Status Guests::welcome(Guest& guest, Roster& roster) const {
  const Hello& hello = guest.handshake.peer();
  if (roster.has_given_up()) {
    roster.note_told(hello.rank);
    return {};
  }
  if (Status status = roster.check(hello); !status) return status;
  configure_connection(guest.socket.get(), hello.stream);
  return roster.add(hello, std::move(guest.socket));
}

void Guests::add_interests(Deadline now, std::vector<pollfd>& polls) const {
  if (now >= accept_at_) polls.push_back({listener_->fd(), POLLIN, 0});
  for (const Guest& guest : guests_) {
    const bool sends = !guest.handshake.unsent().empty();
    polls.push_back({guest.socket.get(), static_cast<short>(sends ? POLLOUT : POLLIN), 0});
  }
}

Deadline Guests::wake_at() const noexcept {
  Deadline at = kNever;
  if (!guests_.empty()) at = guests_.front().drop_at;
  return accept_at_ == Deadline{} ? at : std::min(at, accept_at_);
}

}  // namespace deltawire
