#include "transport/mesh/control_stream.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace deltawire {
namespace {

constexpr std::size_t kUnsentMax = std::size_t{64} << 10;
// At most so much at once, and then a pause.
constexpr std::size_t kReadBytesMax = std::size_t{16} << 10;
constexpr std::chrono::milliseconds kReadPause{1};

bool may_be_dropped(const ControlMessage& message) noexcept {
  return std::holds_alternative<Waiting>(message) || std::holds_alternative<Here>(message);
}

}  // namespace

void ControlStream::send(const ControlMessage& message) {
  if (end_ != End::kOpen || send_broken_) return;
  if (may_be_dropped(message) && unsent_.size() > kUnsentMax) return;
  append_control_message(message, unsent_);
  flush();
}

void ControlStream::flush() noexcept {
  while (has_unsent()) {
    const iovec piece{unsent_.data(), unsent_.size()};
    const IoResult result = link_->send({&piece, 1});
    if (result.kind == IoResult::Kind::kWouldBlock) return;
    if (result.kind != IoResult::Kind::kOk) {
      // The reading side finds the end too, after the peer's last words; only then is it judged.
      send_broken_ = true;
      unsent_.clear();
      return;
    }
    unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(result.bytes));
  }
}

void ControlStream::receive(std::vector<ControlMessage>& messages) {
  std::array<std::byte, 2048> buffer;
  std::size_t left = kReadBytesMax;
  read_at_ = kNever;
  while (end_ == End::kOpen) {
    if (left == 0) {
      read_at_ = Clock::now() + kReadPause;
      return;
    }
    const IoResult result = link_->recv(buffer);
    if (result.kind == IoResult::Kind::kWouldBlock) return;
    if (result.kind != IoResult::Kind::kOk) {
      end_ = End::kClosed;
    } else if (!parser_.feed(Bytes(buffer).first(result.bytes), messages)) {
      end_ = End::kDamaged;
    } else if (result.bytes < buffer.size()) {
      return;
    }
    left -= std::min(left, result.bytes);
  }
}

}  // namespace deltawire
