// For tests of TLS: two links joined in memory, whose bytes a test may hold back, change or record on the
// way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "transport/links/link.h"

namespace deltawire::test {

// One direction.
struct Lane {
  std::vector<std::byte> carried;  // everything ever sent, as it arrives
  std::size_t read = 0;
  std::size_t at_once = std::numeric_limits<std::size_t>::max();  // of one call
  std::size_t room = std::numeric_limits<std::size_t>::max();     // unread bytes at most
  std::size_t cut_at = std::numeric_limits<std::size_t>::max();   // the stream ends after so many bytes
  bool ended = false;                                             // the sender is gone
  std::function<void(std::size_t at, std::byte& byte)> on_byte;
  std::size_t writes = 0;

  std::size_t unread() const noexcept { return carried.size() - read; }
  void put(Bytes bytes) {
    for (std::byte byte : bytes) {
      if (on_byte) on_byte(carried.size(), byte);
      carried.push_back(byte);
    }
  }
};

class WireEnd final : public Link {
 public:
  WireEnd(std::shared_ptr<Lane> out, std::shared_ptr<Lane> in) noexcept
      : out_(std::move(out)), in_(std::move(in)) {}
  ~WireEnd() override { out_->ended = true; }

  int fd() const noexcept override { return -1; }
  IoResult send(std::span<const iovec> pieces) noexcept override {
    const std::size_t room = std::min(out_->at_once, out_->room - std::min(out_->room, out_->unread()));
    if (room == 0) return IoResult::would_block();
    ++out_->writes;
    std::size_t sent = 0;
    for (const iovec& piece : pieces) {
      const std::size_t count = std::min(piece.iov_len, room - sent);
      out_->put(Bytes(static_cast<const std::byte*>(piece.iov_base), count));
      sent += count;
    }
    return IoResult::moved(sent);
  }
  IoResult recv(MutBytes into) noexcept override {
    const std::size_t limit = std::min(in_->cut_at, in_->carried.size());
    const std::size_t count = std::min({into.size(), limit - std::min(limit, in_->read), in_->at_once});
    if (count == 0) {
      const bool over = in_->read >= in_->cut_at || in_->ended;
      return over ? IoResult::closed() : IoResult::would_block();
    }
    std::memcpy(into.data(), in_->carried.data() + in_->read, count);
    in_->read += count;
    return IoResult::moved(count);
  }
  bool stands_alone() const noexcept override { return true; }
  bool delivered() noexcept override { return true; }
  std::size_t unacknowledged() noexcept override { return out_->unread(); }

 private:
  std::shared_ptr<Lane> out_;
  std::shared_ptr<Lane> in_;
};

}  // namespace deltawire::test
