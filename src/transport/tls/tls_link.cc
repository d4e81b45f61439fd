#include "transport/tls/tls_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "transport/process/fork_guard.h"

namespace deltawire {
namespace {

constexpr std::size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
// Records are sent to the inner link together, up to this many bytes: one call of the kernel for eight of
// them.
constexpr std::size_t kBatchBytes = 8 * kRecordBytes;
// No more than a batch, the records' frames, and messages of TLS itself.
constexpr std::size_t kSealedMax = kBatchBytes + 2 * kRecordBytes;

// The next bytes, at most a record: in place if a piece fills the record or is the last one, else gathered.
Bytes next_record(PieceReader& text, std::vector<std::byte>& gathered) {
  if (text.rest() >= kRecordBytes || text.is_last()) return text.next(kRecordBytes);
  gathered.clear();
  while (!text.empty() && gathered.size() < kRecordBytes) {
    const Bytes part = text.next(kRecordBytes - gathered.size());
    gathered.insert(gathered.end(), part.begin(), part.end());
  }
  return gathered;
}

TlsLink::End end_for(int reason, bool in_handshake) noexcept {
  switch (reason) {
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
    case SSL_R_SSLV3_ALERT_BAD_RECORD_MAC: return TlsLink::End::kAltered;
    case SSL_R_BINDER_DOES_NOT_VERIFY: return TlsLink::End::kOtherToken;
    // How OpenSSL's server answers a binder of another key.
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
      return in_handshake ? TlsLink::End::kOtherToken : TlsLink::End::kAltered;
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_UNSUPPORTED_PROTOCOL: return in_handshake ? TlsLink::End::kNotTls : TlsLink::End::kAltered;
    default: return in_handshake ? TlsLink::End::kFailed : TlsLink::End::kAltered;
  }
}

}  // namespace

const void* TlsLink::bio_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "deltawire link");
    if (made == nullptr) throw std::bad_alloc();
    BIO_meth_set_read(made, read_inner);
    BIO_meth_set_write(made, write_sealed);
    BIO_meth_set_ctrl(made, [](BIO*, int command, long, void*) -> long { return command == BIO_CTRL_FLUSH; });
    return made;
  }();
  return method;
}

TlsLink::TlsLink(std::shared_ptr<const TlsContext> context, Role role, std::unique_ptr<Link> inner)
    : LinkDecorator(std::move(inner)),
      context_(std::move(context)),
      generation_(fork_generation()),
      ssl_(SSL_new(context_->get())) {
  BIO* bio = ssl_ == nullptr ? nullptr : BIO_new(static_cast<const BIO_METHOD*>(bio_method()));
  if (bio == nullptr) {
    SSL_free(ssl_);
    throw std::bad_alloc();
  }
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, const_cast<TlsContext*>(context_.get()));
  role == Role::kClient ? SSL_set_connect_state(ssl_) : SSL_set_accept_state(ssl_);
}

TlsLink::~TlsLink() {
  if (is_open_ && end_ == End::kNone && generation_ == fork_generation()) {
    ERR_clear_error();
    if (SSL_shutdown(ssl_) >= 0) (void)flush();
  }
  SSL_free(ssl_);
}

int TlsLink::read_inner(bio_st* bio, char* into, int bytes) noexcept {
  auto* self = static_cast<TlsLink*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const IoResult result =
      self->inner().recv(MutBytes(reinterpret_cast<std::byte*>(into), static_cast<std::size_t>(bytes)));
  if (result.kind == IoResult::Kind::kOk) return static_cast<int>(result.bytes);
  if (result.kind == IoResult::Kind::kWouldBlock) {
    BIO_set_retry_read(bio);
  } else {
    self->inner_end_ = result;
  }
  return -1;
}

int TlsLink::write_sealed(bio_st* bio, const char* from, int bytes) noexcept {
  auto* self = static_cast<TlsLink*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  const auto count = static_cast<std::size_t>(bytes);
  if (count > kSealedMax - self->sealed_.size()) {
    BIO_set_retry_write(bio);
    return -1;
  }
  try {
    const auto* first = reinterpret_cast<const std::byte*>(from);
    self->sealed_.insert(self->sealed_.end(), first, first + count);
  } catch (const std::bad_alloc&) {
    self->inner_end_ = {IoResult::Kind::kError, 0, ENOMEM, kNever};
    return -1;
  }
  self->sealed_bytes_ += count;
  return bytes;
}

TlsLink::Progress TlsLink::shake_hands() noexcept {
  const MutexLock lock(mutex_);
  while (end_ == End::kNone) {
    if (!is_open_) {
      ERR_clear_error();
      const int result = SSL_do_handshake(ssl_);
      if (result != 1 && end_of(result).kind != IoResult::Kind::kWouldBlock) break;
      // Without the key a peer could have come this far only with a certificate, and none is trusted.
      is_open_ = result == 1 && SSL_session_reused(ssl_) == 1;
      if (result == 1 && !is_open_) end_ = End::kFailed;
    }
    const bool wrote = has_sealed();
    const IoResult flushed = flush();
    if (flushed.kind == IoResult::Kind::kWouldBlock) return Progress::kMore;
    if (flushed.kind != IoResult::Kind::kOk) end_ = End::kCut;
    if (end_ == End::kNone && is_open_) {
      holds_received_ = SSL_has_pending(ssl_) == 1;
      return Progress::kDone;
    }
    if (end_ == End::kNone && !wrote) return Progress::kMore;
  }
  (void)flush();  // the alert that says why
  return Progress::kFailed;
}

IoResult TlsLink::flush() noexcept {
  while (has_sealed()) {
    const IoResult result = inner().send_bytes(Bytes(sealed_).subspan(sent_));
    if (result.kind != IoResult::Kind::kOk) return result;
    sent_ += result.bytes;
  }
  sealed_.clear();
  sent_ = 0;
  return IoResult::moved(0);
}

bool TlsLink::seal(Bytes plain) noexcept {
  ERR_clear_error();
  std::size_t taken = 0;
  const int result = SSL_write_ex(ssl_, plain.data(), plain.size(), &taken);
  if (result != 1 || taken != plain.size()) {
    (void)end_of(result);
    if (end_ == End::kNone) end_ = End::kFailed;
    return false;
  }
  plain_bytes_ += taken;
  record_ends_[records_++ % record_ends_.size()] = {plain_bytes_, sealed_bytes_};
  if (records_ % context_->records_per_key() == 0) SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED);
  return true;
}

IoResult TlsLink::send(std::span<const iovec> pieces) noexcept {
  const MutexLock lock(mutex_);
  if (const IoResult result = flush(); result.kind != IoResult::Kind::kOk) return result;
  if (end_ != End::kNone && end_ != End::kClosed) return outcome();
  if (ahead_ > 0) {
    const std::size_t known = std::min(ahead_, total_bytes(pieces));
    ahead_ -= known;
    return IoResult::moved(known);
  }
  std::size_t moved = 0;
  for (PieceReader text(pieces); !text.empty(); moved += std::exchange(ahead_, 0)) {
    while (!text.empty() && ahead_ < kBatchBytes) {
      Bytes record;
      try {
        record = next_record(text, gathered_);
      } catch (const std::bad_alloc&) {
        return {IoResult::Kind::kError, 0, ENOMEM, kNever};
      }
      if (!seal(record)) return outcome();
      ahead_ += record.size();
    }
    const IoResult result = flush();
    if (result.kind != IoResult::Kind::kOk) return moved > 0 ? IoResult::moved(moved) : result;
  }
  return IoResult::moved(moved);
}

IoResult TlsLink::recv(MutBytes into) noexcept {
  std::size_t got = 0;
  while (got < into.size()) {
    const IoResult result = open_next(into.subspan(got));
    if (result.kind == IoResult::Kind::kOk) {
      got += result.bytes;
    } else if (got == 0) {
      return result;
    } else {
      break;  // an end is found again by the next call
    }
  }
  return IoResult::moved(got);
}

// What has been received of the current record, or the next one.
IoResult TlsLink::open_next(MutBytes into) noexcept {
  const MutexLock lock(mutex_);
  if (!peeked_.empty()) {
    const std::size_t count = std::min(into.size(), peeked_.size());
    std::memcpy(into.data(), peeked_.data(), count);
    peeked_.erase(peeked_.begin(), peeked_.begin() + static_cast<std::ptrdiff_t>(count));
    return IoResult::moved(count);
  }
  if (end_ != End::kNone) return outcome();
  ERR_clear_error();
  std::size_t got = 0;
  const int result = SSL_read_ex(ssl_, into.data(), into.size(), &got);
  const IoResult outcome = result == 1 ? IoResult::moved(got) : end_of(result);
  holds_received_ = outcome.kind == IoResult::Kind::kOk ? SSL_has_pending(ssl_) == 1
                                                        : outcome.kind != IoResult::Kind::kWouldBlock;
  return outcome;
}

IoResult TlsLink::peek(MutBytes into) {
  std::vector<std::byte> all(into.size());
  const IoResult result = recv(all);
  const MutexLock lock(mutex_);
  if (result.kind != IoResult::Kind::kOk) return result;
  std::memcpy(into.data(), all.data(), result.bytes);
  all.resize(result.bytes);
  all.insert(all.end(), peeked_.begin(), peeked_.end());
  peeked_ = std::move(all);
  holds_received_ = true;
  return result;
}

// Why a call of OpenSSL gave no bytes; notes the end of the stream.
IoResult TlsLink::end_of(int result) noexcept {
  switch (SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ: return IoResult::would_block();
    case SSL_ERROR_WANT_WRITE: {
      const IoResult flushed = flush();
      return flushed.kind == IoResult::Kind::kOk ? IoResult::would_block() : flushed;
    }
    case SSL_ERROR_ZERO_RETURN: end_ = End::kClosed; break;
    case SSL_ERROR_SYSCALL:
      end_ = inner_end_.kind == IoResult::Kind::kClosed ? End::kCut : End::kFailed;
      break;
    default: {
      const unsigned long error = ERR_peek_error();
      const char* words = ERR_reason_error_string(error);
      if (words != nullptr) reason_ = words;
      end_ =
          inner_end_.kind == IoResult::Kind::kClosed ? End::kCut : end_for(ERR_GET_REASON(error), !is_open_);
      (void)flush();  // the alert that says why
    }
  }
  return outcome();
}

IoResult TlsLink::outcome() const noexcept {
  switch (end_) {
    case End::kNone: return IoResult::would_block();
    case End::kClosed:
    case End::kCut: return IoResult::closed();
    case End::kAltered: return {IoResult::Kind::kError, 0, EBADMSG, kNever};
    case End::kOtherToken:
    case End::kNotTls:
    case End::kFailed: break;
  }
  const int error = inner_end_.kind == IoResult::Kind::kError ? inner_end_.error : EPROTO;
  return {IoResult::Kind::kError, 0, error, kNever};
}

// The inner link counts sealed bytes, the caller plain ones: those of the records that end beyond what is
// acknowledged.
std::size_t TlsLink::unacknowledged() noexcept {
  const MutexLock lock(mutex_);
  const std::uint64_t in_flight = inner().unacknowledged() + (sealed_.size() - sent_);
  const std::uint64_t acknowledged = sealed_bytes_ - std::min(sealed_bytes_, in_flight);
  std::uint64_t known = 0;
  for (const RecordEnd& end : record_ends_) {
    if (end.sealed <= acknowledged) known = std::max(known, end.plain);
  }
  if (records_ > record_ends_.size() && known == 0) {
    known = std::ranges::min_element(record_ends_, {}, &RecordEnd::plain)->plain;
  }
  return static_cast<std::size_t>(plain_bytes_ - known);
}

}  // namespace deltawire
