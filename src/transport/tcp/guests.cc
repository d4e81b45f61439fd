#include "transport/tcp/guests.h"

#include <algorithm>
#include <cerrno>

#include <sys/socket.h>

namespace deltawire {
namespace {

constexpr std::size_t kGuestsMax = 64;
constexpr std::chrono::seconds kSilenceMax{5};
constexpr std::chrono::milliseconds kAcceptPause{50};

}  // namespace

Status Guests::advance(Deadline now, Roster& roster) {
  accept_all(now);
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    HelloReader::State state = guest->reader.read(guest->socket.get());
    if (state == HelloReader::State::kMore && now < guest->drop_at) {
      ++guest;
      continue;
    }
    if (state == HelloReader::State::kStranger) ++strangers_;
    if (state == HelloReader::State::kDone) {
      if (Status status = welcome(*guest, roster); !status) return status;
    }
    guest = guests_.erase(guest);
  }
  return {};
}

void Guests::accept_all(Deadline now) {
  if (now < accept_at_) return;
  accept_at_ = Deadline{};
  while (true) {
    GuardedFd socket = GuardedFd::open(
        [this] { return ::accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // Out of descriptors or memory: others may free some; polling at once would spin.
      if (errno != EAGAIN && errno != EWOULDBLOCK) accept_at_ = now + kAcceptPause;
      return;
    }
    // A real rank says hello at once, so among many it is never the oldest that still says nothing.
    if (guests_.size() == kGuestsMax) guests_.pop_front();
    guests_.push_back({std::move(socket), HelloReader(token_), now + kSilenceMax});
    // Read at once, or a burst of strangers could push out a rank that came with them.
    if (guests_.size() == kGuestsMax) return;
  }
}

// The answer goes out before the judgement, so that both sides see what the other one says.
Status Guests::welcome(Guest& guest, Roster& roster) const {
  const Hello& hello = guest.reader.hello();
  const std::vector<std::byte> answer = roster.own_hello(hello.stream);
  const ssize_t sent = ::send(guest.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (Status status = roster.check(hello); !status) return status;
  if (sent != static_cast<ssize_t>(answer.size())) return {};  // gone again; a rank would dial once more
  configure_connection(guest.socket.get(), hello.stream);
  return roster.add(hello, std::move(guest.socket));
}

void Guests::add_interests(Deadline now, std::vector<pollfd>& polls) const {
  if (now >= accept_at_) polls.push_back({listener_->fd(), POLLIN, 0});
  for (const Guest& guest : guests_) polls.push_back({guest.socket.get(), POLLIN, 0});
}

Deadline Guests::wake_at() const noexcept {
  Deadline at = kNever;
  if (!guests_.empty()) at = guests_.front().drop_at;
  return accept_at_ == Deadline{} ? at : std::min(at, accept_at_);
}

}  // namespace deltawire
