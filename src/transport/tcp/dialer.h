// One outgoing connection of a mesh, or to a door: dials until the other end answers. A name is looked up
// again for each attempt: its record may be made after the ranks, and a rank that comes back may have another
// address.
//
// On its own machine it dials the local name first, then TCP. Who holds that name may be no rank: where it
// hangs up, TCP is dialed next, and where it is silent, TCP is dialed beside it.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

#include "deltawire/connect.h"
#include "transport/links/link.h"
#include "transport/process/fork_guard.h"
#include "transport/tcp/address.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/local_socket.h"
#include "transport/tcp/peer_table.h"

namespace deltawire {

// What a dialer has found out about the other end.
struct Findings {
  // The result of an attempt to connect.
  enum class Connected : std::uint8_t { kNotYet, kYes, kRefused, kFailed };
  // On the connection that it had, and on one more before it is gone.
  static constexpr int kHangUpsOfWhoGivesUp = 2;

  // Whether the last listener there rejected this rank's proof, or had none of its own: most likely it has
  // another token. A rank that dies during a handshake hangs up, too, but only once, and nothing listens
  // there afterwards; one that gives up does it twice at most. Who has another token goes on turning this
  // rank away.
  bool was_turned_away() const noexcept { return met_stranger || hang_ups > kHangUpsOfWhoGivesUp; }

  // Whether a process listened there before, but no longer: a rank that has ended.
  bool was_left() const noexcept { return was_there && connected != Connected::kYes && !was_turned_away(); }
  // Whether the last attempt found no listener.
  bool was_refused() const noexcept { return connected == Connected::kRefused; }
  // Why an answer in TLS was none, as the end of a sentence about the process that listens there; empty if
  // that was not the reason. `self` has `setting`.
  std::string tls_problem(const std::string& self, Encryption setting) const {
    if (tls_end == TlsLink::End::kNotTls) {
      return " does not answer in TLS, which " + encryption_text(setting) + " of " + self +
             " demands: another version of deltawire, or somebody on the way who strips the encryption?";
    }
    if (tls_end == TlsLink::End::kAltered) {
      return " and " + self +
             " got bytes in TLS that were changed on the way; check the network between them";
    }
    return {};
  }

  // What the other end does instead of answering, likewise; empty if that is unknown.
  std::string silence() const {
    if (!lookup_problem.empty()) return " has no address: " + lookup_problem + ".";
    if (was_busy) return " has too many strangers at its door.";
    if (was_silent) return " takes the connection and says nothing.";
    if (tls_end == TlsLink::End::kCut) {
      return " ends the connection in TLS's handshake: another version of deltawire, or somebody on the way "
             "who cuts what is encrypted?";
    }
    return is_talking ? " takes the connection and says nothing." : "";
  }

  std::string lookup_problem;                  // why the name has no address, by the last attempt
  Connected connected = Connected::kNotYet;    // of the last attempt
  bool was_there = false;                      // some attempt has succeeded
  bool is_talking = false;                     // it is connected, and waits for the other end
  bool met_stranger = false;                   // who has no proof, or refused this one's
  bool was_silent = false;                     // at the last attempt
  bool was_busy = false;                       // likewise: it had too many strangers
  TlsLink::End tls_end = TlsLink::End::kNone;  // of the last attempt that got so far
  int hang_ups = 0;                            // after this rank's proof
  std::chrono::microseconds round_trip{};      // of the last attempt that met somebody; 0 if not by TCP
  int socket_error = 0;                        // why the last call for a socket failed; 0 if it didn't
};

class Dialer {
 public:
  // Dials from `start` on.
  Dialer(int rank, Claims::Stream stream, Endpoint endpoint, Deadline start = {}) noexcept
      : rank_(rank), stream_(stream), endpoint_(std::move(endpoint)), retry_at_(start) {}

  // Does what can be done now; true once the other rank has answered. `own`: this rank's claims.
  bool advance(Deadline now, const Token& token, const Claims& own, const EncryptionPolicy& policy) {
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

  // What to poll for, at most until wake_at().
  void add_interests(std::vector<pollfd>& polls) const {
    if (phase_ == Phase::kConnecting) polls.push_back({socket_.get(), POLLOUT, 0});
    if (phase_ == Phase::kTalking) polls.push_back({greeting_->fd(), greeting_->awaits(), 0});
    if (twin_) twin_->add_interests(polls);
  }

  Deadline wake_at() const noexcept {
    if (phase_ == Phase::kPause) return retry_at_;
    if (twin_) return twin_->wake_at();
    return is_local_ && is_unanswered() ? talks_since_ + kSilence : kNever;
  }

  int rank() const noexcept { return rank_; }
  Claims::Stream stream() const noexcept { return stream_; }
  const Endpoint& endpoint() const noexcept { return endpoint_; }
  const Findings& findings() const noexcept { return findings_; }

  // The answer, and the connection that it came on. REQUIRES: advance() returned true.
  const Claims& claims() const noexcept { return greeting_->peer(); }
  Connection take_connection() noexcept { return greeting_->take_connection(); }

 private:
  static constexpr std::chrono::milliseconds kPauseMax{500};

  // Who has not answered for so long says nothing.
  static constexpr std::chrono::milliseconds kSilence{1000};

  using Connected = Findings::Connected;

  static Connected connection_state(int fd) noexcept {
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

  enum class Phase : std::uint8_t { kPause, kConnecting, kTalking };

  bool advance_attempt(Deadline now, const Token& token, const Claims& own, const EncryptionPolicy& policy) {
    if (phase_ == Phase::kPause && now >= retry_at_ && find_address(now)) dial(now);
    if (phase_ == Phase::kConnecting) greet(now, token, own, policy);
    if (phase_ != Phase::kTalking) return false;
    const Exchange how = greeting_->advance();
    if (how == Exchange::kDone) return true;
    if (how != Exchange::kMore) end_talk(now, how);
    return false;
  }

  bool advance_twin(Deadline now, const Token& token, const Claims& own, const EncryptionPolicy& policy) {
    const bool is_done = twin_->advance(now, token, own, policy);
    if (is_done || (twin_->phase_ == Phase::kTalking && !twin_->is_unanswered())) {
      const std::unique_ptr<Dialer> twin = std::move(twin_);
      *this = std::move(*twin);
    }
    return is_done;
  }

  bool has_news() const noexcept {
    if (phase_ != Phase::kTalking) return true;
    pollfd entry{greeting_->fd(), POLLIN, 0};
    return ::poll(&entry, 1, 0) > 0;
  }

  bool is_unanswered() const noexcept { return phase_ == Phase::kTalking && !greeting_->is_answered(); }
  bool find_address(Deadline now) {
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

  void dial(Deadline now) {
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

  // What somebody does on the local name says nothing about the rank, whom TCP finds.
  void end_talk(Deadline now, Exchange how) {
    if (!is_local_) {
      findings_.met_stranger =
          findings_.met_stranger || how == Exchange::kStranger || how == Exchange::kBroken;
      findings_.hang_ups += how == Exchange::kClosed && greeting_->has_proved() ? 1 : 0;
      findings_.tls_end = greeting_->tls_end();
    }
    findings_.was_silent = is_unanswered() && now >= talks_since_ + kSilence;
    findings_.was_busy = how == Exchange::kBusy;
    tries_local_ = false;
    pause(now);
  }

  void greet(Deadline now, const Token& token, const Claims& own, const EncryptionPolicy& policy) {
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

  void end_dialing(Connected connected) noexcept {
    findings_.connected = connected;
    tries_local_ = tries_local_ || connected != Connected::kYes;
    findings_.was_there = findings_.was_there || connected == Connected::kYes;
  }

  void pause(Deadline now) noexcept {
    socket_.reset();
    greeting_.reset();
    findings_.is_talking = false;
    phase_ = Phase::kPause;
    retry_at_ = now + pause_;
    pause_ = std::min(2 * pause_, kPauseMax);
  }

  int rank_;
  Claims::Stream stream_;
  Endpoint endpoint_;
  std::optional<NameLookup> lookup_;  // of this attempt, until it is answered
  SocketAddress address_;             // likewise
  Phase phase_ = Phase::kPause;
  Deadline retry_at_;
  std::chrono::milliseconds pause_{10};
  GuardedFd socket_;                  // while it connects
  std::optional<Greeting> greeting_;  // from then on
  Findings findings_;
  bool is_local_ = false;    // this attempt
  bool tries_local_ = true;  // in the next one
  bool is_twin_ = false;     // of one that dials locally
  Deadline talks_since_{};
  std::unique_ptr<Dialer> twin_;  // dials TCP, while this one gets no answer on the local name
};

}  // namespace deltawire
