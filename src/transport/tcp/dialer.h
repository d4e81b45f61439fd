// One outgoing connection of a mesh, or to a door: dials until the other end answers. A name is looked up
// again for each attempt: its record may be made after the ranks, and a rank that comes back may have another
// address.
//
// On its own machine it dials the local name first, then TCP. Who holds that name may be no rank: where it
// hangs up, TCP is dialed next, and where it is silent, TCP is dialed beside it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "deltawire/connect.h"
#include "transport/links/link.h"
#include "transport/process/fork_guard.h"
#include "transport/tcp/address.h"
#include "transport/tcp/handshake.h"

namespace deltawire {

// What a dialer has found out about the other end.
struct Findings {
  // The result of an attempt to connect.
  enum class Connected : std::uint8_t { kNotYet, kYes, kRefused, kFailed };

  // Whether the last listener there rejected this rank's proof, or had none of its own: most likely it has
  // another token.
  bool was_turned_away() const noexcept;
  // Whether a process listened there before, but no longer: a rank that has ended.
  bool was_left() const noexcept { return was_there && connected != Connected::kYes && !was_turned_away(); }
  // Whether the last attempt found no listener.
  bool was_refused() const noexcept { return connected == Connected::kRefused; }
  // Why an answer in TLS was none, as the end of a sentence about the process that listens there; empty if
  // that was not the reason. `self` has `setting`.
  std::string tls_problem(const std::string& self, Encryption setting) const;
  // What the other end does instead of answering, likewise; empty if that is unknown.
  std::string silence() const;

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
  bool advance(Deadline now, const Token& token, const Claims& own, const EncryptionPolicy& policy);

  // What to poll for, at most until wake_at().
  void add_interests(std::vector<pollfd>& polls) const;
  Deadline wake_at() const noexcept;

  int rank() const noexcept { return rank_; }
  Claims::Stream stream() const noexcept { return stream_; }
  const Endpoint& endpoint() const noexcept { return endpoint_; }
  const Findings& findings() const noexcept { return findings_; }

  // The answer, and the connection that it came on. REQUIRES: advance() returned true.
  const Claims& claims() const noexcept { return greeting_->peer(); }
  Connection take_connection() noexcept { return greeting_->take_connection(); }

 private:
  enum class Phase : std::uint8_t { kPause, kConnecting, kTalking };

  bool advance_attempt(Deadline now, const Token& token, const Claims& own, const EncryptionPolicy& policy);
  bool advance_twin(Deadline now, const Token& token, const Claims& own, const EncryptionPolicy& policy);
  bool has_news() const noexcept;
  bool is_unanswered() const noexcept { return phase_ == Phase::kTalking && !greeting_->is_answered(); }
  bool find_address(Deadline now);
  void dial(Deadline now);
  void end_talk(Deadline now, Exchange how);
  void greet(Deadline now, const Token& token, const Claims& own, const EncryptionPolicy& policy);
  void end_dialing(Findings::Connected connected) noexcept;
  void pause(Deadline now) noexcept;

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
