#include "deltawire/door.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <string>

#include <poll.h>
#include <sys/socket.h>

#include "base/errors.h"
#include "base/little_endian.h"
#include "transport/process/machine.h"
#include "transport/tcp/address.h"
#include "transport/tcp/descriptors.h"
#include "transport/tcp/dialer.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/long_line.h"
#include "transport/tcp/peer_table.h"
#include "transport/tcp/strangers.h"

namespace deltawire {
namespace {

constexpr std::chrono::seconds kCallerSilence{5};  // of a caller that has proved itself, for the rest
constexpr std::chrono::milliseconds kLookAtInterruption{100};
constexpr std::size_t kLineHeadBytes = 4;
constexpr std::size_t kLineGrowth = std::size_t{1} << 20;  // memory is taken in steps of this

struct DoorSecrets {
  Token token{};
  EncryptionPolicy policy;
};

Result<DoorSecrets> secrets_of(const DoorOptions& options) {
  constexpr std::string_view kLabel = "deltawire door 1";
  const std::array<Bytes, 1> pieces{std::as_bytes(std::span(kLabel))};
  const auto derived = prove(options.token, pieces);
  if (!derived) return fail(ErrorCode::kSystem, "a door: HMAC-SHA256 is missing");
  DoorSecrets secrets;
  std::ranges::copy(*derived, secrets.token.begin());
  ASSIGN_OR_RETURN(auto tls, TlsContext::make(secrets.token));
  secrets.policy = {options.encryption, std::move(tls)};
  return secrets;
}

Claims claims_of(Claims::Role role, const EncryptionPolicy& policy) {
  Claims claims;
  claims.role = role;
  claims.stream = Claims::Stream::kControl;
  claims.rank = Claims::kNobody;
  claims.encryption = policy.setting;
  return claims;
}

int poll_ms(Deadline until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - MachineClock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
}

class TcpLine final : public Line {
 public:
  // `door`: the one of this connection.
  TcpLine(Connection connection, const Endpoint& door)
      : is_encrypted_(connection.is_encrypted()), link_(suited(connection).take_link()), peer_{door.host, 0} {
    const auto peer = SocketAddress::of_peer(link_->fd());
    if (peer && peer->is_internet()) peer_ = peer->endpoint();
  }

  Endpoint peer() const override { return peer_; }

  Status send(Bytes message, Deadline deadline) override {
    if (message.size() > kMessageBytesMax) return fail(ErrorCode::kLimit, "the message is too long");
    std::array<std::byte, kLineHeadBytes> length{};
    store_le<std::uint32_t>(length.data(), static_cast<std::uint32_t>(message.size()));
    for (Bytes head = length; !head.empty() || !message.empty();) {
      const std::array pieces{piece_of(head), piece_of(message)};  // of one packet, if they fit
      const IoResult result = link_->send(pieces);
      if (result.kind == IoResult::Kind::kOk) {
        const std::size_t of_head = std::min(result.bytes, head.size());
        head = head.subspan(of_head);
        message = message.subspan(result.bytes - of_head);
      } else if (Status goes_on = await(result, POLLOUT, deadline); !goes_on) {
        return goes_on;
      }
    }
    return {};
  }

  Result<std::vector<std::byte>> receive(std::size_t bytes_max, Deadline deadline) override {
    RETURN_IF_ERROR(fill(head_, kLineHeadBytes, deadline));
    const std::size_t length = load_le<std::uint32_t>(head_.data());
    if (length > std::min<std::size_t>(bytes_max, kMessageBytesMax)) {
      return fail(ErrorCode::kLimit, "a message of " + std::to_string(length) + " bytes is too long");
    }
    RETURN_IF_ERROR(fill(body_, length, deadline));
    head_.clear();
    return std::exchange(body_, {});
  }

  std::uint64_t bytes_received() const noexcept override { return received_; }
  LineState state() const override { return link_->state(); }
  bool is_encrypted() const noexcept override { return is_encrypted_; }
  void hang_up() noexcept override {
    if (generation_ == fork_generation()) (void)::shutdown(link_->fd(), SHUT_RDWR);
  }

 private:
  // The mesh of the same job, if any, says what is wrong with the switch, and that BBR is refused.
  static Connection& suited(Connection& connection) {
    if (wants_bbr().value_or(true)) (void)ask_for_bbr(connection);
    return connection;
  }
  static iovec piece_of(Bytes bytes) noexcept {
    return {const_cast<std::byte*>(bytes.data()), bytes.size()};  // sending only reads
  }

  // Until `into` has that many bytes.
  Status fill(std::vector<std::byte>& into, std::size_t wanted, Deadline deadline) {
    while (into.size() < wanted) {
      const std::size_t had = into.size();
      into.resize(std::min(wanted, had + kLineGrowth));
      const IoResult result = link_->recv(MutBytes(into).subspan(had));
      into.resize(had + (result.kind == IoResult::Kind::kOk ? result.bytes : 0));
      if (&into == &body_) received_ += into.size() - had;
      if (result.kind == IoResult::Kind::kOk) continue;
      RETURN_IF_ERROR(await(result, POLLIN, deadline));
    }
    return {};
  }

  Status await(const IoResult& result, short event, Deadline deadline) {
    if (result.kind == IoResult::Kind::kClosed) {
      return fail(ErrorCode::kPeerLost, "the other end has hung up");
    }
    if (result.kind == IoResult::Kind::kError) {
      return fail(ErrorCode::kPeerLost, result.error == EBADMSG
                                            ? "encrypted bytes were changed on the way; check the network"
                                            : "the connection broke: " + os_error_text(result.error));
    }
    if (MachineClock::now() >= deadline) return fail(ErrorCode::kTimeout, "the other end is silent");
    pollfd entry{link_->fd(), event, 0};
    (void)::poll(&entry, 1, poll_ms(deadline));
    return {};
  }

  const bool is_encrypted_;
  std::unique_ptr<Link> link_;
  Endpoint peer_;
  std::vector<std::byte> head_;
  std::vector<std::byte> body_;
  std::uint64_t received_ = 0;
  const std::uint64_t generation_ = fork_generation();
};

class TcpDoor final : public Door {
 public:
  TcpDoor(std::unique_ptr<TcpListener> listener, DoorSecrets secrets)
      : secrets_(std::move(secrets)),
        own_(claims_of(Claims::Role::kListener, secrets_.policy)),
        strangers_(std::move(listener), places_for_strangers(1), secrets_.policy) {}

  Endpoint endpoint() const override { return strangers_.endpoint(); }

  Result<std::unique_ptr<Line>> answer(Deadline deadline) override {
    while (true) {
      const Deadline now = MachineClock::now();
      (void)strangers_.accept_all(now, secrets_.token, own_);  // what it lacks may come back
      for (Greeting& greeting : strangers_.hear(now)) {
        configure_connection(greeting.fd(), Claims::Stream::kControl);
        callers_.push_back({std::move(greeting), now});
      }
      if (auto line = hear(now)) return line;
      if (now >= deadline) return fail(ErrorCode::kTimeout, "a door: nobody has called");
      wait(now, deadline);
    }
  }

 private:
  struct Caller {
    Greeting greeting;
    Deadline proved_at;
  };

  std::unique_ptr<Line> hear(Deadline now) {
    for (auto caller = callers_.begin(); caller != callers_.end();) {
      Greeting& greeting = caller->greeting;
      const Exchange state = greeting.advance();
      if (state == Exchange::kMore && now < caller->proved_at + kCallerSilence) {
        ++caller;
        continue;
      }
      const bool is_welcome = state == Exchange::kDone && !greeting.lacks_encryption() &&
                              greeting.peer().version == Claims::kVersion;
      auto line = is_welcome ? std::make_unique<TcpLine>(greeting.take_connection(), endpoint()) : nullptr;
      caller = callers_.erase(caller);
      if (line) return line;
    }
    return nullptr;
  }

  void wait(Deadline now, Deadline until) {
    polls_.clear();
    strangers_.add_interests(now, polls_);
    until = std::min(until, strangers_.wake_at());
    for (const Caller& caller : callers_) {
      polls_.push_back({caller.greeting.fd(), caller.greeting.awaits(), 0});
      until = std::min(until, caller.proved_at + kCallerSilence);
    }
    (void)::poll(polls_.data(), polls_.size(), poll_ms(until));
  }

  DoorSecrets secrets_;
  Claims own_;
  Strangers strangers_;
  std::deque<Caller> callers_;  // they have proved themselves
  std::vector<pollfd> polls_;
};

Status refusal_of(const Findings& findings, const std::string& at, Encryption setting) {
  if (findings.was_refused()) return fail(ErrorCode::kPeerLost, "nobody listens at " + at);
  if (!findings.lookup_problem.empty()) {
    return fail(ErrorCode::kPeerLost, "nobody can be called at " + at + ": " + findings.lookup_problem);
  }
  if (findings.was_turned_away()) {
    const std::string problem = findings.tls_problem("this one", setting);
    return fail(ErrorCode::kUnauthorized,
                "the process at " + at +
                    (problem.empty() ? " refuses this one: another token or encryption, another version of "
                                       "deltawire, or no door of it"
                                     : problem));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Door>> open_door(std::unique_ptr<Listener> listener, const DoorOptions& options) {
  if (dynamic_cast<TcpListener*>(listener.get()) == nullptr) {
    return invalid("open_door: needs the listener that listen_tcp made");
  }
  ASSIGN_OR_RETURN(auto secrets, secrets_of(options));
  return std::make_unique<TcpDoor>(
      std::unique_ptr<TcpListener>(static_cast<TcpListener*>(listener.release())), std::move(secrets));
}

Result<std::unique_ptr<Line>> call_at_door(const Endpoint& endpoint, const DoorOptions& options,
                                           Deadline deadline, const std::function<bool()>& interrupted) {
  if (endpoint.host.empty()) return invalid("a door's host is empty");
  ASSIGN_OR_RETURN(const auto secrets, secrets_of(options));
  const Claims own = claims_of(Claims::Role::kDialer, secrets.policy);
  Dialer dialer(0, Claims::Stream::kControl, endpoint);
  std::vector<pollfd> polls;
  while (!dialer.advance(MachineClock::now(), secrets.token, own, secrets.policy)) {
    const std::string at = to_string(endpoint);
    RETURN_IF_ERROR(refusal_of(dialer.findings(), at, options.encryption));
    if (MachineClock::now() >= deadline) {
      const std::string silence = dialer.findings().silence();
      return fail(ErrorCode::kTimeout,
                  "no answer from " + at + (silence.empty() ? "" : ": the process there" + silence));
    }
    if (interrupted && interrupted()) return fail(ErrorCode::kAborted, "a call at a door was interrupted");
    polls.clear();
    dialer.add_interests(polls);
    Deadline until = std::min(deadline, dialer.wake_at());
    if (interrupted) until = std::min(until, MachineClock::now() + kLookAtInterruption);
    (void)::poll(polls.data(), polls.size(), poll_ms(until));
  }
  const Claims& peer = dialer.claims();
  if (peer.version != Claims::kVersion || peer.problem != 0 || peer.encryption != options.encryption) {
    return mismatch(to_string(endpoint) + ": " +
                    (peer.problem != 0 ? printable_line(peer.text)
                                       : std::string("has another encryption=, or another "
                                                     "version of deltawire")));
  }
  return std::make_unique<TcpLine>(dialer.take_connection(), endpoint);
}

}  // namespace deltawire
