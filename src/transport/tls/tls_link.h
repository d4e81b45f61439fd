// A link through TLS: what it sends can't be read, changed, repeated or continued on the way.
//
// Bytes count as sent once their whole record is in the inner link, so that the engine's poll for room and
// its farewell work as with a plain socket; what is left of a batch goes first in the next send().
//
// Thread rule: as for an independent link; a lock inside serializes the two directions, which share OpenSSL's
// state.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "transport/links/link.h"
#include "transport/tls/tls_context.h"

struct ssl_st;
struct bio_st;

namespace deltawire {

class TlsLink final : public LinkDecorator {
 public:
  enum class Role : std::uint8_t { kClient, kServer };
  enum class Progress : std::uint8_t { kMore, kDone, kFailed };
  // How the connection ended, or why it never began.
  enum class End : std::uint8_t {
    kNone,
    kClosed,      // the peer said that it closes
    kCut,         // the stream ended without that
    kOtherToken,  // the handshake: the two ends have different keys
    kNotTls,      // the handshake: the other end speaks something else
    kAltered,     // bytes of a record were changed, left out or repeated on the way
    kFailed,      // another error of TLS or of the inner link
  };

  // `inner` stands alone. May throw std::bad_alloc.
  TlsLink(std::shared_ptr<const TlsContext> context, Role role, std::unique_ptr<Link> inner);
  // Tells the peer that the stream ends here, if its socket has room.
  ~TlsLink() override;

  // Continues the handshake. kDone: both ends have the same key, and nothing is left to be sent; before that
  // neither send() nor recv() may be called.
  Progress shake_hands() noexcept;
  // Whether the handshake waits for room in the socket, not for bytes.
  bool wants_room() const noexcept {
    const MutexLock lock(mutex_);
    return has_sealed();
  }
  // Whether this end, a server, has answered the client's first message.
  bool has_answered() const noexcept {
    const MutexLock lock(mutex_);
    return sealed_bytes_ > 0;
  }

  IoResult send(std::span<const iovec> pieces) noexcept override;
  IoResult recv(MutBytes into) noexcept override;
  // Reads the first bytes and keeps them for recv(). May throw std::bad_alloc.
  IoResult peek(MutBytes into);
  bool stands_alone() const noexcept override { return true; }
  bool holds_received() const noexcept override { return holds_received_; }
  std::size_t unacknowledged() noexcept override;

  End end() const noexcept {
    const MutexLock lock(mutex_);
    return end_;
  }
  // OpenSSL's words for it; "" if it has none.
  const char* reason() const noexcept {
    const MutexLock lock(mutex_);
    return reason_;
  }

 private:
  struct RecordEnd {
    std::uint64_t plain;   // bytes up to the end of the record
    std::uint64_t sealed;  // likewise
  };

  // OpenSSL calls them within its own calls, which are made with the lock.
  static int read_inner(bio_st* bio, char* into, int bytes) noexcept DELTAWIRE_UNCHECKED_LOCKS;
  static int write_sealed(bio_st* bio, const char* from, int bytes) noexcept DELTAWIRE_UNCHECKED_LOCKS;
  static const void* bio_method();

  bool has_sealed() const noexcept DELTAWIRE_REQUIRES(mutex_) { return sent_ < sealed_.size(); }
  bool seal(Bytes plain) noexcept DELTAWIRE_REQUIRES(mutex_);
  IoResult flush() noexcept DELTAWIRE_REQUIRES(mutex_);
  IoResult open_next(MutBytes into) noexcept;
  IoResult end_of(int result) noexcept DELTAWIRE_REQUIRES(mutex_);
  IoResult outcome() const noexcept DELTAWIRE_REQUIRES(mutex_);

  const std::shared_ptr<const TlsContext> context_;
  const std::uint64_t generation_;  // of the process that may use the socket
  ssl_st* ssl_;
  mutable Mutex mutex_;
  std::vector<std::byte> sealed_ DELTAWIRE_GUARDED_BY(mutex_);  // records for the inner link
  std::size_t sent_ DELTAWIRE_GUARDED_BY(mutex_) = 0;           // of them
  // Plain bytes in `sealed_` that no send() has returned yet.
  std::size_t ahead_ DELTAWIRE_GUARDED_BY(mutex_) = 0;
  std::vector<std::byte> gathered_ DELTAWIRE_GUARDED_BY(mutex_);  // small pieces that share a record
  std::vector<std::byte> peeked_ DELTAWIRE_GUARDED_BY(mutex_);
  std::array<RecordEnd, 64> record_ends_ DELTAWIRE_GUARDED_BY(mutex_){};  // the last ones, by number
  std::uint64_t records_ DELTAWIRE_GUARDED_BY(mutex_) = 0;
  std::uint64_t plain_bytes_ DELTAWIRE_GUARDED_BY(mutex_) = 0;
  std::uint64_t sealed_bytes_ DELTAWIRE_GUARDED_BY(mutex_) = 0;
  IoResult inner_end_ DELTAWIRE_GUARDED_BY(mutex_) = IoResult::moved(0);  // what ended the inner link
  std::atomic<bool> holds_received_ = false;
  bool is_open_ DELTAWIRE_GUARDED_BY(mutex_) = false;  // the handshake is done
  End end_ DELTAWIRE_GUARDED_BY(mutex_) = End::kNone;
  const char* reason_ DELTAWIRE_GUARDED_BY(mutex_) = "";
};

}  // namespace deltawire
