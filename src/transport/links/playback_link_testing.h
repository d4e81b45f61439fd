// For tests of streams: a link that plays back bytes, a few at a time, and keeps what is sent.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "transport/links/link.h"

namespace deltawire {

class PlaybackLink : public Link {
 public:
  int fd() const noexcept override { return -1; }
  IoResult send(std::span<const iovec> pieces) noexcept override {
    const std::size_t before = sent.size();
    for (const iovec& piece : pieces) {
      const auto* bytes = static_cast<const std::byte*>(piece.iov_base);
      sent.insert(sent.end(), bytes, bytes + std::min(piece.iov_len, before + at_once - sent.size()));
    }
    return IoResult::moved(sent.size() - before);
  }
  IoResult recv(MutBytes into) noexcept override {
    ++reads;
    longest_read = std::max(longest_read, into.size());
    const std::size_t count = std::min({into.size(), left(), at_once});
    if (count == 0) return ended ? IoResult::closed() : IoResult::would_block();
    std::memcpy(into.data(), bytes_.data() + played_, count);
    played_ += count;
    return IoResult::moved(count);
  }
  bool delivered() noexcept override { return true; }

  void add(Bytes more) { bytes_.insert(bytes_.end(), more.begin(), more.end()); }
  void add(std::size_t count, std::byte value) { bytes_.resize(bytes_.size() + count, value); }
  // How many added bytes have not been read.
  std::size_t left() const noexcept { return bytes_.size() - played_; }

  std::size_t at_once = 1000;
  bool ended = false;
  std::vector<std::byte> sent;
  std::size_t reads = 0;
  std::size_t longest_read = 0;  // the largest size that was requested

 private:
  std::vector<std::byte> bytes_;
  std::size_t played_ = 0;
};

}  // namespace deltawire
