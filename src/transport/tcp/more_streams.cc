#include "transport/tcp/more_streams.h"

#include <algorithm>

#include "transport/tcp/descriptors.h"
#include "transport/tcp/long_line.h"

namespace deltawire {
namespace {

bool is_more_for(const Dialer& dialer, int rank) noexcept {
  return dialer.rank() == rank && Claims::number_of(dialer.stream()) >= 0;
}

}  // namespace

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
