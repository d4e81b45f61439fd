#include "reduce/vote.h"

#include <algorithm>
#include <cassert>
#include <span>
#include <string>
#include <utility>

#include "base/errors.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

tl::unexpected<Error> name_the_odd(std::span<const Ballot> ballots, const Step& step,
                                   const RankNames& names) {
  assert(ballots.size() > 1);
  // The most frequent digest is taken for the right one; with a tie, the one of the lowest rank.
  Ballot right = ballots[0];
  std::ptrdiff_t most = 0;
  for (const Ballot& ballot : ballots) {
    const auto votes = std::ranges::count(ballots, ballot);
    if (votes > most) {
      most = votes;
      right = ballot;
    }
  }
  Error error{.code = ErrorCode::kMismatch};
  for (std::size_t i = 0; i < ballots.size(); ++i) {
    if (ballots[i] == right) continue;
    const auto rank = static_cast<int>(i);
    if (ballots[i].step != right.step) {
      return mismatch(names.of(rank) + " votes on another step than the rest", rank);
    }
    error.ranks.push_back(rank);
  }
  error.suspect = error.ranks.front();
  const bool one = error.ranks.size() == 1;
  error.message = "the replicas differ after this step: " + names.of(error.ranks);
  error.message += one ? " holds" : " hold";
  if (step.agreed == 0) {
    error.message += " other means than the rest";
    error.advice = "restart from a checkpoint and check their memory";
  } else {
    error.message += " other means, or began the step with other weights, than the rest";
    error.advice = "were all ranks given the same seed or checkpoint?";
  }
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace

Status vote(const Step& step, std::uint64_t digest, Transport& transport, Deadline deadline) {
  // A rank votes for the means, and for what the caller says must be alike as well.
  if (step.agreed != 0) digest = digest64(std::as_bytes(std::span(&step.agreed, 1)), digest);
  ASSIGN_OR_RETURN(const auto ballots, transport.vote({step.number, digest}, deadline));
  const auto differs = [&](const Ballot& ballot) { return ballot != ballots.front(); };
  if (std::ranges::any_of(ballots, differs)) return name_the_odd(ballots, step, transport.names());
  return {};
}

void say_which_step_stands(Error& error, const Transport& transport) {
  const LastCommit commit = transport.last_commit();
  error.last_committed_step = commit.step;
  error.message += commit.step == kNoStep
                       ? "; no step of this session counts"
                       : "; step " + std::to_string(commit.step) + " counts on every rank that lives";
  if (!commit.unheard.empty()) {
    error.message += commit.step == kNoStep ? ", except perhaps on " : ", but perhaps not on ";
    error.message += transport.names().of(commit.unheard) + ", which could not be asked";
  }
}

}  // namespace deltawire
