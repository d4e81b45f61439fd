#include "transport/tcp/long_line.h"

#include <cerrno>
#include <cstdlib>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/os_error.h"
#include "transport/tcp/local_socket.h"

namespace deltawire {
namespace {

constexpr std::string_view kBbr = "bbr";
constexpr int kStreamsOfBbr = 4;
constexpr int kUnsentBytes = 128 << 10;

}  // namespace

int ask_for_bbr(int fd) noexcept {
  return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kBbr.data(), kBbr.size()) == 0 ? 0 : errno;
}

int ask_for_bbr(const Connection& line, std::chrono::microseconds least) noexcept {
  const auto round_trip = line.state().round_trip;
  return round_trip.count() == 0 || round_trip < least ? 0 : ask_for_bbr(line.get());
}

Result<bool> is_bbr_wanted() {
  return is_switched_on("DELTAWIRE_BBR");
}

int streams_for(const LineState& line, int wanted) {
  if (line.segment_bytes == 0) return 1;
  if (wanted > 0) return wanted;
  if (line.round_trip < kLongRoundTrip) return 1;
  return line.congestion_control == kBbr ? kStreamsOfBbr : kStreamsMax;
}

Result<int> wanted_streams() {
  const char* const setting = std::getenv("DELTAWIRE_STREAMS");
  const std::string_view chosen = setting == nullptr ? "" : setting;
  if (chosen.empty() || chosen == "auto") return 0;
  if (chosen.size() == 1 && chosen[0] >= '1' && chosen[0] <= '0' + kStreamsMax) return chosen[0] - '0';
  return fail(ErrorCode::kInvalidArgument, "DELTAWIRE_STREAMS=\"" + printable_line(chosen) +
                                               "\" is neither \"auto\" nor 1 to " +
                                               std::to_string(kStreamsMax));
}

void keep_little_unsent(const Connection& line) noexcept {
  (void)::setsockopt(line.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof kUnsentBytes);
}

std::string fit_long_lines(int own, const std::vector<PeerSockets>& sockets,
                           std::chrono::microseconds least) {
  std::string ranks;
  std::string problem;
  for (std::size_t rank = 0; rank < sockets.size(); ++rank) {
    (void)ask_for_bbr(sockets[rank].control, least);
    for (const Connection& one : sockets[rank].more) (void)ask_for_bbr(one, least);
    const int refused = ask_for_bbr(sockets[rank].data, least);
    if (refused == 0) continue;
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    problem = sockets[rank].data.state().congestion_control + " (BBR: " + os_error_text(refused) + ")";
  }
  if (ranks.empty()) return {};
  return "rank " + std::to_string(own) + "'s lines to rank " + ranks +
         " are long, and their congestion control is " + problem +
         ", which is slow where packets are lost: " + std::string(kHowToAllowBbr) +
         "; DELTAWIRE_BBR=off keeps this quiet";
}

}  // namespace deltawire
