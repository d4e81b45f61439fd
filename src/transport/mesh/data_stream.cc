#include "transport/mesh/data_stream.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/errors.h"
#include "base/little_endian.h"
#include "transport/process/machine.h"

namespace deltawire {

namespace {

constexpr std::uint32_t kMessageMagic = 0x4D445744;  // "DWDM" on the wire
constexpr std::size_t kHeaderCrcAt = 4;
constexpr std::size_t kTagAt = 8;
constexpr std::size_t kLengthAt = 16;
constexpr std::size_t kZeroAt = 24;

std::uint32_t checksum(std::span<const std::byte, kMessageHeaderBytes> bytes) noexcept {
  return crc32c(bytes.subspan<kTagAt>(), crc32c(bytes.first<kHeaderCrcAt>()));
}

}  // namespace

MessageHeaderBytes encode_message_header(const MessageHeader& header) noexcept {
  MessageHeaderBytes bytes;
  store_le(bytes.data(), kMessageMagic);
  store_le(bytes.data() + kTagAt, header.tag);
  store_le(bytes.data() + kLengthAt, header.length);
  store_le(bytes.data() + kZeroAt, std::uint64_t{0});
  store_le(bytes.data() + kHeaderCrcAt, checksum(bytes));
  return bytes;
}

Result<MessageHeader> decode_message_header(std::span<const std::byte, kMessageHeaderBytes> bytes, int sender,
                                            const RankNames& names) {
  const auto from = [&] { return " in the data stream from " + names.of(sender); };
  if (load_le<std::uint32_t>(bytes.data()) != kMessageMagic ||
      load_le<std::uint32_t>(bytes.data() + kHeaderCrcAt) != checksum(bytes) ||
      load_le<std::uint64_t>(bytes.data() + kZeroAt) != 0) {
    return corrupt("message header is damaged" + from() + "; check the network and that rank's machine",
                   sender);
  }
  const MessageHeader header{load_le<Tag>(bytes.data() + kTagAt),
                             load_le<std::uint64_t>(bytes.data() + kLengthAt)};
  if (header.length > kMessageBytesMax) {
    return corrupt("message length " + std::to_string(header.length) + from() + " is above the limit of " +
                       std::to_string(kMessageBytesMax) + " bytes",
                   sender);
  }
  return header;
}

StreamStep DataSender::step(ScopedUnlock scoped_unlock) noexcept {
  std::size_t budget = kStepBytes;
  while (!queue_.empty()) {
    std::array<iovec, Link::kMaxPieces> pieces;
    const std::size_t count = gather(pieces);
    const ClippedPieces clipped(std::span<const iovec>(pieces).first(count), budget);
    const std::size_t asked = total_bytes(clipped.span());
    assert(asked > 0);
    const std::uint64_t clears = clears_;
    const IoResult result = scoped_unlock.run(asked, [&] { return link_->send(clipped.span()); });
    if (clears != clears_) return {StreamStep::Kind::kIdle, kNever, 0, {}};
    if (result.kind != IoResult::Kind::kOk) return StreamStep::after(result);
    sent_ += result.bytes;
    advance(result.bytes);
    if (front_sent()) {
      Operation& done = queue_.front();
      queue_.pop_front();
      header_sent_ = piece_ = piece_sent_ = 0;
      done.finish(done.length);
    }
    // If only a few bytes of the budget are left, they are not worth another call.
    budget -= std::min(budget, result.bytes);
    if (budget < kStepBytes / 2) return {};
  }
  return {StreamStep::Kind::kIdle, kNever, 0, {}};
}

// The unsent rest of the front message, as many pieces as fit in `into`.
std::size_t DataSender::gather(std::span<iovec> into) noexcept {
  assert(!queue_.empty() && piece_ <= queue_.front().pieces.size());
  const Operation& front = queue_.front();
  if (header_sent_ == 0) header_ = encode_message_header({front.tag, front.length});
  std::size_t count = 0;
  if (header_sent_ < header_.size()) {
    into[count++] = iovec{header_.data() + header_sent_, header_.size() - header_sent_};
  }
  std::size_t skip = piece_sent_;
  for (std::size_t i = piece_; i < front.pieces.size() && count < into.size(); ++i) {
    const Bytes rest = front.pieces[i].subspan(skip);
    skip = 0;
    // iovec requires the cast: sending only reads.
    if (!rest.empty()) into[count++] = iovec{const_cast<std::byte*>(rest.data()), rest.size()};
  }
  return count;
}

void DataSender::advance(std::size_t bytes) noexcept {
  const std::size_t of_header = std::min(bytes, header_.size() - header_sent_);
  header_sent_ += of_header;
  bytes -= of_header;
  const std::vector<Bytes>& pieces = queue_.front().pieces;
  while (piece_ < pieces.size() && header_sent_ == header_.size()) {
    const std::size_t of_piece = std::min(bytes, pieces[piece_].size() - piece_sent_);
    piece_sent_ += of_piece;
    bytes -= of_piece;
    if (piece_sent_ < pieces[piece_].size()) return;
    ++piece_;
    piece_sent_ = 0;
  }
  assert(bytes == 0);
}

namespace {

StreamStep failed(Error error) {
  return {StreamStep::Kind::kFailed, kNever, 0, std::move(error)};
}

}  // namespace

StreamStep DataReceiver::post(Operation& operation) {
  assert(!operation.done);
  held_until_ = {};
  auto* message = unexpected_.find(operation.tag);
  if (message != nullptr) return adopt(operation, *message);
  posted_.push_back(operation);
  return {};
}

// Gives an unexpected message, which may still be incomplete, to the receive that was posted for it.
StreamStep DataReceiver::adopt(Operation& operation, UnexpectedMessages::Message& message) {
  assert(message.arrived <= message.length);
  const bool arriving = target_ == Target::kUnexpected && &message == &unexpected_.newest();
  StreamStep step = claim(operation, message.length);
  if (step.kind == StreamStep::Kind::kFailed) return step;
  UnexpectedMessages::copy(message, operation.capacity);
  const std::uint64_t length = message.length;
  unexpected_.remove(message);
  if (arriving) {
    target_ = Target::kPosted;
    posted_target_ = &operation;
  } else {
    operation.finish(length);
  }
  return step;
}

StreamStep DataReceiver::claim(Operation& operation, std::uint64_t length) {
  if (length <= operation.capacity.size()) return {};
  return failed({ErrorCode::kLimit,
                 names_.of(peer_) + " sent a message of " + std::to_string(length) + " bytes with tag " +
                     std::to_string(operation.tag) + ", but at most " +
                     std::to_string(operation.capacity.size()) +
                     " were expected; do all ranks have the same settings and shapes?",
                 peer_});
}

StreamStep DataReceiver::step(ScopedUnlock scoped_unlock) {
  StreamStep step = consume_staged();
  if (step.kind != StreamStep::Kind::kMoved) return step;
  const std::uint64_t clears = clears_;
  const bool big = target_ != Target::kNoMessage && missing() >= UnexpectedBlock::kBytes;
  step = big ? read_big(scoped_unlock) : read_staged();
  if (clears != clears_) return step;
  if (step.kind == StreamStep::Kind::kMoved || step.kind == StreamStep::Kind::kIdle) {
    const StreamStep after = consume_staged();
    if (after.kind != StreamStep::Kind::kMoved) return after;
  }
  return step;
}

// Consumes the staged bytes; unless something is wrong, less than a header remains.
StreamStep DataReceiver::consume_staged() {
  StreamStep step = consume_messages();
  if (staged().empty()) {
    blocks_.take_back(stage_);
    stage_begin_ = stage_end_ = 0;
  }
  return step;
}

StreamStep DataReceiver::consume_messages() {
  while (true) {
    if (target_ == Target::kNoMessage) {
      if (staged().size() < kMessageHeaderBytes) return {};
      Result<MessageHeader> header =
          decode_message_header(staged().first<kMessageHeaderBytes>(), peer_, names_);
      if (!header) return failed(std::move(header.error()));
      header_ = *header;
      stage_begin_ += kMessageHeaderBytes;
      got_ = 0;
      target_ = Target::kUnclaimed;
    }
    if (target_ == Target::kUnclaimed) {
      StreamStep step = begin_message();
      if (step.kind != StreamStep::Kind::kMoved) return step;
    }
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(staged().size(), missing()));
    take(staged().first(count));
    stage_begin_ += count;
    end_message_if_whole();
    if (target_ != Target::kNoMessage) return {};
  }
}

// Decides where the message that follows header_ goes.
StreamStep DataReceiver::begin_message() {
  assert(posted_target_ == nullptr && got_ == 0);
  if (Operation* operation = posted_.take(header_.tag)) {
    StreamStep step = claim(*operation, header_.length);
    if (step.kind == StreamStep::Kind::kFailed) return step;
    posted_target_ = operation;
    target_ = Target::kPosted;
    return step;
  }
  if (const Deadline until = hold_until(); until > MachineClock::now()) {
    return {StreamStep::Kind::kPaused, until, 0, {}};
  }
  if (!unexpected_.has_room(header_.length)) return {StreamStep::Kind::kPaused, kNever, 0, {}};
  unexpected_.add(header_.tag, header_.length);
  target_ = Target::kUnexpected;
  return {};
}

// When a message without a receive becomes an unexpected one: at once if any receive is posted, because its
// message may be behind this one.
Deadline DataReceiver::hold_until() {
  if (header_.length < kLongBytes || !posted_.empty()) return {};
  if (held_until_ == Deadline{}) held_until_ = MachineClock::now() + patience_;
  return held_until_;
}

// Memory for the next missing bytes, or for the first of them.
MutBytes DataReceiver::room() {
  if (target_ == Target::kUnexpected) return unexpected_.room();
  assert(target_ == Target::kPosted && header_.length <= posted_target_->capacity.size());
  return posted_target_->capacity.subspan(static_cast<std::size_t>(got_),
                                          static_cast<std::size_t>(missing()));
}

void DataReceiver::take(Bytes bytes) {
  while (!bytes.empty()) {
    const MutBytes into = room();
    assert(!into.empty());
    const Bytes part = bytes.first(std::min(bytes.size(), into.size()));
    std::memcpy(into.data(), part.data(), part.size());
    advance(part.size());
    bytes = bytes.subspan(part.size());
  }
}

void DataReceiver::advance(std::size_t bytes) noexcept {
  assert(bytes <= missing());
  got_ += bytes;
  if (target_ == Target::kUnexpected) unexpected_.newest().arrived = got_;
}

void DataReceiver::end_message_if_whole() {
  assert(got_ <= header_.length);
  if (missing() > 0) return;
  unexpected_blocks_ += UnexpectedBlock::count_for(header_.length);
  if (target_ == Target::kPosted) posted_target_->finish(header_.length);
  target_ = Target::kNoMessage;
  posted_target_ = nullptr;
}

StreamStep DataReceiver::read_staged() {
  if (stage_.empty()) blocks_.append_to(stage_);
  auto& stage = stage_.front().bytes;
  const Bytes rest = staged();
  std::memmove(stage.data(), rest.data(), rest.size());
  stage_begin_ = 0;
  stage_end_ = rest.size();
  const MutBytes into = MutBytes(stage).subspan(stage_end_);
  const IoResult result = link_->recv(into);
  if (result.kind != IoResult::Kind::kOk) return StreamStep::after(result);
  received_ += result.bytes;
  stage_end_ += result.bytes;
  // A short read has emptied the socket: no need to read again.
  if (result.bytes < into.size()) return {StreamStep::Kind::kIdle, kNever, 0, {}};
  return {};
}

// Receives the rest of a big message. The stage is empty: consume_staged() came before.
StreamStep DataReceiver::read_big(ScopedUnlock scoped_unlock) {
  assert(staged().empty() && missing() > 0);
  for (std::size_t budget = kStepBytes; budget > 0 && missing() > 0;) {
    MutBytes into = room();
    into = into.first(std::min(into.size(), budget));
    // An unexpected message may be claimed, and its memory with it, as soon as the lock is free.
    static_assert(UnexpectedBlock::kBytes < ScopedUnlock::kMuch,
                  "what is not much is received under the lock");
    const std::uint64_t clears = clears_;
    const IoResult result = scoped_unlock.run(into.size(), [&] { return link_->recv(into); });
    if (clears != clears_) return {StreamStep::Kind::kIdle, kNever, 0, {}};
    if (result.kind != IoResult::Kind::kOk) return StreamStep::after(result);
    received_ += result.bytes;
    advance(result.bytes);
    budget -= result.bytes;
    if (result.bytes < into.size()) return {StreamStep::Kind::kIdle, kNever, 0, {}};
  }
  end_message_if_whole();
  return {};
}

void DataReceiver::clear() noexcept {
  ++clears_;
  posted_.clear();
  posted_target_ = nullptr;
  target_ = Target::kUnclaimed;  // there will be no further step()
}

}  // namespace deltawire
