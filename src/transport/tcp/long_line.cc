#include "transport/tcp/long_line.h"

#include <algorithm>
#include <cerrno>

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/environment.h"
#include "base/errors.h"
#include "transport/tcp/descriptors.h"

namespace deltawire {
namespace {

constexpr std::string_view kBbr = "bbr";
constexpr int kStreamsOfBbr = 4;
constexpr int kUnsentBytes = 128 << 10;

bool is_more_for(const Dialer& dialer, int rank) noexcept {
  return dialer.rank() == rank && Claims::number_of(dialer.stream()) >= 0;
}

}  // namespace

int ask_for_bbr(int fd) noexcept {
  return ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kBbr.data(), kBbr.size()) == 0 ? 0 : errno;
}

int ask_for_bbr(const Connection& line, std::chrono::microseconds least) noexcept {
  const auto round_trip = line.state().round_trip;
  return round_trip.count() == 0 || round_trip < least ? 0 : ask_for_bbr(line.get());
}

Result<bool> wants_bbr() {
  return is_switched_on("DELTAWIRE_BBR");
}

int streams_for(const LineState& line, int wanted) {
  if (line.segment_bytes == 0) return 1;
  if (wanted > 0) return wanted;
  if (line.round_trip < kLongRoundTrip) return 1;
  return line.congestion_control == kBbr ? kStreamsOfBbr : kStreamsMax;
}

Result<int> wanted_streams() {
  const std::string_view chosen = setting_of("DELTAWIRE_STREAMS");
  if (chosen.empty() || chosen == "auto") return 0;
  if (chosen.size() == 1 && chosen[0] >= '1' && chosen[0] <= '0' + kStreamsMax) return chosen[0] - '0';
  return invalid("DELTAWIRE_STREAMS=\"" + printable_line(chosen) + "\" is neither \"auto\" nor 1 to " +
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

MoreStreams::MoreStreams(int wanted, bool asks_for_bbr, int rank, int world_size)
    : wanted_(wanted),
      asks_for_bbr_(asks_for_bbr),
      own_(rank),
      given_(static_cast<std::size_t>(world_size)),
      dialed_for_(static_cast<std::size_t>(world_size)) {}

int MoreStreams::streams_to(const Connection& line) const {
  if (asks_for_bbr_) (void)ask_for_bbr(line);
  return streams_for(line.state(), wanted_);
}

void MoreStreams::advance(Deadline now, const PeerTable& table, const std::vector<Endpoint>& endpoints,
                          std::vector<Dialer>& dialers) {
  for (int rank = 0; rank < own_; ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    const PeerSockets& sockets = table.sockets()[place];
    if (dialed_for_[place] != table.data_streams()[place]) {
      dialed_for_[place] = table.data_streams()[place];
      std::erase_if(dialers, [rank](const Dialer& dialer) { return is_more_for(dialer, rank); });
      const int streams = std::min(streams_to(sockets.data), streams_that_fit(table.world_size()));
      for (int number = 0; number + 1 < streams; ++number) {
        dialers.emplace_back(rank, Claims::more_stream(number), endpoints[place], now);
        until_ = now + kPatience;
      }
    }
    if (now >= until_)
      std::erase_if(dialers, [rank](const Dialer& dialer) { return is_more_for(dialer, rank); });
    const bool is_dialing =
        std::ranges::any_of(dialers, [rank](const Dialer& dialer) { return is_more_for(dialer, rank); });
    given_[place] = is_dialing ? kDialing : static_cast<int>(sockets.streams_more());
  }
  const bool is_done = std::ranges::find(given_, kDialing) == given_.end();
  if (is_done) until_ = kNever;
}

}  // namespace deltawire
