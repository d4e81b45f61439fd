// The host of a meeting: it gathers the members that live, carries out what decide() says, and gives each
// what it needs.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>

#include "base/errors.h"
#include "elastic/decision.h"
#include "elastic/meeting.h"

namespace deltawire::elastic {

// One attempt of one member to host a meeting.
class Hosting {
 public:
  explicit Hosting(Meeting& meeting)
      : meeting_(meeting), context_(meeting.context()), begun_at_(MachineClock::now()) {}

  // The agreement; nothing if a member with a lower id shall host.
  OrEnded<std::optional<Agreement>> host() {
    auto agreement = gather();
    if (!agreement) {
      // Or they would be kept waiting for as long as this process lives.
      const Error& error = agreement.error().error;
      tell_all(error.code == ErrorCode::kNoQuorum ? Message(Alone{error.message}) : Message(Again{}));
    }
    return agreement;
  }

 private:
  using Kind = Decision::Kind;

  static constexpr std::chrono::milliseconds kLook{20};
  static constexpr int kLongest = 10;  // times as long as members may take to meet

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

  struct Caller {
    std::shared_ptr<PendingPeer> peer;
    MemberState state;
  };

  OrEnded<std::optional<Agreement>> gather() {
    while (true) {
      if (Status open = context_.check_open("while its members met"); !open) return ended(open);
      receive();
      const Attendance here = attendance();
      for (const Member& member : here.absent()) meeting_.probes().ask(member);
      const Decision decision =
          decide(here, {meeting_.passed(), MachineClock::now() - begun_at_, context_.limit});
      switch (decision.kind) {
        case Kind::kWait: break;
        case Kind::kYield: tell_all(Again{}); return std::nullopt;
        case Kind::kExcluded:
          // Without an epoch it is this member alone that is at another step.
          tell_all(decision.epoch ? Message(Excluded{decision.epoch, decision.why}) : Message(Again{}));
          return excluded(decision.epoch, decision.why);
        case Kind::kPropose: {
          auto agreement = propose(decision.proposal);
          if (!agreement) return ended(agreement);
          if (*agreement) return std::move(*agreement);
          continue;
        }
        case Kind::kGiveUp: {
          if (auto included = meeting_.check_included(); !included)
            return tl::unexpected<Ended>(included.error());
          return ended(fail(ErrorCode::kNoQuorum, decision.why).value());
        }
      }
      context_.ending.pause(kLook);
    }
  }

  void receive() {
    for (auto& peer : context_.reception->take_callers()) {
      const auto* const meet = std::get_if<Meet>(&peer->said);
      if (meet == nullptr || meet->state.job != meeting_.state().job) continue;
      peer->line->keep(Wait{.hosted = true});
      left_.insert(meet->left.begin(), meet->left.end());
      callers_.insert_or_assign(meet->state.id, Caller{peer, meet->state});
    }
    for (auto& peer : context_.reception->take_joiners()) joiners_.push_back(std::move(peer));
    (void)drop_who_hung_up();
  }

  std::size_t drop_who_hung_up() {
    return std::erase_if(callers_, [](const auto& each) { return !each.second.peer->line->is_waiting(); }) +
           std::erase_if(joiners_, [](const auto& peer) { return !peer->line->is_waiting(); });
  }

  Attendance attendance() const {
    Attendance here;
    here.own = meeting_.state();
    for (const auto& [id, caller] : callers_) here.callers.emplace(id, caller.state);
    for (const auto& peer : joiners_) here.joiners.push_back(std::get<Join>(peer->said).address);
    here.left = gone_by_will();
    here.findings = meeting_.probes().findings();
    here.given_up = meeting_.given_up();
    here.at_least = context_.options.at_least;
    return here;
  }

  Left gone_by_will() const {
    Left all = context_.reception->left();
    all.insert(left_.begin(), left_.end());
    return all;
  }

  void tell_all(const Message& message) {
    for (const auto& [id, caller] : callers_) (void)caller.peer->line->say(message);
    for (const auto& peer : joiners_) (void)peer->line->say(Again{});
    callers_.clear();
    joiners_.clear();
  }

  // Nothing: some are gone meanwhile, so that it is to be decided anew.
  Result<std::optional<Agreement>> propose(const Proposal& proposal) {
    const PendingPeers joiners(joiners_.begin(),
                               joiners_.begin() + static_cast<std::ptrdiff_t>(proposal.joiners));
    if (!all_have_the_state(joiners, proposal.chosen)) return std::nullopt;
    const Excluded turned_away{meeting_.state().latest_epoch(),
                               "it is at another step, or others could not connect to it"};
    for (const int id : proposal.turned_away) {
      (void)callers_.at(id).peer->line->say(turned_away);
      callers_.erase(id);
    }
    ASSIGN_OR_RETURN(auto shares, share(proposal, joiners));
    if (!shares) return std::nullopt;
    ASSIGN_OR_RETURN(auto listener, context_.listen());
    // If this member froze, they look for another host; the mesh would wait in vain, and some may come back.
    if (drop_who_hung_up() > 0) {
      begun_at_ = MachineClock::now();
      return std::nullopt;
    }
    Agreement agreement{next_view(proposal), *std::move(shares), std::move(listener), {}};
    agreement.next.meeting_place = agreement.listener->endpoint();
    for (const auto& peer : joiners) agreement.lines.push_back(peer->line);
    for (const auto& [id, caller] : callers_) agreement.lines.push_back(caller.peer->line);
    send(agreement, joiners);
    return std::optional(std::move(agreement));
  }

  // Gives the state to those that don't have it. Whether all have it.
  bool all_have_the_state(const PendingPeers& joiners, const Ids& chosen) {
    PendingPeers late;
    std::ranges::copy_if(joiners, std::back_inserter(late),
                         [](const auto& peer) { return !peer->has_state; });
    if (late.empty()) return true;
    const auto known = attendance().known();
    std::vector<Endpoint> doors{context_.reception->address()};
    PendingPeers members;
    for (const int id : chosen) {
      if (id == meeting_.state().id) continue;
      doors.push_back(known.at(id).door);
      members.push_back(callers_.at(id).peer);
    }
    const Deadline begun = MachineClock::now();
    give_state(late, members, doors);
    meeting_.stand_still(MachineClock::now() - begun);  // it stood still for the others, too
    bool have_all = true;
    for (const auto& peer : late) {
      if (peer->has_state) continue;
      have_all = false;
      std::erase(joiners_, peer);
    }
    return have_all;
  }

  // Makes those processes have the state that can take it. The members at the `doors`, whose lines are
  // `members`, give it together. A process may take a chunk's time for a chunk, and ten times the meeting's
  // time for all. Where this member's own state fails, they are refused.
  void give_state(const PendingPeers& joiners, const PendingPeers& members,
                  const std::vector<Endpoint>& doors) {
    PendingPeers all = members;
    all.insert(all.end(), joiners.begin(), joiners.end());
    const auto kept = keep_waiting(all);
    const auto offered = context_.offer_state();
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
      const bool is_there = peer->line->say(Offer{doors}) &&
                            peer->line->send_bytes(layout, context_.chunk_time, context_.ending);
      if (is_there) pending.push_back({peer, begun});
    }
    const Deadline end = begun + kLongest * context_.limit;
    while (!pending.empty() && MachineClock::now() < end && !context_.ending.is_set()) {
      const Deadline now = MachineClock::now();
      std::erase_if(pending, [&](Progress& each) { return !each.listen(now, context_.chunk_time); });
      if (!pending.empty()) context_.ending.pause(kLook);
    }
  }

  // Brings the residuals together on all, if others than the base's members go on; and all promise that they
  // agree to no other view of this epoch, which a host may have decided and not sent when it freezes.
  Result<std::optional<ResidualShares>> share(const Proposal& proposal, const PendingPeers& joiners) {
    const int own = meeting_.state().id;
    meeting_.state().promised = proposal.view.epoch;
    const bool are_due = proposal.base && proposal.base->ids() != proposal.view.ids();
    const Ids owing = are_due ? proposal.base->ids() : Ids{};
    PeersByKey everybody;
    PeersByKey owe;
    PendingPeers waiting = joiners;
    for (const int id : proposal.chosen) {
      if (id == own) continue;
      const auto& peer = callers_.at(id).peer;
      everybody[id] = peer;
      waiting.push_back(peer);
      if (owing.contains(id)) owe[id] = peer;
    }
    for (std::size_t i = 0; i < joiners.size(); ++i) everybody[-1 - static_cast<int>(i)] = joiners[i];
    const Deadline begun = MachineClock::now();
    ResidualShares shares;
    Failures lost;
    {
      const auto kept = keep_waiting(waiting);
      std::tie(shares, lost) = collect_shares(owe, context_.ending);
      if (lost.empty()) {
        if (owing.contains(own)) {
          ASSIGN_OR_RETURN(shares[own], shared_state(context_.residuals));
        }
        lost = spread_shares(proposal.view.epoch, shares, everybody, context_.chunk_time, context_.ending);
      }
    }
    meeting_.stand_still(MachineClock::now() - begun);
    for (const auto& [key, error] : lost) {
      if (key < 0) {
        std::erase(joiners_, everybody.at(key));
      } else {
        callers_.erase(key);
        meeting_.probes().note(key, error);
      }
    }
    if (!lost.empty()) return std::nullopt;
    return std::optional(std::move(shares));
  }

  // Whoever is gone by now will be missing in the mesh. Nothing else is said on these lines.
  void send(const Agreement& agreement, const PendingPeers& joiners) {
    NextView next = agreement.next;
    int id = next.view.next_id - static_cast<int>(joiners.size());
    for (const auto& peer : joiners) {
      next.new_id = id++;
      peer->line->keep(std::nullopt);
      (void)peer->line->say(next);
    }
    next.new_id.reset();
    for (const auto& [caller_id, caller] : callers_) {
      caller.peer->line->keep(std::nullopt);
      (void)caller.peer->line->say(next);
    }
    callers_.clear();
    joiners_.clear();
  }

  NextView next_view(const Proposal& proposal) const {
    NextView next;
    next.job = meeting_.state().job;
    next.view = proposal.view;
    next.base = proposal.base;
    next.steps = meeting_.state().steps;
    next.gone = proposal.gone;
    next.tensors = context_.tensors;
    next.opens = context_.opens;
    next.residual_kept = proposal.residual_kept;
    next.residual_lost = proposal.residual_lost;
    if (proposal.base && proposal.base->ids() != proposal.view.ids()) {
      next.shares.emplace();
      for (const int id : proposal.base->ids()) {
        if (proposal.chosen.contains(id)) next.shares->push_back(id);
      }
    }
    return next;
  }

  Meeting& meeting_;
  MeetingContext& context_;
  Deadline begun_at_;
  Left left_;  // as callers say
  std::map<int, Caller> callers_;
  PendingPeers joiners_;
};

}  // namespace deltawire::elastic
