#include "transport/mesh/data_receiver.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "transport/mesh/data_sender.h"
#include "transport/process/machine.h"

namespace deltawire {
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
