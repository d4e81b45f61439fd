#include "transport/tcp/bootstrap.h"

#include <algorithm>
#include <functional>

#include "base/errors.h"
#include "transport/process/machine.h"
#include "transport/tcp/descriptors.h"

namespace deltawire {
namespace {

// A rank that hung up may have lost a connection, and will connect again. Or it gave up before it could say
// why, and tells those that dial it again. A rank that does neither within this time is gone.
constexpr std::chrono::milliseconds kGoneGrace{2000};
// The pause before a rank that hung up is dialed again.
constexpr std::chrono::milliseconds kRedialPause{10};
constexpr std::chrono::milliseconds kAskPause{100};
// How long a rank that gives up tries to tell those that it is not connected to; or an eighth of the time to
// connect, if that is less: a member of an elastic session has other members to meet.
constexpr std::chrono::milliseconds kTellTime{2000};
constexpr int kTellPart = 8;

// Whether it is worth looking up.
bool may_be_host(const std::string& host) noexcept {
  return !host.empty() && std::ranges::none_of(host, [](char letter) {
    return static_cast<unsigned char>(letter) <= 0x20 || letter == 0x7f;
  });
}

bool is_missing(const PeerTable& table, int rank) noexcept {
  return std::ranges::binary_search(table.missing(), rank);
}

// A line that is shaped or broken on purpose carries all that a rank gives.
RollCall::Shares shares_of(const MeshOptions& options) noexcept {
  if (!options.shared_memory) return RollCall::Shares::kNothing;
  return options.link.shape || options.link.wrap ? RollCall::Shares::kRings : RollCall::Shares::kAreasToo;
}

Bootstrap::Met with_shared_memory(std::vector<PeerSockets> sockets, RollCall& call,
                                  const std::function<void(const std::string&)>& notice) {
  call.share_memory(sockets);
  call.settle_more(sockets);
  if (const std::string unshared = call.describe_unshared(); !unshared.empty() && notice) notice(unshared);
  return {std::move(sockets), call.take_areas()};
}

// Where the time was too short for the lines. Some ten messages follow each other until all have met.
std::string describe_distance(const std::vector<PeerSockets>& met, const std::vector<Dialer>& dialers,
                              std::chrono::milliseconds time) {
  std::chrono::microseconds longest{};
  for (const PeerSockets& peer : met) longest = std::max(longest, peer.control.state().round_trip);
  for (const Dialer& dialer : dialers) longest = std::max(longest, dialer.findings().round_trip);
  if (16 * longest < time) return {};
  return " (A round trip takes " + std::to_string(longest / std::chrono::milliseconds(1)) +
         " ms, and meeting up to 16: give a longer connect_timeout.)";
}

}  // namespace

Bootstrap::Bootstrap(std::unique_ptr<TcpListener> listener, const MeshOptions& options,
                     EncryptionPolicy policy, bool asks_for_bbr)
    : options_(options),
      policy_(std::move(policy)),
      own_(listener->endpoint()),
      endpoints_(options.endpoints),
      peer_table_(options),
      more_streams_(options.streams, asks_for_bbr, options.rank, options.world_size),
      roll_call_(options.rank, options.world_size, shares_of(options)),
      pending_connections_(std::move(listener), options.world_size, policy_),
      end_(MachineClock::now() + options.connect_timeout),
      finished_(static_cast<std::size_t>(options.world_size)) {}

Result<Bootstrap::Met> Bootstrap::run() {
  Result<Met> met = meet();
  if (!met) tell_others(met.error());
  return met;
}

Result<Bootstrap::Met> Bootstrap::meet() {
  RETURN_IF_ERROR(prepare_endpoints());
  RETURN_IF_ERROR(prepare_dialers());
  RETURN_IF_ERROR(check_descriptors(options_.names.number_of(options_.rank), options_.world_size));
  while (true) {
    const Deadline now = MachineClock::now();
    RETURN_IF_ERROR(advance(now));
    if (has_met_all() && roll_call_.is_complete())
      return with_shared_memory(peer_table_.take_sockets(), roll_call_, options_.notice);
    RETURN_IF_ERROR(look_for_news(now));
    if (now >= end_of_patience()) return tl::unexpected<Error>(too_late());
    wait_for_news(now, end_of_patience());
  }
}

// With a rendezvous: opens the book for the addresses of all but rank 0.
Status Bootstrap::prepare_endpoints() {
  if (!options_.rendezvous) return {};
  endpoints_.assign(static_cast<std::size_t>(options_.world_size), Endpoint{});
  AddressSlot own{};
  if (options_.rank > 0) {
    endpoints_.front() = *options_.rendezvous;
    ASSIGN_OR_RETURN(own, encode_address(own_));
  }
  book_.emplace(options_.rank, options_.world_size, own);
  return {};
}

// Makes dialers to the lower ranks, from `first` on, whose addresses are known.
Status Bootstrap::prepare_dialers(int first) {
  for (int rank = first; rank < options_.rank; ++rank) {
    const Endpoint& endpoint = endpoints_[static_cast<std::size_t>(rank)];
    if (options_.rendezvous && endpoint.port == 0) continue;
    if (!may_be_host(endpoint.host)) {
      return fail(ErrorCode::kInvalidArgument,
                  "connect_tcp: endpoint of " + peer_table_.name(rank) + ": no such address: \"" +
                      printable_line(endpoint.host) + "\"",
                  rank);
    }
    dialers_.emplace_back(rank, Claims::Stream::kData, endpoint);
    dialers_.emplace_back(rank, Claims::Stream::kControl, endpoint);
  }
  return {};
}

Status Bootstrap::advance(Deadline now) {
  RETURN_IF_ERROR(pending_connections_.advance(now, peer_table_));
  RETURN_IF_ERROR(advance_dialers(now));
  if (peer_table_.has_given_up()) return {};
  if (peer_table_.is_complete()) {
    RETURN_IF_ERROR(peer_table_.compare_settings());
  }
  if (book_) {
    RETURN_IF_ERROR(advance_book());
  }
  if (!has_met_all()) return {};
  more_streams_.advance(now, peer_table_, endpoints_, dialers_);
  return roll_call_.advance(peer_table_.sockets(), peer_table_.data_streams(), more_streams_.given());
}

Status Bootstrap::advance_book() {
  const bool knew = book_->is_out();
  Status status = book_->advance(peer_table_.sockets(), peer_table_.data_streams());
  if (!status || knew || !book_->is_out() || options_.rank == 0) return status;
  std::ranges::copy(book_->endpoints().begin() + 1, book_->endpoints().end(), endpoints_.begin() + 1);
  return prepare_dialers(1);
}

Status Bootstrap::advance_dialers(Deadline now) {
  const Claims own = peer_table_.own_claims(Claims::Role::kDialer);
  int shortage = 0;
  for (auto dialer = dialers_.begin(); dialer != dialers_.end();) {
    if (!dialer->advance(now, options_.token, own, policy_)) {
      const int error = dialer->findings().socket_error;
      if (is_descriptor_shortage(error)) shortage = error;
      ++dialer;
      continue;
    }
    const Claims& claims = dialer->claims();
    if (peer_table_.has_given_up()) {
      peer_table_.note_told(claims.rank);
      dialer = dialers_.erase(dialer);
      continue;
    }
    RETURN_IF_ERROR(peer_table_.check(claims));
    if (static_cast<int>(claims.rank) != dialer->rank() || claims.stream != dialer->stream()) {
      return mismatch(peer_table_.name(static_cast<int>(claims.rank)) + " answers at " +
                          to_string(dialer->endpoint()) + " instead of " + peer_table_.name(dialer->rank()) +
                          "; give all ranks the same endpoints in the same order",
                      static_cast<int>(claims.rank));
    }
    RETURN_IF_ERROR(peer_table_.add(claims, dialer->take_connection()));
    dialer = dialers_.erase(dialer);
  }
  return shortage == 0 ? Status{} : shortage_.note(now, options_.rank, options_.world_size, shortage);
}

Status Bootstrap::look_for_news(Deadline now) {
  if (options_.interrupted && now >= ask_at_) {
    ask_at_ = now + kAskPause;
    if (options_.interrupted()) {
      return tl::unexpected<Error>(
          Error{.code = ErrorCode::kAborted,
                .message = peer_table_.name(options_.rank) + " was interrupted while it was still connecting",
                .suspect = options_.rank,
                .reporter = options_.rank});
    }
  }
  return watch_met_ranks(now);
}

// Polls for the ends of connections: control and data of each rank, in order, except of ranks that have
// finished and closed theirs.
void Bootstrap::add_met_ranks() {
  for (std::size_t rank = 0; rank < finished_.size(); ++rank) {
    const PeerSockets& sockets = peer_table_.sockets()[rank];
    polls_.push_back({finished_[rank] ? -1 : sockets.control.get(), POLLRDHUP, 0});
    polls_.push_back({finished_[rank] ? -1 : sockets.data.get(), POLLRDHUP, 0});
  }
}

Status Bootstrap::watch_met_ranks(Deadline now) {
  polls_.clear();
  add_met_ranks();
  if (::poll(polls_.data(), polls_.size(), 0) > 0) {
    for (std::size_t i = 0; i < polls_.size(); ++i) {
      if (polls_[i].revents == 0) continue;
      const int rank = static_cast<int>(i / 2);
      if (auto reason = peer_table_.exit_reason_of(rank)) {
        peer_table_.note_told(static_cast<std::uint32_t>(rank));
        return tl::unexpected<Error>(*std::move(reason));
      }
      finished_[i / 2] = finished_[i / 2] || peer_table_.has_finished(rank);
      if (finished_[i / 2]) continue;
      miss(rank, i % 2 == 0 ? Claims::Stream::kControl : Claims::Stream::kData, now);
    }
  }
  std::erase_if(gone_, [this](const Gone& gone) { return !is_missing(peer_table_, gone.rank); });
  return {};
}

// Notes that a rank has hung up. As long as the addresses are not fixed, it may be started again at any time;
// afterwards only the same process can connect again, and that does so at once.
void Bootstrap::miss(int rank, Claims::Stream stream, Deadline now) {
  peer_table_.drop(rank, stream);
  if (!has_gone(rank)) {
    gone_.push_back({rank, book_ && !book_->is_out() ? end_ : now + kGoneGrace});
  }
  if (rank > options_.rank) return;
  dialers_.emplace_back(rank, stream, endpoints_[static_cast<std::size_t>(rank)], now + kRedialPause);
}

void Bootstrap::wait_for_news(Deadline now, Deadline until) {
  polls_.clear();
  pending_connections_.add_interests(now, polls_);
  Deadline wake_at = std::min(until, pending_connections_.wake_at());
  for (const Dialer& dialer : dialers_) {
    dialer.add_interests(polls_);
    wake_at = std::min(wake_at, dialer.wake_at());
  }
  if (book_) book_->add_interests(peer_table_.sockets(), polls_);
  if (has_met_all()) {
    roll_call_.add_interests(peer_table_.sockets(), polls_);
    wake_at = std::min({wake_at, more_streams_.wake_at(), roll_call_.wake_at()});
  }
  add_met_ranks();
  if (options_.interrupted) wake_at = std::min(wake_at, now + kAskPause);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake_at - now).count();
  const int timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
  (void)::poll(polls_.data(), polls_.size(), timeout);
}

Deadline Bootstrap::end_of_patience() const {
  Deadline end = end_;
  for (const Gone& gone : gone_) end = std::min(end, gone.until);
  return end;
}

void Bootstrap::tell_others(const Error& error) {
  const auto time = std::min(kTellTime, options_.connect_timeout / kTellPart);
  const Deadline until = std::min(end_, MachineClock::now() + time);
  peer_table_.give_up(error);
  pending_connections_.send_away();
  dialers_.clear();
  // An invalid endpoint may be the very error; it can be ignored, since higher ranks dial this one.
  (void)prepare_dialers();
  // One connection is enough to tell a rank, and descriptors may be scarce.
  std::erase_if(dialers_, [](const Dialer& dialer) { return dialer.stream() != Claims::Stream::kControl; });
  while (true) {
    const Deadline now = MachineClock::now();
    // A rank that was told needs no connection any more; if none listens, none waits.
    std::erase_if(dialers_, [this](const Dialer& dialer) {
      return dialer.findings().was_refused() || !is_missing(peer_table_, dialer.rank());
    });
    const bool all_higher_know =
        peer_table_.is_complete() || peer_table_.missing().back() < options_.rank || is_hidden();
    if (now >= until || (dialers_.empty() && all_higher_know)) return;
    // It can only fail for want of descriptors, and each rank that was told gives some back.
    (void)advance(now);
    wait_for_news(now, until);
  }
}

std::string Bootstrap::describe_missing() const {
  std::string text;
  for (const int rank : peer_table_.missing()) {
    if (!text.empty()) text += ", ";
    text += peer_table_.name(rank);
    const Endpoint& endpoint = endpoints_[static_cast<std::size_t>(rank)];
    if (endpoint.port != 0) text += " (" + to_string(endpoint) + ")";
  }
  return text;
}

Error Bootstrap::refused_by(const Dialer& dialer) const {
  const std::string process = "the process that listens as " + peer_table_.name(dialer.rank()) + " at " +
                              to_string(dialer.endpoint());
  const std::string self = peer_table_.name(options_.rank);
  const std::string problem = dialer.findings().tls_problem(self, options_.encryption);
  const std::string message =
      process + (problem.empty() ? " refuses " + self + ": same job? same token?" : problem);
  return found(ErrorCode::kUnauthorized, message + " Not connected: " + describe_missing(), dialer.rank());
}

// An error that names this rank.
Error Bootstrap::found(ErrorCode code, std::string message, int suspect) const {
  if (code == ErrorCode::kTimeout)
    message += describe_distance(peer_table_.sockets(), dialers_, options_.connect_timeout);
  return {.code = code,
          .message = std::move(message),
          .suspect = suspect,
          .reporter = options_.rank,
          .ranks = peer_table_.missing()};
}

// What ranks that this one has dialed did instead of answering.
std::string Bootstrap::describe_silence() const {
  std::string text;
  for (const Dialer& dialer : dialers_) {
    const std::string other = peer_table_.name(dialer.rank());
    if (text.find(other + " ") != std::string::npos) continue;
    const std::string silence = dialer.findings().silence();
    if (!silence.empty()) text += " " + other + silence;
  }
  return text;
}

Error Bootstrap::too_late() const {
  if (Status compared = peer_table_.compare_settings(); !compared) return compared.error();
  const std::string self = peer_table_.name(options_.rank);
  const std::string time = std::to_string(options_.connect_timeout.count());
  for (const Dialer& dialer : dialers_) {
    if (dialer.findings().was_turned_away() && !has_gone(dialer.rank())) return refused_by(dialer);
  }
  if (!gone_.empty()) {
    const int rank = gone_.front().rank;
    const std::string gone = peer_table_.name(rank);
    return found(ErrorCode::kPeerLost,
                 gone + " left while " + self + " was still connecting; see " + gone +
                     "'s own log. Not connected: " + describe_missing(),
                 rank);
  }
  const auto left =
      std::ranges::find_if(dialers_, [](const Dialer& dialer) { return dialer.findings().was_left(); });
  if (left != dialers_.end()) {
    const std::string other = peer_table_.name(left->rank());
    return found(ErrorCode::kPeerLost,
                 other + " at " + to_string(left->endpoint()) + " ended while " + self +
                     " was still connecting to it (killed or crashed?); see " + other +
                     "'s own log. Not connected: " + describe_missing(),
                 left->rank());
  }
  if (seeks_rank_0()) {
    return found(ErrorCode::kTimeout,
                 self + " found nobody in " + time + " ms at " + to_string(endpoints_.front()) + ", where " +
                     peer_table_.name(0) +
                     " should listen; is it started, and can this machine reach that port?" +
                     describe_silence(),
                 0);
  }
  if (has_met_all()) {
    const int silent = roll_call_.silent_rank();
    return found(ErrorCode::kTimeout,
                 self + " is connected to all ranks, but " + peer_table_.name(silent) + " was not after " +
                     time + " ms; see its own log",
                 silent);
  }
  if (peer_table_.is_complete()) {
    const int silent = book_->silent_rank();
    return found(ErrorCode::kTimeout,
                 peer_table_.name(silent) + " did not tell " + self + " in " + time +
                     " ms where it listens; see its own log",
                 silent);
  }
  std::string message = self + " found no connection in " + time + " ms with " + describe_missing();
  message += options_.rendezvous ? "; are they started, with the rendezvous at " +
                                       to_string(options_.rank == 0 ? own_ : endpoints_.front()) + "?"
                                 : "; are they started, with the same endpoints?";
  if (pending_connections_.refused() > 0) {
    message += " " + std::to_string(pending_connections_.refused()) +
               " connections came with another token: same job? same token?";
  }
  message += describe_silence();
  const bool one = peer_table_.missing().size() == 1;
  return found(ErrorCode::kTimeout, std::move(message), one ? peer_table_.missing().front() : kNoSuspect);
}

}  // namespace deltawire
