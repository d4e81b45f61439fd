#include "server/pull_head.h"

#include <string>

#include "base/little_endian.h"

namespace deltawire {

Result<PullHead> read_pull(Bytes pull) {
  static constexpr std::byte kWhole{2};
  if (pull.empty()) return fail(ErrorCode::kTruncated, "a pull without its first byte");
  PullHead head{.verdicts = pull.first(1), .body = pull.subspan(1)};
  if (pull.front() == kWhole) {
    if (pull.size() < kWholeHeadBytes) return fail(ErrorCode::kTruncated, "a pull ends in its head");
    const std::size_t steps = load_le<std::uint16_t>(pull.data() + 1);
    if (steps > pull.size() - kWholeHeadBytes) return fail(ErrorCode::kTruncated, "a pull ends in its head");
    if (steps == 0) return fail(ErrorCode::kCorrupt, "a pull has the part as it is after no change");
    head = {.is_whole = true,
            .verdicts = pull.subspan(kWholeHeadBytes, steps),
            .body = pull.subspan(kWholeHeadBytes + steps)};
  }
  for (const std::byte byte : head.verdicts) {
    if (std::to_integer<std::uint8_t>(byte) > static_cast<std::uint8_t>(Verdict::kCounted)) {
      return fail(ErrorCode::kCorrupt, "the head of a pull has a byte " +
                                           std::to_string(std::to_integer<int>(byte)) + " for a verdict");
    }
  }
  return head;
}

std::vector<std::byte> pull_head(Verdict verdict) {
  return {static_cast<std::byte>(verdict)};
}

std::vector<std::byte> pull_head(const std::deque<Verdict>& verdicts) {
  std::vector<std::byte> head(kWholeHeadBytes, std::byte{2});
  store_le(head.data() + 1, static_cast<std::uint16_t>(verdicts.size()));
  for (const Verdict verdict : verdicts) head.push_back(static_cast<std::byte>(verdict));
  return head;
}

}  // namespace deltawire
