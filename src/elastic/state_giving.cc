// How the host of a meeting gives processes that join the state, before they are in a view: whoever dies
// meanwhile keeps nobody waiting.
#include <algorithm>

#include "elastic/hosting.h"

namespace deltawire::elastic {
namespace {

using namespace std::chrono_literals;

constexpr Clock::duration kLookAtProgress = 20ms;
constexpr int kLongest = 10;  // times as long as members may take to meet

// How far a process is, as it says.
struct Progress {
  std::shared_ptr<PendingPeer> peer;
  Deadline since;
  std::uint64_t taken = 0;

  // False once it is ready, has hung up, or has taken nothing for that time.
  bool listen(Deadline now, Clock::duration within) {
    const auto heard = peer->line->hear(now);
    if (!heard) return false;
    if (*heard && std::holds_alternative<Ready>(**heard)) {
      peer->has_state = true;
      return false;
    }
    const auto* const at = *heard ? std::get_if<Taken>(&**heard) : nullptr;
    if (at != nullptr && at->chunks != taken) {
      taken = at->chunks;
      since = now;
    }
    return now < since + within;
  }
};

}  // namespace

void give_state(MeetingContext& context, const PendingPeers& joiners, const PendingPeers& members,
                const std::vector<Endpoint>& doors) {
  PendingPeers all = members;
  all.insert(all.end(), joiners.begin(), joiners.end());
  const KeptWaiting kept(all);
  const auto offered = context.offer_state();
  if (!offered) {
    const Refused refused{offered.error().code,
                          offered.error().message + "; who joins needs the state, so mend it there"};
    for (const auto& peer : joiners) (void)peer->line->say(refused);
    return;
  }
  if (!*offered) {
    for (const auto& peer : joiners) peer->has_state = true;
    return;
  }
  for (const auto& peer : members) (void)peer->line->say(Offer{});
  const std::vector<std::byte> layout = (*offered)->layout();
  std::vector<Progress> pending;
  const Deadline begun = MachineClock::now();
  for (const auto& peer : joiners) {
    const Busy busy(*peer->line);
    const bool is_there =
        peer->line->say(Offer{doors}) && peer->line->send_bytes(layout, context.chunk_time, context.ending);
    if (is_there) pending.push_back({peer, begun});
  }
  const Deadline end = begun + kLongest * context.limit;
  while (!pending.empty() && MachineClock::now() < end && !context.ending.is_set()) {
    const Deadline now = MachineClock::now();
    std::erase_if(pending, [&](Progress& each) { return !each.listen(now, context.chunk_time); });
    if (!pending.empty()) context.ending.pause(kLookAtProgress);
  }
}

}  // namespace deltawire::elastic
