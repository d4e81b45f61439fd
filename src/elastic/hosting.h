// The host of a meeting: it gathers the members that live, carries out what decide() says, and gives each
// what it needs.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "elastic/decision.h"
#include "elastic/meeting.h"

namespace deltawire::elastic {

// One attempt of one member to host a meeting.
class Hosting {
 public:
  explicit Hosting(Meeting& meeting)
      : meeting_(meeting), context_(meeting.context()), begun_at_(MachineClock::now()) {}

  // The agreement; nothing if a member with a lower id shall host.
  OrEnded<std::optional<Agreement>> host();

 private:
  struct Caller {
    std::shared_ptr<PendingPeer> peer;
    MemberState state;
  };

  OrEnded<std::optional<Agreement>> gather();
  void receive();
  std::size_t drop_who_hung_up();
  Attendance attendance() const;
  Left gone_by_will() const;
  void tell_all(const Message& message);
  // Nothing: some are gone meanwhile, so that it is to be decided anew.
  Result<std::optional<Agreement>> propose(const Proposal& proposal);
  // Gives the state to those that don't have it. Whether all have it.
  bool all_have_the_state(const PendingPeers& joiners, const Ids& chosen);
  // Brings the residuals together on all, if others than the base's members go on; and all promise that they
  // agree to no other view of this epoch, which a host may have decided and not sent when it freezes.
  Result<std::optional<ResidualShares>> share(const Proposal& proposal, const PendingPeers& joiners);
  void send(const Agreement& agreement, const PendingPeers& joiners);
  NextView next_view(const Proposal& proposal) const;

  Meeting& meeting_;
  MeetingContext& context_;
  Deadline begun_at_;
  Left left_;  // as callers say
  std::map<int, Caller> callers_;
  PendingPeers joiners_;
};

// Makes those processes have the state that can take it. The members at the `doors`, whose lines are
// `members`, give it together. A process may take a chunk's time for a chunk, and ten times the meeting's
// time for all. Where this member's own state fails, they are refused.
void give_state(MeetingContext& context, const PendingPeers& joiners, const PendingPeers& members,
                const std::vector<Endpoint>& doors);

}  // namespace deltawire::elastic
