// What workers and servers tell each other besides frames: the first bytes of a pull, and that no push comes.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "deltawire/codec.h"
#include "deltawire/result.h"

namespace deltawire {

// What became of a worker's push of a step.
enum class Verdict : std::uint8_t { kLate = 0, kCounted = 1 };

// What follows the head.
enum class PullKind : std::uint8_t {
  kChange = 3,  // of one step
  kWhole = 4,   // the part as it is, instead of several changes
};

// The first bytes of a pull say whether the server counted the worker's pushes, and what follows. A head is
// its PullKind (u8), the number of steps (u16, little-endian), a verdict's byte for each of them, and the
// CRC-32C of these bytes (u32), because the frames behind it have checksums of their own alone.
inline constexpr std::size_t kVerdictsMax = 0xFFFF;
constexpr std::size_t pull_head_bytes(std::size_t verdicts) noexcept {
  return 3 + verdicts + 4;
}

// Views of the message.
struct PullHead {
  PullKind kind = PullKind::kChange;
  Bytes verdicts;  // one, or several of a whole part
  Bytes body;

  std::uint64_t steps() const noexcept { return verdicts.size(); }
  Verdict verdict(std::uint64_t at) const noexcept {
    assert(at < steps());
    return verdicts[at] == std::byte{0} ? Verdict::kLate : Verdict::kCounted;
  }
};

// Errors: kTruncated, kCorrupt for bytes that are not a head.
Result<PullHead> read_pull(Bytes pull);
std::vector<std::byte> change_head(Verdict verdict);
// Of 1 to kVerdictsMax of them.
std::vector<std::byte> whole_head(const std::deque<Verdict>& verdicts);

// A worker's word to a server that no push of it for a step will come, because other parts of its model have
// the step already: the step (u64, little-endian), and the CRC-32C of its bytes (u32). Any push is longer.
using SkipMessage = std::array<std::byte, 12>;

SkipMessage skip_message(std::uint64_t step) noexcept;
constexpr bool is_skip(std::uint64_t bytes) noexcept {
  return bytes == std::tuple_size_v<SkipMessage>;
}
// The step, of a message whose size is_skip. Errors: kCorrupt.
Result<std::uint64_t> read_skip(Bytes message);

}  // namespace deltawire
