// How members at a meeting bring their residuals together: the host collects a share of each, and gives
// everybody those of all others, before it says who goes on. So nobody waits in a mesh for one whose line is
// thin, and who dies meanwhile is in no view.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "elastic/reception.h"

namespace deltawire::elastic {

using ResidualShares = std::map<int, std::vector<std::byte>>;  // by the id of the member
// By a key of the caller's: members' ids, and negative numbers for processes that join.
using PeersByKey = std::map<int, std::shared_ptr<PendingPeer>>;
using Failures = std::map<int, Error>;

// The shares of those members.
std::pair<ResidualShares, Failures> collect_shares(const PeersByKey& peers, const Ending& ending);
// Gives each the shares of the others, for a view of that epoch. `within`: for the last bytes that are under
// way, which nobody sees arrive.
Failures spread_shares(std::uint32_t epoch, const ResidualShares& shares, const PeersByKey& peers,
                       Clock::duration within, const Ending& ending);
// What spread_shares gives, whose first message is `first`.
Result<ResidualShares> receive_shares(PeerLine& line, const Shares& first, const Ending& ending);

}  // namespace deltawire::elastic
