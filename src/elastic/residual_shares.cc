#include "elastic/residual_shares.h"

#include <functional>

#include "base/errors.h"

namespace deltawire::elastic {
namespace {

// Their lines differ, so that one thin line holds up nobody else.
Failures for_each(const PeersByKey& peers, const std::function<Status(int, PeerLine&)>& action) {
  const std::vector<PeersByKey::value_type> all(peers.begin(), peers.end());
  Failures failures;
  Mutex mutex;
  at_once(all.size(), all.size(), [&](std::size_t i) {
    const auto& [key, peer] = all[i];
    const Busy busy(*peer->line);
    const Status done = action(key, *peer->line);
    const MutexLock lock(mutex);
    if (!done) failures.emplace(key, done.error());
  });
  return failures;
}

}  // namespace

std::pair<ResidualShares, Failures> collect_shares(const PeersByKey& peers, const Ending& ending) {
  ResidualShares shares;
  Mutex mutex;
  Failures failures = for_each(peers, [&](int key, PeerLine& line) -> Status {
    RETURN_IF_ERROR(line.say(AskShare{}));
    ASSIGN_OR_RETURN(auto share, line.receive_bytes(kSilence, ending));
    const MutexLock lock(mutex);
    shares[key] = std::move(share);
    return {};
  });
  return {std::move(shares), std::move(failures)};
}

Failures spread_shares(std::uint32_t epoch, const ResidualShares& shares, const PeersByKey& peers,
                       Clock::duration within, const Ending& ending) {
  return for_each(peers, [&](int key, PeerLine& line) -> Status {
    Shares head{epoch, {}};
    for (const auto& [id, share] : shares) {
      if (id != key) head.ids.push_back(id);
    }
    RETURN_IF_ERROR(line.say(head));
    for (const int id : head.ids) {
      RETURN_IF_ERROR(line.send_bytes(shares.at(id), kSilence, ending));
    }
    ASSIGN_OR_RETURN(const auto answer, line.hear_within(within, ending));
    if (std::holds_alternative<HasShares>(answer)) return {};
    return corrupt("a member does not say that it has the residuals");
  });
}

Result<ResidualShares> receive_shares(PeerLine& line, const Shares& first, const Ending& ending) {
  ResidualShares shares;
  for (const int id : first.ids) {
    ASSIGN_OR_RETURN(shares[id], line.receive_bytes(kSilence, ending));
  }
  RETURN_IF_ERROR(line.say(HasShares{}));
  return shares;
}

}  // namespace deltawire::elastic
