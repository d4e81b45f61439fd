#include "elastic/founding.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/little_endian.h"
#include "transport/tcp/proof.h"

namespace deltawire::elastic {
namespace {

using namespace std::chrono_literals;

constexpr Clock::duration kLook = 10ms;
constexpr Clock::duration kTelling = 10s;  // at most, for ranks that come after the founding has failed

std::string rank_text(int rank) {
  return "rank " + std::to_string(rank);
}

// The founding of one session.
class Founding {
 public:
  Founding(MeetingContext& context, int world_size) : context_(context), world_size_(world_size) {}

  Result<Agreement> run() {
    const Deadline end = MachineClock::now() + context_.options.connect_timeout;
    while (static_cast<int>(ranks_.size()) < world_size_ - 1) {
      const PendingPeers callers = context_.reception->take_callers();
      for (const auto& peer : callers) {
        if (const std::string why = greet(peer); !why.empty()) return give_up(callers, end, why);
      }
      std::erase_if(ranks_, [](const auto& each) { return !each.second->line->is_waiting(); });
      if (context_.ending.is_set() || (context_.options.interrupted && context_.options.interrupted())) {
        return fail(ErrorCode::kAborted, "the session was closed before all ranks had come");
      }
      const std::string missing = missing_ranks();
      // The last one may come before this process wakes up.
      if (!missing.empty() && MachineClock::now() > end) return time_out(missing);
      context_.ending.pause(kLook);
    }
    return agree();
  }

 private:
  // Why the session can't begin; another process of the same rank is turned away alone.
  std::string greet(const std::shared_ptr<PendingPeer>& peer) {
    const auto* const found = std::get_if<Found>(&peer->said);
    if (found == nullptr) return {};
    const std::string rank = rank_text(found->rank);
    if (found->world_size != world_size_) {
      return rank + " was started for " + std::to_string(found->world_size) + " ranks, rank 0 for " +
             std::to_string(world_size_);
    }
    if (found->rank <= 0 || found->rank >= world_size_) {
      return rank + " is not in a world of " + std::to_string(world_size_);
    }
    if (found->settings != context_.settings) {
      return differing_settings("rank 0", context_.settings, rank, found->settings) + "; give all the same";
    }
    const auto before = ranks_.find(found->rank);
    if (before != ranks_.end() && before->second->line->is_waiting()) {
      const std::string why =
          "two processes call themselves rank " + std::to_string(found->rank) + "; give each its own rank";
      (void)peer->line->say(Refused{ErrorCode::kMismatch, why});
    } else {
      ranks_[found->rank] = peer;
    }
    return {};
  }

  std::string missing_ranks() const {
    std::string missing;
    for (int rank = 1; rank < world_size_; ++rank) {
      if (!ranks_.contains(rank)) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
    return missing;
  }

  Result<Agreement> time_out(const std::string& missing) {
    const std::string text = "rank 0 waited " + seconds_text(context_.options.connect_timeout) +
                             " s for ranks " + missing + "; were they started?";
    for (const auto& [rank, peer] : ranks_) (void)peer->line->say(Refused{ErrorCode::kTimeout, text});
    return fail(ErrorCode::kTimeout, text, std::stoi(missing));
  }

  // A rank that was started in another way: all are told, also those who come until then.
  Result<Agreement> give_up(PendingPeers peers, Deadline end, const std::string& why) {
    for (const auto& [rank, peer] : ranks_) peers.push_back(peer);
    const Deadline until = std::min(end, MachineClock::now() + kTelling);
    std::set<int> told;
    while (static_cast<int>(told.size()) < world_size_ - 1 && MachineClock::now() < until &&
           !context_.ending.is_set()) {
      for (const auto& peer : peers) {
        const auto* const found = std::get_if<Found>(&peer->said);
        (void)peer->line->say(Refused{ErrorCode::kMismatch, why});
        if (found != nullptr) told.insert(found->rank);
      }
      context_.ending.pause(kLook);
      peers = context_.reception->take_callers();
    }
    return fail(ErrorCode::kMismatch, why);
  }

  Result<Agreement> agree() {
    Agreement agreement;
    NextView& next = agreement.next;
    const auto random = random_nonce();
    if (!random) return fail(ErrorCode::kSystem, "the operating system gives no random bytes");
    next.job = load_le<std::uint64_t>(random->data());
    next.view.members.push_back({0, context_.reception->address()});
    for (const auto& [rank, peer] : ranks_) {
      next.view.members.push_back({rank, std::get<Found>(peer->said).address});
    }
    next.view.next_id = world_size_;
    auto listener = context_.listen();
    if (!listener) return forward_error(listener);
    agreement.listener = *std::move(listener);
    next.meeting_place = agreement.listener->endpoint();
    for (const auto& [rank, peer] : ranks_) {
      (void)peer->line->say(next);  // who is gone will be missing in the mesh
    }
    return agreement;
  }

  MeetingContext& context_;
  const int world_size_;
  std::map<int, std::shared_ptr<PendingPeer>> ranks_;  // that have come, but for rank 0
};

}  // namespace

Result<Agreement> found_session(MeetingContext& context, int world_size) {
  return Founding(context, world_size).run();
}

}  // namespace deltawire::elastic
