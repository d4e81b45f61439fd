#include "transport/tcp/dialer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>

#include "transport/tcp/local_socket.h"
#include "transport/tcp/peer_table.h"

namespace deltawire {
namespace {

constexpr std::chrono::milliseconds kPauseMax{500};
// Who has not answered for so long says nothing.
constexpr std::chrono::milliseconds kSilence{1000};
// On the connection that it had, and on one more before it is gone.
constexpr int kHangUpsOfWhoGivesUp = 2;

using Connected = Findings::Connected;

Connected connection_state(int fd) noexcept {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return Connected::kFailed;
  if (error != 0) return error == ECONNREFUSED ? Connected::kRefused : Connected::kFailed;
  sockaddr_storage peer{};
  socklen_t peer_length = sizeof peer;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0) {
    return errno == ENOTCONN ? Connected::kNotYet : Connected::kFailed;
  }
  // A dialed port that nobody listens on can be the very one that the kernel picked for the dialing
  // socket, and TCP then connects the socket with itself.
  sockaddr_storage self{};
  socklen_t self_length = sizeof self;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&self), &self_length) != 0) return Connected::kFailed;
  const bool itself = self_length == peer_length && std::memcmp(&self, &peer, self_length) == 0;
  return itself ? Connected::kFailed : Connected::kYes;
}

}  // namespace

bool Dialer::advance(Deadline now, const Token& token, const Claims& own, const EncryptionPolicy& policy) {
  // A listener answers on the local name first: if it has answered the twin, this one finds its answer now.
  bool twin_has_news = twin_ && twin_->has_news();
  if (advance_attempt(now, token, own, policy)) {
    twin_.reset();
    return true;
  }
  const bool lacks_answer = is_local_ && is_unanswered();
  if (lacks_answer && !twin_ && now >= talks_since_ + kSilence) {
    twin_ = std::make_unique<Dialer>(rank_, stream_, endpoint_, now);
    twin_->is_twin_ = true;
    twin_has_news = true;
  }
  // Only one of the two may go on to its proof, or the other end would see this rank come twice.
  if (!lacks_answer) twin_.reset();
  return twin_ && twin_has_news && advance_twin(now, token, own, policy);
}

bool Dialer::has_news() const noexcept {
  if (phase_ != Phase::kTalking) return true;
  pollfd entry{greeting_->fd(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

bool Dialer::advance_twin(Deadline now, const Token& token, const Claims& own,
                          const EncryptionPolicy& policy) {
  const bool is_done = twin_->advance(now, token, own, policy);
  if (is_done || (twin_->phase_ == Phase::kTalking && !twin_->is_unanswered())) {
    const std::unique_ptr<Dialer> twin = std::move(twin_);
    *this = std::move(*twin);
  }
  return is_done;
}

bool Dialer::advance_attempt(Deadline now, const Token& token, const Claims& own,
                             const EncryptionPolicy& policy) {
  if (phase_ == Phase::kPause && now >= retry_at_ && find_address(now)) dial(now);
  if (phase_ == Phase::kConnecting) greet(now, token, own, policy);
  if (phase_ != Phase::kTalking) return false;
  const Exchange how = greeting_->advance();
  if (how == Exchange::kDone) return true;
  if (how != Exchange::kMore) end_talk(now, how);
  return false;
}

// What somebody does on the local name says nothing about the rank, whom TCP finds.
void Dialer::end_talk(Deadline now, Exchange how) {
  if (!is_local_) {
    findings_.met_stranger = findings_.met_stranger || how == Exchange::kStranger || how == Exchange::kBroken;
    findings_.hang_ups += how == Exchange::kClosed && greeting_->has_proved() ? 1 : 0;
    findings_.tls_end = greeting_->tls_end();
  }
  findings_.was_silent = is_unanswered() && now >= talks_since_ + kSilence;
  findings_.was_busy = how == Exchange::kBusy;
  tries_local_ = false;
  pause(now);
}

bool Dialer::find_address(Deadline now) {
  if (!lookup_) lookup_.emplace(endpoint_);
  const auto found = lookup_->answer();
  if (!found) {
    retry_at_ = now + NameLookup::kPause;
    return false;
  }
  lookup_.reset();
  findings_.lookup_problem = *found ? "" : found->error().message;
  if (*found) {
    address_ = **found;
    return true;
  }
  end_dialing(Connected::kFailed);
  pause(now);
  return false;
}

void Dialer::dial(Deadline now) {
  if (tries_local_ && !is_twin_) socket_ = dial_locally(address_);
  is_local_ = static_cast<bool>(socket_);
  if (socket_) {
    findings_.socket_error = 0;
    phase_ = Phase::kConnecting;
    return;
  }
  socket_ = GuardedFd::open(
      [this] { return ::socket(address_.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  findings_.socket_error = socket_ ? 0 : errno;
  if (!socket_) {
    pause(now);
    return;
  }
  configure_connection(socket_.get(), stream_);
  if (::connect(socket_.get(), address_.get(), address_.length()) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    end_dialing(errno == ECONNREFUSED ? Connected::kRefused : Connected::kFailed);
    pause(now);
    return;
  }
  phase_ = Phase::kConnecting;
}

void Dialer::greet(Deadline now, const Token& token, const Claims& own, const EncryptionPolicy& policy) {
  Connected connected = connection_state(socket_.get());
  if (connected == Connected::kNotYet) return;
  if (connected == Connected::kYes && !is_local_ && tries_local_ && !is_twin_) {
    // A listener opens the local name before the port: perhaps both since the name was tried.
    if (GuardedFd local = dial_locally(address_)) {
      socket_ = std::move(local);
      is_local_ = true;
      connected = connection_state(socket_.get());
    }
  }
  end_dialing(connected);
  const auto nonce = random_nonce();
  if (connected != Connected::kYes || !nonce) {
    pause(now);
    return;
  }
  Claims claims = own;
  claims.stream = stream_;
  claims.peer = static_cast<std::uint32_t>(rank_);
  findings_.round_trip = SocketLink::state_of(socket_.get()).round_trip;
  greeting_.emplace(std::move(socket_), policy, token, claims, *nonce);
  talks_since_ = now;
  findings_.is_talking = true;
  phase_ = Phase::kTalking;
}

void Dialer::end_dialing(Connected connected) noexcept {
  findings_.connected = connected;
  tries_local_ = tries_local_ || connected != Connected::kYes;
  findings_.was_there = findings_.was_there || connected == Connected::kYes;
}

// A rank that dies during a handshake hangs up, too, but only once, and nothing listens there afterwards; one
// that gives up does it twice at most. Who has another token goes on turning this rank away.
bool Findings::was_turned_away() const noexcept {
  return met_stranger || hang_ups > kHangUpsOfWhoGivesUp;
}

std::string Findings::tls_problem(const std::string& self, Encryption setting) const {
  if (tls_end == TlsLink::End::kNotTls) {
    return " does not answer in TLS, which " + encryption_text(setting) + " of " + self +
           " demands: another version of deltawire, or somebody on the way who strips the encryption?";
  }
  if (tls_end == TlsLink::End::kAltered) {
    return " and " + self + " got bytes in TLS that were changed on the way; check the network between them";
  }
  return {};
}

std::string Findings::silence() const {
  if (!lookup_problem.empty()) return " has no address: " + lookup_problem + ".";
  if (was_busy) return " has too many strangers at its door.";
  if (was_silent) return " takes the connection and says nothing.";
  if (tls_end == TlsLink::End::kCut) {
    return " ends the connection in TLS's handshake: another version of deltawire, or somebody on the way "
           "who cuts what is encrypted?";
  }
  return is_talking ? " takes the connection and says nothing." : "";
}

void Dialer::pause(Deadline now) noexcept {
  socket_.reset();
  greeting_.reset();
  findings_.is_talking = false;
  phase_ = Phase::kPause;
  retry_at_ = now + pause_;
  pause_ = std::min(2 * pause_, kPauseMax);
}

void Dialer::add_interests(std::vector<pollfd>& polls) const {
  if (phase_ == Phase::kConnecting) polls.push_back({socket_.get(), POLLOUT, 0});
  if (phase_ == Phase::kTalking) polls.push_back({greeting_->fd(), greeting_->awaits(), 0});
  if (twin_) twin_->add_interests(polls);
}

Deadline Dialer::wake_at() const noexcept {
  if (phase_ == Phase::kPause) return retry_at_;
  if (twin_) return twin_->wake_at();
  return is_local_ && is_unanswered() ? talks_since_ + kSilence : kNever;
}

}  // namespace deltawire
