#include "transport/tcp/peer_table.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/little_endian.h"
#include "transport/tcp/address.h"
#include "transport/tls/tls_context.h"

namespace deltawire {
namespace {

constexpr int kKeepIdleSeconds = 15;
constexpr int kKeepIntervalSeconds = 5;
constexpr int kKeepProbes = 3;
constexpr unsigned kUnacknowledgedMs = 30000;

// The kernel doubles it, for its own bookkeeping. docs/design/patterns.md, "How bytes move", has
// measurements; with less than the loopback's longest packet (64 KiB), sending waits for timers.
constexpr int kLocalSendBytes = 384 << 10;

// If a rank failed after it had connected, messages that it sent in between may come before the reason.
constexpr std::size_t kExitReasonBytesMax = 4096;

void set_option(int fd, int level, int name, int value) noexcept {
  (void)::setsockopt(fd, level, name, &value, sizeof value);
}

Connection& socket_of(PeerSockets& sockets, Claims::Stream stream) noexcept {
  return stream == Claims::Stream::kData ? sockets.data : sockets.control;
}

// A data stream within a machine has almost no latency to hide, so it sends from a small buffer, which stays
// in the cache. For other machines the kernel chooses the sizes.
void fit_buffers(int fd, Claims::Stream stream) noexcept {
  if (stream == Claims::Stream::kControl || !stays_on_this_machine(fd)) return;
  set_option(fd, SOL_SOCKET, SO_SNDBUF, kLocalSendBytes);
}

}  // namespace

bool has_ended(int fd) noexcept {
  pollfd entry{fd, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

void configure_connection(int fd, Claims::Stream stream) noexcept {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepProbes);
  // Not on data streams: there a peer may keep its window closed for as long as it computes, and the kernel
  // counts that as unacknowledged, too. Control streams are always read.
  if (stream == Claims::Stream::kControl) {
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedMs, sizeof kUnacknowledgedMs);
  }
}

PeerTable::PeerTable(const MeshOptions& options)
    : names_(options.names),
      token_(options.token),
      sockets_(static_cast<std::size_t>(options.world_size)),
      data_streams_(static_cast<std::size_t>(options.world_size)),
      lives_(static_cast<std::size_t>(options.world_size)),
      settings_(static_cast<std::size_t>(options.world_size)),
      is_told_(static_cast<std::size_t>(options.world_size)) {
  own_.rank = static_cast<std::uint32_t>(options.rank);
  own_.world_size = static_cast<std::uint16_t>(options.world_size);
  own_.epoch = options.epoch;
  own_.encryption = options.encryption;
  own_.text = options.settings;
  own_.life = load_le<std::uint64_t>(random_nonce().value_or(Nonce{}).data());
  settings_[own_.rank] = options.settings;
  for (int rank = 0; rank < options.world_size; ++rank) {
    if (rank != options.rank) missing_.push_back(rank);
  }
}

Claims PeerTable::own_claims(Claims::Role role) const {
  Claims claims = own_;
  claims.role = role;
  return claims;
}

Status PeerTable::check(const Claims& claims) {
  Status judged = judge(claims);
  if (judged) {
    settings_[claims.rank] = claims.text;
  } else {
    note_told(claims.rank);  // it will find the same by checking this rank's claims
  }
  return judged;
}

Status PeerTable::judge(const Claims& claims) const {
  const std::string other = claimed_name(claims.rank);
  const std::string self = name(rank());
  const int suspect = claims.rank < own_.world_size ? static_cast<int>(claims.rank) : kNoSuspect;
  const auto mismatch = [&](std::string message, std::string advice) {
    return tl::unexpected<Error>(Error{.code = ErrorCode::kMismatch,
                                       .message = std::move(message),
                                       .suspect = suspect,
                                       .reporter = rank(),
                                       .advice = std::move(advice)});
  };
  if (claims.version != own_.version) {
    return mismatch(other + " speaks handshake version " + std::to_string(claims.version) + ", " + self +
                        " version " + std::to_string(own_.version),
                    "install the same version of deltawire everywhere");
  }
  if (claims.encryption != own_.encryption) {
    return mismatch(other + " has " + encryption_text(claims.encryption) + ", " + self + " has " +
                        encryption_text(own_.encryption),
                    "start all ranks with the same encryption");
  }
  if (claims.problem != 0) return tl::unexpected<Error>(problem_of(claims, suspect));
  if (claims.world_size != own_.world_size) {
    return mismatch(other + " was started for a world of " + std::to_string(claims.world_size) + " ranks, " +
                        self + " for " + std::to_string(own_.world_size),
                    "start all ranks with the same world size");
  }
  if (claims.rank == own_.rank || claims.rank >= own_.world_size) {
    return mismatch("another process calls itself " + other + " in the world of " +
                        std::to_string(own_.world_size) + " that " + self + " connects",
                    "give each its own rank");
  }
  if (claims.peer != own_.rank) {
    return mismatch(other + " expects " + claimed_name(claims.peer) + " at the endpoint of " + self,
                    "give all ranks the same endpoints in the same order");
  }
  if (claims.epoch != own_.epoch) {
    return tl::unexpected<Error>(epoch_mismatch(suspect, claims.epoch, rank(), own_.epoch, names_));
  }
  return {};
}

Status PeerTable::compare_settings() const {
  std::map<std::string_view, std::vector<int>> ranks_by_text;
  for (int rank = 0; rank < world_size(); ++rank) {
    const std::optional<std::string>& text = settings_[static_cast<std::size_t>(rank)];
    if (text) ranks_by_text[*text].push_back(rank);
  }
  if (ranks_by_text.size() <= 1) return {};
  const auto has_fewer = [](const auto& one, const auto& other) {
    const auto [ones, others] = std::pair(one.second.size(), other.second.size());
    return ones != others ? ones < others : one.second.front() > other.second.front();
  };
  const auto right = std::ranges::max_element(ranks_by_text, has_fewer);
  const auto odd = std::ranges::min_element(ranks_by_text, has_fewer);
  return tl::unexpected<Error>(settings_mismatch(odd->second.front(), std::string(odd->first),
                                                 right->second.front(), std::string(right->first),
                                                 right->second.size() - 1, names_));
}

void PeerTable::note_told(std::uint32_t rank) {
  if (rank >= own_.world_size) return;
  is_told_[rank] = true;
  if (has_given_up()) std::erase(missing_, static_cast<int>(rank));
}

Error PeerTable::problem_of(const Claims& claims, int sender) const {
  const auto code = static_cast<ErrorCode>(claims.problem);
  const bool known = error_code_name(code) != "Unknown";
  const std::string by = claims.names_reporter ? "" : claimed_name(claims.rank) + " reports: ";
  return {.code = known ? code : ErrorCode::kAborted,
          .message = by + printable_line(claims.text),
          .suspect = claims.suspect < own_.world_size ? static_cast<int>(claims.suspect) : sender,
          .reporter = sender};
}

// Whether another process with that rank is connected. One that has died has hung up, and its place is free.
bool PeerTable::is_another_process(const Claims& claims) const noexcept {
  const PeerSockets& sockets = sockets_[claims.rank];
  return claims.life != lives_[claims.rank] && ((sockets.data && !has_ended(sockets.data.get())) ||
                                                (sockets.control && !has_ended(sockets.control.get())));
}

Status PeerTable::add(const Claims& claims, Connection socket) {
  const int rank = static_cast<int>(claims.rank);
  PeerSockets& sockets = sockets_[claims.rank];
  if (is_another_process(claims)) {
    twice_ = rank;
    return fail(ErrorCode::kMismatch,
                "two processes call themselves " + name(rank) + "; give each its own rank", rank);
  }
  if (claims.life != lives_[claims.rank]) {
    lives_[claims.rank] = claims.life;
    drop(rank, Claims::Stream::kControl);
    drop(rank, Claims::Stream::kData);
  }
  fit_buffers(socket.get(), claims.stream);
  if (const int number = Claims::number_of(claims.stream); number >= 0) {
    const auto place = static_cast<std::size_t>(number);
    if (sockets.more.size() <= place) sockets.more.resize(place + 1);
    sockets.more[place] = std::move(socket);
    return {};
  }
  socket_of(sockets, claims.stream) = std::move(socket);
  if (claims.stream == Claims::Stream::kData) ++data_streams_[claims.rank];
  if (sockets.data && sockets.control) std::erase(missing_, rank);
  return {};
}

void PeerTable::drop(int rank, Claims::Stream stream) {
  PeerSockets& sockets = sockets_[static_cast<std::size_t>(rank)];
  socket_of(sockets, stream).reset();
  if (stream == Claims::Stream::kData) sockets.more.clear();
  const auto place = std::ranges::lower_bound(missing_, rank);
  if (place == missing_.end() || *place != rank) missing_.insert(place, rank);
}

std::vector<ControlMessage> PeerTable::heard_from(int rank) const {
  const Connection& control = sockets_[static_cast<std::size_t>(rank)].control;
  std::array<std::byte, kExitReasonBytesMax> bytes;
  std::vector<ControlMessage> messages;
  const IoResult got = control ? control.peek(bytes) : IoResult::would_block();
  if (got.kind != IoResult::Kind::kOk) return messages;
  (void)ControlParser(world_size()).feed(Bytes(bytes).first(got.bytes), messages);
  return messages;
}

std::optional<Error> PeerTable::exit_reason_of(int rank) const {
  for (const ControlMessage& message : heard_from(rank)) {
    const auto* abort = std::get_if<Abort>(&message);
    if (abort == nullptr) continue;
    const int origin = abort->origin < 0 ? rank : abort->origin;
    Error error = abort->error;
    if (!names_.has(error.suspect, world_size())) error.suspect = origin;
    return names_.reported(origin, std::move(error));
  }
  return std::nullopt;
}

void PeerTable::give_up(const Error& error) {
  own_.problem = static_cast<std::uint8_t>(error.code);
  own_.suspect = error.suspect < 0 ? Claims::kNobody : static_cast<std::uint16_t>(error.suspect);
  own_.names_reporter = error.reporter != kNoRank;
  own_.text = printable_line(error.text(), kSettingsMax);
  std::vector<std::byte> bytes;
  append_control_message(Abort{error, rank()}, world_size(), bytes);
  missing_.clear();
  for (int other = 0; other < world_size(); ++other) {
    PeerSockets& sockets = sockets_[static_cast<std::size_t>(other)];
    const bool is_told = is_told_[static_cast<std::size_t>(other)] ||
                         (sockets.control && sockets.control.send(bytes).bytes == bytes.size());
    // Control first: a peer that sees the data connection end will look there for the reason.
    sockets.control.reset();
    sockets.data.reset();
    sockets.more.clear();
    // The second process with that rank was turned away midway, and will connect again.
    if ((!is_told || twice_ == other) && other != rank()) missing_.push_back(other);
  }
}

}  // namespace deltawire
