#include "transport/tcp/long_line.h"

#include <array>
#include <cerrno>
#include <string_view>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/os_error.h"
#include "transport/tcp/local_socket.h"

namespace deltawire {
namespace {

constexpr std::string_view kBbr = "bbr";

// Of the connection, as the kernel calls it; empty if that is unknown.
std::string congestion_control(const Connection& line) {
  std::array<char, 16> name{};
  socklen_t length = name.size() - 1;
  if (::getsockopt(line.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0) return {};
  return name.data();
}

}  // namespace

int ask_for_bbr(const Connection& line, std::chrono::microseconds least) noexcept {
  if (!line || line.round_trip().count() == 0 || line.round_trip() < least) return 0;
  const bool is_set = ::setsockopt(line.get(), IPPROTO_TCP, TCP_CONGESTION, kBbr.data(), kBbr.size()) == 0;
  return is_set ? 0 : errno;
}

Result<bool> is_bbr_wanted() {
  return is_switched_on("DELTAWIRE_BBR");
}

std::string fit_long_lines(int own, const std::vector<PeerSockets>& sockets,
                           std::chrono::microseconds least) {
  std::string ranks;
  std::string problem;
  for (std::size_t rank = 0; rank < sockets.size(); ++rank) {
    (void)ask_for_bbr(sockets[rank].control, least);
    const int refused = ask_for_bbr(sockets[rank].data, least);
    if (refused == 0) continue;
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    problem = congestion_control(sockets[rank].data) + " (BBR: " + os_error_text(refused) + ")";
  }
  if (ranks.empty()) return {};
  return "rank " + std::to_string(own) + "'s lines to rank " + ranks +
         " are long, and their congestion control is " + problem +
         ", which is slow where packets are lost: allow BBR by modprobe tcp_bbr and "
         "sysctl net.ipv4.tcp_allowed_congestion_control='reno cubic bbr', or make it the default; "
         "DELTAWIRE_BBR=off keeps this quiet";
}

}  // namespace deltawire
