// What the host of a meeting does next: a function of what it knows, without clock or socket. `Hosting`
// carries it out.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/transport.h"
#include "elastic/messages.h"

namespace deltawire::elastic {

// What was found out about a member that has not come.
struct Finding {
  std::optional<Place> place;  // it answers, from there
  std::string gone;            // or why it is gone

  bool is_gone() const { return !place; }
};

// Whether a member that was found so runs in a later view without this one.
bool is_left_out(const Finding& found, const MemberState& own);

struct MeetingTime {
  Clock::duration passed{};   // of the meeting
  Clock::duration attempt{};  // since this member began to host
  Clock::duration limit{};    // of the meeting
};

// What the host knows.
struct Attendance {
  MemberState own;
  std::map<int, MemberState> callers;
  std::vector<Endpoint> joiners;    // doors of processes that want to join
  Left left;                        // members that have left, and why
  std::map<int, Finding> findings;  // by probes
  Ids given_up;                     // members that this one has waited for in vain
  std::optional<int> at_least;      // ElasticOptions::at_least

  // The callers, and itself; of this object.
  std::map<int, const MemberState*> states() const;
  // Members of all views that it has heard of.
  std::map<int, Member> known() const;
  // Those of them that have neither come nor left: who is to be probed.
  std::vector<Member> absent() const;
};

struct Proposal {
  View view;
  std::optional<View> base;
  Ids chosen;                // members of it that are not new
  std::size_t joiners = 0;   // the first so many join
  Ids turned_away;           // callers that are not in it
  Left gone;                 // members of the base that are not in it
  double residual_kept = 0;  // as in ElasticEvent
  double residual_lost = 0;
};

struct Decision {
  enum class Kind {
    kWait,      // for more to come
    kYield,     // to a member with a lower id that is there, or that others can reach
    kExcluded,  // `epoch`, `why`: the others went on
    kPropose,   // `proposal`
    kGiveUp,    // the time is over; `why`
  };
  Kind kind = Kind::kWait;
  std::string why{};
  std::optional<std::uint32_t> epoch{};
  Proposal proposal{};
};

Decision decide(const Attendance& attendance, const MeetingTime& time);

// "the members did not agree ..."
std::string out_of_time(Clock::duration limit);

}  // namespace deltawire::elastic
