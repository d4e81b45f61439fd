#include "transport/mesh/peers.h"

#include <algorithm>

#include "transport/process/machine.h"

namespace deltawire {
namespace {

constexpr std::size_t kUnsentMax = std::size_t{64} << 10;
// At most this much is read at once; then comes a pause.
constexpr std::size_t kReadBytesMax = std::size_t{16} << 10;
constexpr std::chrono::milliseconds kReadPause{1};

}  // namespace

void ControlStream::send(const ControlMessage& message) {
  if (!may_send()) return;
  const bool may_be_dropped =
      std::holds_alternative<Waiting>(message) || std::holds_alternative<Here>(message);
  if (may_be_dropped && unsent_.size() > kUnsentMax) return;
  append_control_message(message, parser_.world_size(), unsent_);
  flush();
}

void ControlStream::send_encoded(Bytes messages) noexcept {
  if (!may_send()) return;
  assert(messages.size() <= unsent_.capacity() - unsent_.size());
  unsent_.insert(unsent_.end(), messages.begin(), messages.end());
  flush();
}

void ControlStream::flush() noexcept {
  while (has_unsent()) {
    const IoResult result = link_->send_bytes(unsent_);
    if (result.kind == IoResult::Kind::kWouldBlock) return;
    if (result.kind != IoResult::Kind::kOk) {
      // The reading side finds the end, too, after the peer's last messages; only then is it judged.
      send_broken_ = true;
      unsent_.clear();
      return;
    }
    assert(result.bytes > 0 && result.bytes <= unsent_.size());
    traffic_.bytes_sent += result.bytes;
    unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(result.bytes));
  }
}

void ControlStream::watch(Deadline now) noexcept {
  if (unacknowledged_for(now) > Clock::duration{0}) return;
  watched_bytes_ = traffic_.bytes_sent + unsent_.size();
  watched_since_ = now;
}

Clock::duration ControlStream::unacknowledged_for(Deadline now) noexcept {
  if (watched_since_ == kNever) return {};
  if (traffic_.bytes_sent < watched_bytes_ + link_->unacknowledged()) return now - watched_since_;
  watched_since_ = kNever;
  return {};
}

void ControlStream::begin_reading() noexcept {
  may_read_ = kReadBytesMax;
  read_at_ = kNever;
}

const ControlMessage* ControlStream::front() {
  while (!front_ && end_ == End::kOpen) {
    front_ = parser_.next(unparsed_);
    if (front_) break;
    if (parser_.damaged()) {
      end_ = End::kDamaged;
    } else if (!read()) {
      return nullptr;
    }
  }
  return front_ ? &*front_ : nullptr;
}

// False: there is nothing more to read now.
bool ControlStream::read() {
  if (may_read_ == 0) return false;
  const IoResult result = link_->recv(buffer_);
  if (result.kind == IoResult::Kind::kWouldBlock) return false;
  if (result.kind != IoResult::Kind::kOk) {
    end_ = End::kClosed;
    error_ = result.error;
    return false;
  }
  assert(unparsed_.empty() && result.bytes <= buffer_.size());
  traffic_.bytes_received += result.bytes;
  unparsed_ = Bytes(buffer_).first(result.bytes);
  const bool emptied = result.bytes < buffer_.size();
  may_read_ = emptied ? 0 : may_read_ - std::min(may_read_, result.bytes);
  if (!emptied && may_read_ == 0) postpone();
  return true;
}

void ControlStream::postpone() noexcept {
  read_at_ = MachineClock::now() + kReadPause;
}

}  // namespace deltawire
