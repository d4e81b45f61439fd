// One outgoing connection of a mesh: dials until the other rank answers.
#pragma once

#include <optional>
#include <string>

#include <poll.h>

#include "deltawire/connect.h"
#include "transport/links/link.h"
#include "transport/process/fork_guard.h"
#include "transport/tcp/address.h"
#include "transport/tcp/greeting.h"

namespace deltawire {

class Dialer {
 public:
  // Dials from `start` on.
  Dialer(int rank, Claims::Stream stream, const SocketAddress& address, Deadline start = {}) noexcept
      : rank_(rank), stream_(stream), address_(address), retry_at_(start) {}

  // Does what can be done now; true once the other rank has answered. `own`: this rank's claims.
  bool advance(Deadline now, const Token& token, const Claims& own, const EncryptionPolicy& policy);

  // What to poll for; an fd of -1 while it pauses until retry_at().
  pollfd interest() const noexcept;
  Deadline retry_at() const noexcept { return phase_ == Phase::kPause ? retry_at_ : kNever; }

  int rank() const noexcept { return rank_; }
  Claims::Stream stream() const noexcept { return stream_; }
  Endpoint endpoint() const { return address_.endpoint(); }
  // Whether the last listener there rejected this rank's proof, or had none of its own: most likely it has
  // another token.
  bool was_turned_away() const noexcept;
  // Whether a process listened there before, but no longer: a rank that has ended.
  bool was_left() const noexcept;
  // Whether the last attempt found no listener.
  bool was_refused() const noexcept { return connected_ == Connected::kRefused; }
  // Why the last call for a socket failed; 0 if it didn't.
  int socket_error() const noexcept { return socket_error_; }

  // Why an answer in TLS was none, as the end of a sentence about the process that listens there; empty if
  // that was not the reason. `self` has `setting`.
  std::string tls_problem(const std::string& self, Encryption setting) const;
  // What the other end does instead of answering, likewise; empty if that is unknown.
  std::string silence() const;

  // The answer, and the connection that it came on. REQUIRES: advance() returned true.
  const Claims& claims() const noexcept { return greeting_->peer(); }
  Connection take_connection() noexcept { return greeting_->take_connection(); }

  // The result of an attempt to connect.
  enum class Connected : std::uint8_t { kNotYet, kYes, kRefused, kFailed };

 private:
  enum class Phase : std::uint8_t { kPause, kConnecting, kTalking };

  void dial(Deadline now);
  void greet(Deadline now, const Token& token, const Claims& own, const EncryptionPolicy& policy);
  void end_dialing(Connected connected) noexcept;
  void pause(Deadline now) noexcept;

  int rank_;
  Claims::Stream stream_;
  SocketAddress address_;
  Phase phase_ = Phase::kPause;
  Deadline retry_at_;
  std::chrono::milliseconds pause_{10};
  GuardedFd socket_;                          // while it connects
  std::optional<Greeting> greeting_;          // from then on
  Connected connected_ = Connected::kNotYet;  // of the last attempt
  bool was_there_ = false;                    // some attempt has succeeded
  bool met_stranger_ = false;
  TlsLink::End tls_end_ = TlsLink::End::kNone;  // of the last attempt that got so far
  int hang_ups_ = 0;  // after this rank's proof
  int socket_error_ = 0;
};

}  // namespace deltawire
