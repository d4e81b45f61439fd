#include "transport/mesh/data_receiver.h"

#include <algorithm>
#include <cstring>

#include "transport/mesh/data_sender.h"

namespace deltawire {
namespace {

// How far the early store's memory runs ahead of the bytes that have arrived.
constexpr std::size_t kEarlyStepBytes = std::size_t{64} << 10;

StreamStep failed(Error error) {
  return {StreamStep::Kind::kFailed, kNever, 0, std::move(error)};
}

StreamStep from_link(const IoResult& result) {
  switch (result.kind) {
    case IoResult::Kind::kOk: return {};
    case IoResult::Kind::kWouldBlock: return {StreamStep::Kind::kIdle, result.retry_at, 0, {}};
    case IoResult::Kind::kClosed:
    case IoResult::Kind::kError: break;
  }
  return {StreamStep::Kind::kClosed, kNever, result.error, {}};
}

}  // namespace

StreamStep DataReceiver::post(Operation& operation) {
  const EarlyStore::Place place = early_.find(operation.tag);
  if (place != early_.none()) return adopt(operation, place);
  posted_.emplace(operation.tag, &operation);
  return {};
}

// Gives an early message, perhaps still on its way, to the receive that was posted for it.
StreamStep DataReceiver::adopt(Operation& operation, EarlyStore::Place place) {
  const EarlyStore::Message& message = place->second;
  const bool arriving = target_ == Target::kEarly && early_target_ == place;
  StreamStep step = claim(operation, message.length);
  if (step.kind == StreamStep::Kind::kFailed) return step;
  if (!message.bytes.empty()) {
    std::memcpy(operation.capacity.data(), message.bytes.data(), message.bytes.size());
  }
  const std::uint64_t length = message.length;
  early_.remove(place);
  if (arriving) {
    target_ = Target::kPosted;
    posted_target_ = &operation;
    early_target_ = early_.none();
  } else {
    operation.finish(length);
  }
  return step;
}

StreamStep DataReceiver::claim(Operation& operation, std::uint64_t length) {
  if (length <= operation.capacity.size()) return {};
  return failed({ErrorCode::kLimit,
                 "rank " + std::to_string(peer_) + " sent a message of " + std::to_string(length) +
                     " bytes with tag " + std::to_string(operation.tag) + ", but at most " +
                     std::to_string(operation.capacity.size()) +
                     " were expected; do all ranks have the same settings and shapes?",
                 peer_});
}

StreamStep DataReceiver::step() {
  StreamStep step = consume_staged();
  if (step.kind != StreamStep::Kind::kMoved) return step;
  const bool big = target_ != Target::kNoMessage && missing() >= stage_.size();
  step = big ? read_direct() : read_staged();
  if (step.kind == StreamStep::Kind::kMoved || step.kind == StreamStep::Kind::kIdle) {
    const StreamStep after = consume_staged();
    if (after.kind != StreamStep::Kind::kMoved) return after;
  }
  return step;
}

// Uses up the staged bytes; what remains, if nothing is wrong, is less than a header.
StreamStep DataReceiver::consume_staged() {
  while (true) {
    if (target_ == Target::kNoMessage) {
      if (staged().size() < kMessageHeaderBytes) return {};
      Result<MessageHeader> header = decode_message_header(staged().first<kMessageHeaderBytes>(), peer_);
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

// Decides where the message behind header_ goes.
StreamStep DataReceiver::begin_message() {
  const auto posted = posted_.lower_bound(header_.tag);
  if (posted != posted_.end() && posted->first == header_.tag) {
    Operation& operation = *posted->second;
    StreamStep step = claim(operation, header_.length);
    if (step.kind == StreamStep::Kind::kFailed) return step;
    posted_.erase(posted);
    posted_target_ = &operation;
    target_ = Target::kPosted;
    return step;
  }
  if (!early_.has_room(header_.length)) return {StreamStep::Kind::kPaused, kNever, 0, {}};
  early_target_ = early_.add(header_.tag, header_.length);
  target_ = Target::kEarly;
  return {};
}

void DataReceiver::take(Bytes bytes) {
  if (bytes.empty()) return;
  if (target_ == Target::kPosted) {
    std::memcpy(posted_target_->capacity.data() + got_, bytes.data(), bytes.size());
  } else {
    std::vector<std::byte>& early = early_target_->second.bytes;
    early.insert(early.end(), bytes.begin(), bytes.end());
  }
  got_ += bytes.size();
}

void DataReceiver::end_message_if_whole() {
  if (missing() > 0) return;
  if (target_ == Target::kPosted) posted_target_->finish(header_.length);
  target_ = Target::kNoMessage;
  posted_target_ = nullptr;
  early_target_ = early_.none();
}

StreamStep DataReceiver::read_staged() {
  const Bytes rest = staged();
  std::memmove(stage_.data(), rest.data(), rest.size());
  stage_begin_ = 0;
  stage_end_ = rest.size();
  const MutBytes room = MutBytes(stage_).subspan(stage_end_);
  const IoResult result = link_->recv(room);
  if (result.kind != IoResult::Kind::kOk) return from_link(result);
  stage_end_ += result.bytes;
  // A short read has emptied the socket: no need to ask it again.
  if (result.bytes < room.size()) return {StreamStep::Kind::kIdle, kNever, 0, {}};
  return {};
}

// Receives the rest of a big message. The stage is empty: consume_staged() came before.
StreamStep DataReceiver::read_direct() {
  const std::size_t limit = target_ == Target::kPosted ? kStepBytes : kEarlyStepBytes;
  const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(missing(), limit));
  IoResult result;
  if (target_ == Target::kPosted) {
    result = link_->recv(posted_target_->capacity.subspan(static_cast<std::size_t>(got_), wanted));
  } else {
    // Grows as bytes arrive: the length in a header alone never makes this rank allocate much.
    std::vector<std::byte>& early = early_target_->second.bytes;
    early.resize(static_cast<std::size_t>(got_) + wanted);
    result = link_->recv(MutBytes(early).subspan(static_cast<std::size_t>(got_)));
    early.resize(static_cast<std::size_t>(got_) + result.bytes);
  }
  if (result.kind != IoResult::Kind::kOk) return from_link(result);
  got_ += result.bytes;
  end_message_if_whole();
  if (result.bytes < wanted) return {StreamStep::Kind::kIdle, kNever, 0, {}};
  return {};
}

void DataReceiver::clear() noexcept {
  posted_.clear();
  posted_target_ = nullptr;
  target_ = Target::kUnclaimed;  // and nobody will step any more
}

}  // namespace deltawire
