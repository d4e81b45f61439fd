// The first bytes of a pull: whether the server counted the worker's pushes, and what follows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "deltawire/codec.h"
#include "deltawire/result.h"

namespace deltawire {

// What became of a worker's push of a step.
enum class Verdict : std::uint8_t { kLate = 0, kCounted = 1 };

// The head of a change is its Verdict's byte. The head of a whole part, which a server sends instead of
// several changes, is 2, the number of changes (u16, little-endian), and a verdict's byte for each.
inline constexpr std::size_t kWholeHeadBytes = 3;
inline constexpr std::size_t kVerdictsMax = 0xFFFF;

// Views of the message.
struct PullHead {
  bool is_whole = false;
  Bytes verdicts;  // one, or several of a whole part
  Bytes body;

  std::uint64_t steps() const noexcept { return verdicts.size(); }
  Verdict verdict(std::uint64_t at) const noexcept {
    return verdicts[at] == std::byte{0} ? Verdict::kLate : Verdict::kCounted;
  }
};

// Errors: kTruncated, kCorrupt for bytes that are neither head.
Result<PullHead> read_pull(Bytes pull);
std::vector<std::byte> pull_head(Verdict verdict);
// REQUIRES: 1 ... kVerdictsMax of them.
std::vector<std::byte> pull_head(const std::deque<Verdict>& verdicts);

}  // namespace deltawire
