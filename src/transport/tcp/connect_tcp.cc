#include <algorithm>
#include <string>

#include <poll.h>

#include "deltawire/connect.h"
#include "transport/tcp/dialer.h"
#include "transport/tcp/guests.h"
#include "transport/tcp/roster.h"

namespace deltawire {
namespace {

// A rank that has gone again may have finished early or may have found a mismatch. If it was a mismatch,
// this rank finds it too within this time, and then says what it was.
constexpr std::chrono::milliseconds kGoneGrace{2000};

Status check_options(const MeshOptions& options) {
  if (options.world_size < 1) {
    return fail(ErrorCode::kInvalidArgument,
                "connect_tcp: world_size must be at least 1, not " + std::to_string(options.world_size));
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    return fail(ErrorCode::kInvalidArgument, "connect_tcp: rank " + std::to_string(options.rank) +
                                                 " is not in a world of " +
                                                 std::to_string(options.world_size));
  }
  if (options.endpoints.size() != static_cast<std::size_t>(options.world_size)) {
    return fail(ErrorCode::kInvalidArgument,
                "connect_tcp: " + std::to_string(options.endpoints.size()) + " endpoints for a world of " +
                    std::to_string(options.world_size) + "; give one for each rank, the own included");
  }
  if (Status status = check_settings("connect_tcp", options.settings); !status) return status;
  return check_link_options(options.link, options.rank, options.world_size);
}

// Every rank dials all lower ones, once for each stream, and is dialed by all higher ones.
class Meeting {
 public:
  Meeting(std::unique_ptr<TcpListener> listener, const MeshOptions& options)
      : options_(options),
        roster_(options),
        guests_(std::move(listener), options.token),
        end_(Clock::now() + options.connect_timeout) {}

  Result<std::vector<PeerSockets>> run();

 private:
  Status prepare_dialers();
  Status advance(Deadline now);
  void wait_for_news(Deadline now);
  void watch_met_ranks(Deadline now);
  Error refused_by(const Dialer& dialer) const;
  Error too_late() const;
  std::string describe_missing() const;

  const MeshOptions& options_;
  Roster roster_;
  Guests guests_;
  std::vector<Dialer> dialers_;  // those still dialing
  Deadline end_;
  std::vector<pollfd> polls_;
  int gone_rank_ = kNoSuspect;  // a rank that was met and hung up
  Deadline gone_until_ = kNever;
};

Status Meeting::prepare_dialers() {
  for (int rank = 0; rank < options_.rank; ++rank) {
    const Endpoint& endpoint = options_.endpoints[static_cast<std::size_t>(rank)];
    const Result<SocketAddress> address = SocketAddress::from_numeric(endpoint.host, endpoint.port);
    if (!address) {
      return fail(address.error().code,
                  "connect_tcp: endpoint of rank " + std::to_string(rank) + ": " + address.error().message,
                  rank);
    }
    dialers_.emplace_back(rank, Hello::Stream::kData, *address);
    dialers_.emplace_back(rank, Hello::Stream::kControl, *address);
  }
  return {};
}

Result<std::vector<PeerSockets>> Meeting::run() {
  if (Status status = prepare_dialers(); !status) return forward_error(status);
  while (true) {
    const Deadline now = Clock::now();
    if (Status status = advance(now); !status) return forward_error(status);
    if (roster_.is_complete()) return roster_.take_sockets();
    watch_met_ranks(now);
    if (now >= end_ || now >= gone_until_) return tl::unexpected<Error>(too_late());
    wait_for_news(now);
  }
}

Status Meeting::advance(Deadline now) {
  if (Status status = guests_.advance(now, roster_); !status) return status;
  for (auto dialer = dialers_.begin(); dialer != dialers_.end();) {
    if (!dialer->advance(now, options_.token, roster_.own_hello(dialer->stream()))) {
      ++dialer;
      continue;
    }
    const Hello& hello = dialer->hello();
    if (Status status = roster_.check(hello); !status) return status;
    if (static_cast<int>(hello.rank) != dialer->rank() || hello.stream != dialer->stream()) {
      return fail(ErrorCode::kMismatch,
                  "at " + to_string(dialer->endpoint()) + " answers rank " + std::to_string(hello.rank) +
                      ", not rank " + std::to_string(dialer->rank()) +
                      "; give all ranks the same endpoints in the same order",
                  static_cast<int>(hello.rank));
    }
    if (Status status = roster_.add(hello, dialer->take_socket()); !status) return status;
    dialer = dialers_.erase(dialer);
  }
  return {};
}

void Meeting::watch_met_ranks(Deadline now) {
  if (gone_rank_ != kNoSuspect) return;
  for (std::size_t rank = 0; rank < roster_.sockets().size(); ++rank) {
    const PeerSockets& sockets = roster_.sockets()[rank];
    for (const int fd : {sockets.data.get(), sockets.control.get()}) {
      pollfd entry{fd, POLLRDHUP, 0};
      if (fd < 0 || ::poll(&entry, 1, 0) <= 0 || entry.revents == 0) continue;
      gone_rank_ = static_cast<int>(rank);
      gone_until_ = now + kGoneGrace;
      return;
    }
  }
}

void Meeting::wait_for_news(Deadline now) {
  polls_.clear();
  guests_.add_interests(now, polls_);
  Deadline wake_at = std::min({end_, gone_until_, guests_.wake_at()});
  for (const Dialer& dialer : dialers_) {
    polls_.push_back(dialer.interest());
    wake_at = std::min(wake_at, dialer.retry_at());
  }
  if (gone_rank_ == kNoSuspect) {
    for (const PeerSockets& sockets : roster_.sockets()) {
      polls_.push_back({sockets.data.get(), POLLRDHUP, 0});
      polls_.push_back({sockets.control.get(), POLLRDHUP, 0});
    }
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake_at - now).count();
  const int timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
  (void)::poll(polls_.data(), polls_.size(), timeout);
}

std::string Meeting::describe_missing() const {
  std::string text;
  for (const int rank : roster_.missing()) {
    if (!text.empty()) text += ", ";
    text += "rank " + std::to_string(rank) + " (" +
            to_string(options_.endpoints[static_cast<std::size_t>(rank)]) + ")";
  }
  return text;
}

Error Meeting::refused_by(const Dialer& dialer) const {
  return {ErrorCode::kUnauthorized,
          "whoever listens as rank " + std::to_string(dialer.rank()) + " at " + to_string(dialer.endpoint()) +
              " refuses rank " + std::to_string(options_.rank) +
              ": same job? same token? Not connected: " + describe_missing(),
          dialer.rank()};
}

Error Meeting::too_late() const {
  const std::string self = "rank " + std::to_string(options_.rank);
  for (const Dialer& dialer : dialers_) {
    if (dialer.was_turned_away()) return refused_by(dialer);
  }
  if (gone_rank_ != kNoSuspect) {
    const std::string gone = "rank " + std::to_string(gone_rank_);
    return {ErrorCode::kPeerLost,
            gone + " left while " + self + " was still connecting; see " + gone +
                "'s own log. Not connected: " + describe_missing(),
            gone_rank_};
  }
  std::string message = self + " found no connection in " + std::to_string(options_.connect_timeout.count()) +
                        " ms with " + describe_missing() + "; are they started, with the same endpoints?";
  if (guests_.strangers() > 0) {
    message += " " + std::to_string(guests_.strangers()) +
               " connections came with another token: same job? same token?";
  }
  const bool one = roster_.missing().size() == 1;
  return {ErrorCode::kTimeout, std::move(message), one ? roster_.missing().front() : kNoSuspect};
}

}  // namespace

Result<std::unique_ptr<Transport>> connect_tcp(std::unique_ptr<Listener> listener,
                                               const MeshOptions& options) {
  if (Status status = check_options(options); !status) return forward_error(status);
  if (dynamic_cast<TcpListener*>(listener.get()) == nullptr) {
    return fail(ErrorCode::kInvalidArgument, "connect_tcp: needs the listener that listen_tcp made");
  }
  std::unique_ptr<TcpListener> tcp(static_cast<TcpListener*>(listener.release()));
  Result<std::vector<PeerSockets>> sockets = Meeting(std::move(tcp), options).run();
  if (!sockets) return forward_error(sockets);
  return make_mesh(options.rank, std::move(*sockets), options.link);
}

}  // namespace deltawire
