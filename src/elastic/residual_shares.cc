#include "elastic/residual_shares.h"

#include <functional>

namespace deltawire::elastic {
namespace {

// Their lines differ, so that one thin line holds up nobody else.
Failures at_once(const PeersByKey& peers, const std::function<Status(int, PeerLine&)>& action) {
  Failures failures;
  Mutex mutex;
  {
    Tasks tasks;
    for (const auto& [key, peer] : peers) {
      const auto run = [&, key, line = peer->line] {
        const Busy busy(*line);
        const Status done = action(key, *line);
        const MutexLock lock(mutex);
        if (!done) failures.emplace(key, done.error());
      };
      if (!tasks.start(run)) run();
    }
  }
  return failures;
}

}  // namespace

std::pair<ResidualShares, Failures> collect_shares(const PeersByKey& peers, const Ending& ending) {
  ResidualShares shares;
  Mutex mutex;
  Failures failures = at_once(peers, [&](int key, PeerLine& line) -> Status {
    if (Status said = line.say(AskShare{}); !said) return said;
    auto share = line.receive_bytes(kSilence, ending);
    if (!share) return forward_error(share);
    const MutexLock lock(mutex);
    shares[key] = *std::move(share);
    return {};
  });
  return {std::move(shares), std::move(failures)};
}

Failures spread_shares(std::uint32_t epoch, const ResidualShares& shares, const PeersByKey& peers,
                       Clock::duration within, const Ending& ending) {
  return at_once(peers, [&](int key, PeerLine& line) -> Status {
    Shares head{epoch, {}};
    for (const auto& [id, share] : shares) {
      if (id != key) head.ids.push_back(id);
    }
    if (Status said = line.say(head); !said) return said;
    for (const int id : head.ids) {
      if (Status sent = line.send_bytes(shares.at(id), kSilence, ending); !sent) return sent;
    }
    const auto answer = line.hear_within(within, ending);
    if (!answer) return forward_error(answer);
    if (std::holds_alternative<HasShares>(*answer)) return {};
    return fail(ErrorCode::kCorrupt, "a member does not say that it has the residuals");
  });
}

Result<ResidualShares> receive_shares(PeerLine& line, const Shares& first, const Ending& ending) {
  ResidualShares shares;
  for (const int id : first.ids) {
    auto share = line.receive_bytes(kSilence, ending);
    if (!share) return forward_error(share);
    shares[id] = *std::move(share);
  }
  if (Status said = line.say(HasShares{}); !said) return forward_error(said);
  return shares;
}

}  // namespace deltawire::elastic
