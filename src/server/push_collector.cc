#include "server/push_collector.h"

#include <algorithm>
#include <string>

#include "deltawire/frame.h"

namespace deltawire {

MutBytes PushCollector::room(std::size_t worker, std::uint64_t bytes) {
  std::vector<std::byte>& memory = inboxes_[worker].memory;
  if (memory.size() < bytes) memory.resize(bytes);
  return memory;
}

bool PushCollector::is_awaited(std::size_t worker) const noexcept {
  const Inbox& inbox = inboxes_[worker];
  return !inbox.is_here && !inbox.is_closed && !workers_.is_dropped(worker);
}

Result<PushCollector::Arrival> PushCollector::arrive(std::size_t worker, std::uint64_t bytes,
                                                     std::optional<std::uint64_t> step) {
  Inbox& inbox = inboxes_[worker];
  inbox.bytes = bytes;
  if (bytes == 0) {
    inbox.is_closed = true;
    return Arrival::kClosed;
  }
  const Result<FrameReader> frame = FrameReader::open(Bytes(inbox.memory).first(bytes));
  if (!frame) return forward_error(frame);
  const std::uint64_t pushed = frame->header().message.step;
  if (step && pushed > *step) {
    return fail(ErrorCode::kMismatch,
                "it is for step " + std::to_string(pushed) + " in step " + std::to_string(*step));
  }
  inbox.is_here = step && pushed == *step;
  return inbox.is_here ? Arrival::kInTime : Arrival::kLate;
}

bool PushCollector::has_enough() const noexcept {
  std::size_t here = 0;
  for (std::size_t worker = 0; worker < inboxes_.size(); ++worker) {
    if (inboxes_[worker].is_here && !workers_.is_dropped(worker)) ++here;
  }
  return here >= workers_.needed();
}

bool PushCollector::may_have_enough() const noexcept {
  std::size_t coming = 0;
  for (std::size_t worker = 0; worker < inboxes_.size(); ++worker) {
    const Inbox& inbox = inboxes_[worker];
    if (!workers_.is_dropped(worker) && (inbox.is_here || !inbox.is_closed)) ++coming;
  }
  return coming >= workers_.needed();
}

std::optional<BadPush> PushCollector::average(const Decode& decode) {
  const float scale = 1.0F / static_cast<float>(std::ranges::count_if(inboxes_, &Inbox::is_here));
  Into into = Into::kOverwrite;
  for (std::size_t worker = 0; worker < inboxes_.size(); ++worker) {
    Inbox& inbox = inboxes_[worker];
    if (!inbox.is_here) continue;
    if (Status added = decode(worker, Bytes(inbox.memory).first(inbox.bytes), into, scale); !added) {
      inbox.is_here = false;
      return BadPush{worker, std::move(added.error())};
    }
    into = Into::kAccumulate;
  }
  return std::nullopt;
}

void PushCollector::end_step() noexcept {
  for (Inbox& inbox : inboxes_) inbox.has_counted = std::exchange(inbox.is_here, false);
}

}  // namespace deltawire
