#include "reduce/vote.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/little_endian.h"

namespace deltawire {
namespace {

constexpr std::size_t kVoteBytes = 24;  // u64 step, u64 digest, u32 epoch, u32 zero
using VoteBytes = std::array<std::byte, kVoteBytes>;

VoteBytes make_vote(const Step& step, std::uint64_t digest) noexcept {
  VoteBytes out{};
  store_le<std::uint64_t>(out.data(), step.number);
  store_le<std::uint64_t>(out.data() + 8, digest);
  store_le<std::uint32_t>(out.data() + 16, step.epoch);
  return out;
}

Status compare(const std::vector<std::uint64_t>& digests) {
  const std::uint64_t reference = digests[0];
  if (std::all_of(digests.begin(), digests.end(), [&](std::uint64_t d) { return d == reference; })) return {};
  // The most frequent digest is taken for the right one; with a tie, the one of the lower rank.
  std::uint64_t right = reference;
  std::ptrdiff_t most = 0;
  for (const std::uint64_t digest : digests) {
    const auto votes = std::count(digests.begin(), digests.end(), digest);
    if (votes > most) {
      most = votes;
      right = digest;
    }
  }
  std::string odd;
  int suspect = kNoSuspect;
  for (std::size_t rank = 0; rank < digests.size(); ++rank) {
    if (digests[rank] == right) continue;
    if (suspect == kNoSuspect) suspect = static_cast<int>(rank);
    odd += (odd.empty() ? "" : ", ") + std::to_string(rank);
  }
  return fail(ErrorCode::kMismatch,
              "the replicas differ after this step: rank(s) " + odd +
                  " hold other means than the rest; restart from a checkpoint and check their memory",
              suspect);
}

}  // namespace

Status vote(const Step& step, std::uint64_t digest, Transport& transport, Deadline deadline) {
  const auto world = static_cast<std::size_t>(transport.world_size());
  const auto self = static_cast<std::size_t>(transport.rank());
  const VoteBytes mine = make_vote(step, digest);
  std::vector<VoteBytes> theirs(world);
  std::vector<Handle> handles;
  for (std::size_t peer = 0; peer < world; ++peer) {
    if (peer == self) continue;
    const Bytes piece(mine);
    const auto to = static_cast<int>(peer);
    handles.push_back(transport.post_recv(to, tag_of(step, kVoteSlice), theirs[peer]));
    handles.push_back(transport.post_send(to, tag_of(step, kVoteSlice), std::span(&piece, 1)));
  }
  Status result;
  for (const Handle handle : handles) {
    // All are waited for even after an error: the buffers are on this stack.
    const Result<std::uint64_t> moved = transport.wait(handle, deadline);
    if (!moved && result) result = forward_error(moved);
    if (moved && *moved != kVoteBytes && result) {
      result = fail(ErrorCode::kCorrupt, "a vote has " + std::to_string(*moved) + " bytes instead of 24");
    }
  }
  if (!result) return result;
  std::vector<std::uint64_t> digests(world, digest);
  for (std::size_t peer = 0; peer < world; ++peer) {
    if (peer == self) continue;
    if (load_le<std::uint64_t>(theirs[peer].data()) != step.number ||
        load_le<std::uint32_t>(theirs[peer].data() + 16) != step.epoch) {
      return fail(ErrorCode::kMismatch, "rank " + std::to_string(peer) + " votes on another step",
                  static_cast<int>(peer));
    }
    digests[peer] = load_le<std::uint64_t>(theirs[peer].data() + 8);
  }
  return compare(digests);
}

}  // namespace deltawire
