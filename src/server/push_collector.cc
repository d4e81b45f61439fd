#include "server/push_collector.h"

#include <algorithm>
#include <string>

#include "base/errors.h"
#include "deltawire/frame.h"

namespace deltawire {

MutBytes PushCollector::room(std::size_t worker, std::uint64_t bytes) {
  assert(!inboxes_[worker].is_here && inboxes_[worker].receive == Handle::kNone);
  std::vector<std::byte>& memory = inboxes_[worker].memory;
  if (memory.size() < bytes) memory.resize(bytes);
  return memory;
}

bool PushCollector::is_awaited(std::size_t worker) const noexcept {
  const Inbox& inbox = inboxes_[worker];
  return !inbox.is_here && !inbox.skips && !inbox.is_closed && !workers_.is_dropped(worker);
}

namespace {

// The step of what has come: a push, or the word that there is none.
Result<std::uint64_t> step_of(Bytes message) {
  if (is_skip(message.size())) return read_skip(message);
  ASSIGN_OR_RETURN(const FrameReader frame, FrameReader::open(message));
  return frame.header().message.step;
}

}  // namespace

Result<PushCollector::Arrival> PushCollector::arrive(std::size_t worker, std::uint64_t bytes,
                                                     std::optional<std::uint64_t> step) {
  Inbox& inbox = inboxes_[worker];
  assert(!inbox.is_here && !inbox.is_closed && bytes <= inbox.memory.size());
  inbox.bytes = bytes;
  if (bytes == 0) {
    inbox.is_closed = true;
    return Arrival::kClosed;
  }
  ASSIGN_OR_RETURN(const std::uint64_t pushed, step_of(Bytes(inbox.memory).first(bytes)));
  if (step && pushed > *step) {
    return mismatch("it is for step " + std::to_string(pushed) + " in step " + std::to_string(*step));
  }
  const bool is_in_time = step && pushed == *step;
  if (is_skip(bytes)) {
    inbox.skips = is_in_time;
    return Arrival::kSkips;
  }
  inbox.is_here = is_in_time;
  return is_in_time ? Arrival::kInTime : Arrival::kLate;
}

std::size_t PushCollector::waiting() const noexcept {
  std::size_t here = 0;
  for (std::size_t worker = 0; worker < inboxes_.size(); ++worker) {
    if (inboxes_[worker].is_here && !workers_.is_dropped(worker)) ++here;
  }
  return here;
}

std::size_t PushCollector::awaited() const noexcept {
  std::size_t awaited = 0;
  for (std::size_t worker = 0; worker < inboxes_.size(); ++worker) {
    if (is_awaited(worker)) ++awaited;
  }
  return awaited;
}

bool PushCollector::is_skipped() const noexcept {
  return std::ranges::any_of(inboxes_, &Inbox::skips);
}

bool PushCollector::has_enough() const noexcept {
  return waiting() >= workers_.needed() || (is_skipped() && awaited() == 0);
}

bool PushCollector::may_have_enough() const noexcept {
  return waiting() + awaited() >= workers_.needed() || is_skipped();
}

bool PushCollector::is_empty() const noexcept {
  return std::ranges::none_of(inboxes_, &Inbox::is_here);
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
  for (Inbox& inbox : inboxes_) {
    inbox.has_counted = std::exchange(inbox.is_here, false);
    inbox.skips = false;
  }
}

}  // namespace deltawire
