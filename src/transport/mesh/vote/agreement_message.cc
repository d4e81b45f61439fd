#include "transport/mesh/vote/agreement_message.h"

#include <cassert>

namespace deltawire {

void Knowledge::add(int voter, const Ballot& cast) noexcept {
  Knowledge one{decided, RankSet(voters), cast};
  one.voters.add(voter);
  merge(one);
}

// The side that knows of more decided ballots knows more: votes on an older ballot are obsolete.
void Knowledge::merge(const Knowledge& other) noexcept {
  if (other.decided < decided) return;
  if (other.decided > decided) {
    *this = other;
    return;
  }
  if (other.voters.count() > 0) {
    split = split || (voters.count() > 0 && ballot != other.ballot);
    ballot = other.ballot;
    voters.add(other.voters);
  }
}

std::uint64_t Knowledge::verdict(int world_size) const noexcept {
  assert(voters.count() <= world_size);
  return !split && voters.count() == world_size ? decided + 1 : decided;
}

}  // namespace deltawire
