#include "server/message_heads.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "base/crc32c.h"
#include "base/little_endian.h"

namespace deltawire {

namespace {

constexpr std::size_t kVerdictsAt = 3;
static_assert(kVerdictsAt + sizeof(std::uint32_t) == pull_head_bytes(0));

tl::unexpected<Error> corrupt(const std::string& what) {
  return fail(ErrorCode::kCorrupt, "the head of a pull " + what);
}

std::vector<std::byte> write_head(PullKind kind, const std::deque<Verdict>& verdicts) {
  assert(!verdicts.empty() && verdicts.size() <= kVerdictsMax);
  std::vector<std::byte> head(pull_head_bytes(verdicts.size()));
  head[0] = static_cast<std::byte>(kind);
  store_le(head.data() + 1, static_cast<std::uint16_t>(verdicts.size()));
  std::ranges::transform(verdicts, head.begin() + kVerdictsAt,
                         [](Verdict verdict) { return static_cast<std::byte>(verdict); });
  const std::size_t checked = kVerdictsAt + verdicts.size();
  store_le(head.data() + checked, crc32c(Bytes(head).first(checked)));
  return head;
}

}  // namespace

Result<PullHead> read_pull(Bytes pull) {
  if (pull.size() < pull_head_bytes(0)) return fail(ErrorCode::kTruncated, "a pull ends in its head");
  const std::size_t steps = load_le<std::uint16_t>(pull.data() + 1);
  if (pull.size() < pull_head_bytes(steps)) return fail(ErrorCode::kTruncated, "a pull ends in its head");
  const std::size_t checked = kVerdictsAt + steps;
  if (load_le<std::uint32_t>(pull.data() + checked) != crc32c(pull.first(checked))) {
    return corrupt("has a wrong checksum; the bytes changed on the way");
  }
  const PullHead head{.kind = static_cast<PullKind>(pull.front()),
                      .verdicts = pull.subspan(kVerdictsAt, steps),
                      .body = pull.subspan(pull_head_bytes(steps))};
  if (head.kind != PullKind::kChange && head.kind != PullKind::kWhole) {
    return corrupt("begins with the byte " + std::to_string(std::to_integer<int>(pull.front())));
  }
  if (steps == 0 || (head.kind == PullKind::kChange && steps != 1)) {
    return corrupt("says that it is of " + std::to_string(steps) + " steps");
  }
  for (const std::byte byte : head.verdicts) {
    if (byte == std::byte{0} || byte == std::byte{1}) continue;
    return corrupt("has a byte " + std::to_string(std::to_integer<int>(byte)) + " for a verdict");
  }
  return head;
}

std::vector<std::byte> change_head(Verdict verdict) {
  return write_head(PullKind::kChange, {verdict});
}

std::vector<std::byte> whole_head(const std::deque<Verdict>& verdicts) {
  return write_head(PullKind::kWhole, verdicts);
}

namespace {

constexpr std::size_t kStepBytes = sizeof(std::uint64_t);
static_assert(is_skip(kStepBytes + sizeof(std::uint32_t)));

}  // namespace

SkipMessage skip_message(std::uint64_t step) noexcept {
  SkipMessage message;
  store_le(message.data(), step);
  store_le(message.data() + kStepBytes, crc32c(Bytes(message).first(kStepBytes)));
  return message;
}

Result<std::uint64_t> read_skip(Bytes message) {
  assert(is_skip(message.size()));
  if (load_le<std::uint32_t>(message.data() + kStepBytes) != crc32c(message.first(kStepBytes))) {
    return fail(ErrorCode::kCorrupt,
                "a step that is skipped has a wrong checksum; the bytes changed on the way");
  }
  return load_le<std::uint64_t>(message.data());
}

}  // namespace deltawire
