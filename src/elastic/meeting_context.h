// What a member needs at meetings besides its MemberState.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "deltawire/elastic.h"
#include "deltawire/tensor.h"
#include "elastic/messages.h"
#include "elastic/peer_line.h"
#include "elastic/reception.h"
#include "elastic/tasks.h"
#include "elastic/timing.h"

namespace deltawire::elastic {

// How members at a meeting bring their residuals together: the host collects a share of each, and gives
// everybody those of all others, before it says who goes on. So nobody waits in a mesh for one whose line is
// thin, and who dies meanwhile is in no view.

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

struct MeetingContext {
  MeetingContext(ElasticOptions given, std::string all_settings);

  // kAborted, once the session is closed or its opening interrupted.
  Status check_open(const char* meanwhile) const {
    if (ending.is_set()) return fail(ErrorCode::kAborted, std::string("the session was closed ") + meanwhile);
    return {};
  }
  // For the next mesh.
  Result<std::unique_ptr<Listener>> listen() const;
  // Offers what a process needs that joins; nothing: this member has nothing to give. kAborted, or the code
  // of the error, where `state` fails: that is the joiner's loss, not the job's.
  Result<std::shared_ptr<const StateSender>> offer_state();
  void log(const std::string& line) const {
    if (options.log) options.log(line);
  }

  ElasticOptions options;
  const std::string settings;        // all that must be equal on all members
  const Clock::duration limit;       // within which members meet
  const Clock::duration chunk_time;  // that a chunk of bytes may take
  Ending ending;                     // set when the session is closed
  const Caller caller;
  std::unique_ptr<Reception> reception;  // set before anything else is called
  std::vector<std::byte> residuals;      // after a failure: those of the last step
  std::vector<TensorShape> tensors;      // that were exchanged
  std::vector<TensorShape> opens;        // those of the open step
  // Agreement::lines, until a step shows that all are connected.
  std::vector<std::shared_ptr<PeerLine>> lines;
  Tasks probing;  // last: its threads use the caller
};

// The names and shapes of tensors, without their values.

TensorShape shape_of(const Named& tensor);
// In the shapes' memory. Without values.
std::vector<Named> as_named(std::span<const TensorShape> shapes);
// Appends it unless the list has one of its name.
void add_tensor(std::vector<TensorShape>& list, const TensorShape& tensor);
// In the place of the one of its name, or behind all.
void replace_tensor(std::vector<TensorShape>& list, const TensorShape& tensor);
// As first_difference takes them.
std::string lines_of(std::span<const TensorShape> list);

}  // namespace deltawire::elastic
