// One non-blocking byte stream to one peer. The engine moves messages over it, and decorators (a slow line, a
// broken line, a meter) wrap it.
//
// Thread rule: the engine calls links under its lock, except send() and recv() of an independent link
// (stands_alone()), each of which it may also call without the lock, from one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <poll.h>
#include <sys/uio.h>

#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire {

// No point in time: "never", or "when the descriptor is ready".
inline constexpr Deadline kNever = Deadline::max();

struct IoResult {
  enum class Kind : std::uint8_t {
    kOk,          // `bytes` > 0 were moved
    kWouldBlock,  // try again when fd() or send_fd() is ready or, if not kNever, at `retry_at`
    kClosed,      // end of stream, or reset by the peer
    kError,       // `error` is the errno
  };
  Kind kind = Kind::kOk;
  std::size_t bytes = 0;
  int error = 0;
  Deadline retry_at = kNever;

  static IoResult moved(std::size_t bytes) noexcept { return {Kind::kOk, bytes, 0, kNever}; }
  static IoResult would_block(Deadline retry_at = kNever) noexcept {
    return {Kind::kWouldBlock, 0, 0, retry_at};
  }
  static IoResult closed() noexcept { return {Kind::kClosed, 0, 0, kNever}; }
};

// Owns what the links of a mesh share, if anything. It outlives them, and its destructor ensures that the
// bytes they accepted are delivered.
class LinkHost {
 public:
  virtual ~LinkHost() = default;
  // Transport::shared_areas.
  virtual SharedAreas* shared_areas() noexcept { return nullptr; }
};

class Link {
 public:
  // More pieces than this are never handed to one send().
  static constexpr std::size_t kMaxPieces = 16;

  virtual ~Link() = default;

  // Readable when recv() may have something.
  virtual int fd() const noexcept = 0;

  // Writable when send() may take something: for a socket, the same descriptor.
  virtual int send_fd() const noexcept { return fd(); }
  // What to poll it for.
  virtual short send_events() const noexcept { return POLLOUT; }

  // Sends a prefix of the pieces. REQUIRES: at most kMaxPieces, at least one byte.
  virtual IoResult send(std::span<const iovec> pieces) noexcept = 0;
  // A prefix of one piece.
  IoResult send_bytes(Bytes bytes) noexcept {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};  // sending only reads
    return send({&piece, 1});
  }

  // Receives into a prefix of `into`. REQUIRES: not empty.
  virtual IoResult recv(MutBytes into) noexcept = 0;

  // Whether sending, receiving, and other links can run concurrently without the engine's lock.
  virtual bool stands_alone() const noexcept { return false; }

  // Moves bytes that the link itself holds back. Returns when it needs to be called again; kNever if it holds
  // nothing.
  virtual Deadline pump() noexcept { return kNever; }

  // Whether recv() may have something although fd() is not readable: the link has taken it from there
  // already.
  virtual bool holds_received() const noexcept { return false; }

  // Whether closing now can't lose bytes that were sent.
  virtual bool delivered() noexcept = 0;

  // How many of the sent bytes the peer's machine has not acknowledged; 0 if that is unknown.
  virtual std::size_t unacknowledged() noexcept { return 0; }

  virtual LineState state() const noexcept { return {}; }
};

// A link that passes everything on to the one it wraps; decorators override what they change.
class LinkDecorator : public Link {
 public:
  explicit LinkDecorator(std::unique_ptr<Link> inner) noexcept : inner_(std::move(inner)) {}

  int fd() const noexcept override { return inner_->fd(); }
  int send_fd() const noexcept override { return inner_->send_fd(); }
  short send_events() const noexcept override { return inner_->send_events(); }
  IoResult send(std::span<const iovec> pieces) noexcept override { return inner_->send(pieces); }
  IoResult recv(MutBytes into) noexcept override { return inner_->recv(into); }
  Deadline pump() noexcept override { return inner_->pump(); }
  bool holds_received() const noexcept override { return inner_->holds_received(); }
  bool delivered() noexcept override { return inner_->delivered(); }
  std::size_t unacknowledged() noexcept override { return inner_->unacknowledged(); }
  LineState state() const noexcept override { return inner_->state(); }

 protected:
  Link& inner() noexcept { return *inner_; }

 private:
  std::unique_ptr<Link> inner_;
};

inline std::size_t total_bytes(std::span<const iovec> pieces) noexcept {
  std::size_t total = 0;
  for (const iovec& piece : pieces) total += piece.iov_len;
  return total;
}

// Hands out the bytes of some pieces in order.
class PieceReader {
 public:
  explicit PieceReader(std::span<const iovec> pieces) noexcept : pieces_(pieces) { skip_read(); }

  bool empty() const noexcept { return pieces_.empty(); }
  // Whether the next bytes are the last piece's.
  bool is_last() const noexcept { return pieces_.size() == 1; }
  // How many lie together. REQUIRES, here and below: not empty.
  std::size_t rest() const noexcept { return pieces_.front().iov_len - read_; }
  // The next bytes, at most so many, as far as they lie together.
  Bytes next(std::size_t most) noexcept {
    const Bytes part(static_cast<const std::byte*>(pieces_.front().iov_base) + read_, std::min(most, rest()));
    read_ += part.size();
    skip_read();
    return part;
  }

 private:
  void skip_read() noexcept {
    for (; !pieces_.empty() && rest() == 0; read_ = 0) pieces_ = pieces_.subspan(1);
  }

  std::span<const iovec> pieces_;
  std::size_t read_ = 0;  // of the first piece
};

// The first `limit` bytes of some pieces.
class ClippedPieces {
 public:
  ClippedPieces(std::span<const iovec> pieces, std::size_t limit) noexcept {
    for (const iovec& piece : pieces) {
      if (limit == 0 || count_ == pieces_.size()) break;
      const std::size_t length = piece.iov_len < limit ? piece.iov_len : limit;
      pieces_[count_++] = iovec{piece.iov_base, length};
      limit -= length;
    }
  }
  std::span<const iovec> span() const noexcept { return {pieces_.data(), count_}; }

 private:
  std::array<iovec, Link::kMaxPieces> pieces_{};
  std::size_t count_ = 0;
};

}  // namespace deltawire
