#include "reduce/vote.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/hashes.h"

namespace deltawire {
namespace {

// What a rank votes for: the means, and what the caller says must be alike as well.
Ballot ballot_of(const Step& step, std::uint64_t digest) {
  if (step.agreed == 0) return {step.number, digest};
  return {step.number, digest64(std::as_bytes(std::span(&step.agreed, 1)), digest)};
}

tl::unexpected<Error> name_the_odd(std::span<const Ballot> ballots, const Step& step) {
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
  std::string odd;
  int suspect = kNoSuspect;
  for (std::size_t rank = 0; rank < ballots.size(); ++rank) {
    if (ballots[rank] == right) continue;
    if (ballots[rank].step != right.step) {
      return fail(ErrorCode::kMismatch,
                  "rank " + std::to_string(rank) + " votes on another step than the rest",
                  static_cast<int>(rank));
    }
    if (suspect == kNoSuspect) suspect = static_cast<int>(rank);
    odd += (odd.empty() ? "" : ", ") + std::to_string(rank);
  }
  const std::string_view what =
      step.agreed == 0 ? "hold other means than the rest; restart from a checkpoint and check their memory"
                       : "hold other means, or began the step with other weights; were all ranks given the "
                         "same seed or checkpoint?";
  return fail(ErrorCode::kMismatch,
              "the replicas differ after this step: rank(s) " + odd + " " + std::string(what), suspect);
}

std::string list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

Status vote(const Step& step, std::uint64_t digest, Transport& transport, Deadline deadline) {
  const Result<std::span<const Ballot>> ballots = transport.vote(ballot_of(step, digest), deadline);
  if (!ballots) return forward_error(ballots);
  const auto differs = [&](const Ballot& ballot) { return ballot != ballots->front(); };
  if (std::ranges::any_of(*ballots, differs)) return name_the_odd(*ballots, step);
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
    error.message += list(commit.unheard) + ", which could not be asked";
  }
}

}  // namespace deltawire
