// The messages between the doors of an elastic session (docs/reference/elastic-messages.md): their bytes, and
// a decoder that trusts none of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "deltawire/connect.h"
#include "deltawire/elastic.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire::elastic {

// Who is in an elastic session: views, and when a set of members may go on. Values alone: no clock, no
// socket.

inline constexpr std::size_t kMembersMax = 4096;

using Member = ElasticMember;
using Ids = std::set<int>;

// The members of an epoch.
struct View {
  std::uint32_t epoch = 0;      // grows with each view; no two views have the same
  std::vector<Member> members;  // in the order of their ids, which is that of their ranks
  int next_id = 0;              // of the next process that joins

  Ids ids() const;
  std::optional<int> rank_of(int id) const;
  bool has(int id) const { return rank_of(id).has_value(); }
  // Whether there is a member, ids grow, and all are below next_id.
  bool is_consistent() const;

  bool operator==(const View&) const = default;
};

// What a member brings to a meeting.
struct MemberState {
  std::uint64_t job = 0;  // random; tells jobs with one token apart
  int id = 0;
  std::optional<View> base;  // the last view that committed a step, or that the job began with; nothing for a
                             // member that has joined since
  std::vector<View> tried;   // that it has agreed to since, in order
  std::uint64_t steps = 0;   // committed
  std::uint32_t promised = 0;  // the highest epoch that a host has proposed to it
  Ids blamed;                  // members that it could not connect to, time and again
  double residual = 0;         // the square of the L2 norm of its residuals

  // Those that the next view needs a quorum of, in this object. Never empty for a member that was in a view.
  std::vector<const View*> views() const;
  // The highest epoch of them.
  std::uint32_t latest_epoch() const;
  // All members of them.
  std::map<int, Member> known() const;

  bool operator==(const MemberState&) const = default;
};

// Whether these members may form the next view, so that no others can, too. They need more than half of the
// last view that committed a step, and of each view that any of them has tried to form since; or exactly
// half, with the lowest id. Members that left by their own will (`left`) don't count: they go on nowhere.
bool may_go_on(const Ids& present, std::span<const View> views, const Ids& left);

// The members of whom no two have failed to connect to each other: of such a pair, the one with the higher id
// goes.
Ids without_quarrels(const Ids& ids, const std::set<std::pair<int, int>>& quarrels);

inline constexpr std::uint8_t kMessageVersion = 1;
inline constexpr std::size_t kMessageMax = std::size_t{1} << 20;  // bytes

using Digest = std::array<std::byte, 32>;  // SHA-256
using Left = std::map<int, std::string>;   // who has left, by id, and why

// fields() of a message names them all, in the order of their bytes; of those that are checked messages.cc
// does.

struct TensorShape {
  std::string name;
  std::vector<std::uint64_t> dims;

  bool operator==(const TensorShape&) const = default;
};

// A message without fields.
struct KindAlone {
  void fields(auto& /*archive*/) {}
  bool operator==(const KindAlone&) const = default;
};

// Asks a door who is there.
struct Probe : KindAlone {};
// The place of a process in a job.
struct Place {
  std::uint64_t job = 0;
  int id = 0;
  bool meets = false;  // it looks for the next view
  View view;           // that it runs in; of a process that still connects, the one before

  void fields(auto& archive) { archive(job, id, meets, view); }
  bool operator==(const Place&) const = default;
};
struct Here {
  std::optional<Place> place;  // nothing: in no view yet

  void fields(auto& archive) { archive(place); }
  bool operator==(const Here&) const = default;
};
// A rank that the session begins with comes to rank 0.
struct Found {
  int rank = 0;
  int world_size = 0;
  Endpoint address;  // of its door
  std::string settings;

  void fields(auto& archive) { archive(rank, world_size, address, settings); }
  bool operator==(const Found&) const = default;
};
struct Join {
  Endpoint address;
  std::string settings;

  void fields(auto& archive) { archive(address, settings); }
  bool operator==(const Join&) const = default;
};
struct Meet {
  MemberState state;
  Left left;  // of the members of its views

  void fields(auto& archive) { archive(state, left); }
  bool operator==(const Meet&) const = default;
};
// The caller's turn comes. `hosted`: this process hosts the meeting, and says itself when it gives up.
struct Wait {
  bool hosted = false;

  void fields(auto& archive) { archive(hosted); }
  bool operator==(const Wait&) const = default;
};
// States are in transfer, so the meeting's clock stands still.
struct Moves : KindAlone {};
// Call at that door instead.
struct Elsewhere {
  Endpoint address;

  void fields(auto& archive) { archive(address); }
  bool operator==(const Elsewhere&) const = default;
};
// Look for the host anew.
struct Again : KindAlone {};
struct Refused {
  ErrorCode code = ErrorCode::kMismatch;
  std::string why;

  void fields(auto& archive) { archive(code, why); }
  bool operator==(const Refused&) const = default;
};
// The others went on without the receiver.
struct Excluded {
  std::optional<std::uint32_t> epoch;
  std::string why;

  void fields(auto& archive) { archive(epoch, why); }
  bool operator==(const Excluded&) const = default;
};
// The host gives up, for want of a quorum.
struct Alone {
  std::string why;

  void fields(auto& archive) { archive(why); }
  bool operator==(const Alone&) const = default;
};
// To a process that joins: the state follows, as a plan; take its chunks at these doors. To a member: give
// yours.
struct Offer {
  std::vector<Endpoint> doors;

  void fields(auto& archive) { archive(doors); }
  bool operator==(const Offer&) const = default;
};
// Send your share of the residuals.
struct AskShare : KindAlone {};
// The shares of these members follow, for a view of that epoch.
struct Shares {
  std::uint32_t epoch = 0;
  std::vector<int> ids;

  bool operator==(const Shares&) const = default;
};
// The sender has them, and will take part in no other view of that epoch.
struct HasShares : KindAlone {};
// The next view, and what its members need to begin in it.
struct NextView {
  std::uint64_t job = 0;
  View view;
  std::optional<View> base;                // whose states the shares are; nothing where there are none
  Endpoint meeting_place;                  // where rank 0 of the view listens for the mesh
  std::uint64_t steps = 0;                 // committed
  Left gone;                               // members of the base that don't go on
  std::vector<TensorShape> tensors;        // all that the job has exchanged
  std::vector<TensorShape> opens;          // those of the step that is repeated, in order
  std::optional<std::vector<int>> shares;  // whose shares its members have; nothing if nobody left or joined
  double residual_kept = 0;                // as in ElasticEvent
  double residual_lost = 0;
  std::optional<int> new_id;  // of the receiver, if it joins

  bool operator==(const NextView&) const = default;
};
// Asks for a chunk of the state.
struct Take {
  Digest digest{};

  void fields(auto& archive) { archive(digest); }
  bool operator==(const Take&) const = default;
};
// It follows.
struct Gives : KindAlone {};
struct Lacks : KindAlone {};
// How many chunks the sender has taken.
struct Taken {
  std::uint64_t chunks = 0;

  void fields(auto& archive) { archive(chunks); }
  bool operator==(const Taken&) const = default;
};
// It has the whole state.
struct Ready : KindAlone {};
// The sender leaves.
struct Leaves {
  std::uint64_t job = 0;
  int id = 0;
  std::string why;

  void fields(auto& archive) { archive(job, id, why); }
  bool operator==(const Leaves&) const = default;
};
struct Heard : KindAlone {};
// So many bytes follow, in messages of their own.
struct BytesHead {
  std::uint64_t count = 0;
  Digest digest{};

  void fields(auto& archive) { archive(count, digest); }
  bool operator==(const BytesHead&) const = default;
};

// A message's kind is its place here, from 1 on.
using Message = std::variant<Refused, Probe, Here, Found, Join, Meet, Wait, Moves, Elsewhere, Again, Excluded,
                             Alone, Offer, AskShare, Shares, HasShares, NextView, Take, Gives, Lacks, Taken,
                             Ready, Leaves, Heard, BytesHead>;

std::vector<std::byte> encode(const Message& message);
// Errors: kCorrupt; kMismatch, of another version, which it names; both say that another process sent it.
Result<Message> decode(Bytes bytes);

// What a state is made of, as bytes of their own. The same errors.
struct StateRow {
  std::string name;
  std::string kind;
  std::uint32_t element_bytes = 0;
  std::vector<std::uint64_t> dims;

  bool operator==(const StateRow&) const = default;
};
struct StateLayout {
  std::vector<StateRow> rows;
  std::uint64_t chunk_bytes = 0;
  std::vector<Digest> digests;  // of the chunks, in order

  void fields(auto& archive) { archive(rows, chunk_bytes, digests); }
  bool operator==(const StateLayout&) const = default;
};
std::vector<std::byte> encode(const StateLayout& layout);
Result<StateLayout> decode_layout(Bytes bytes);

}  // namespace deltawire::elastic
