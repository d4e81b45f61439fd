#include "reduce/bucket_messages.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/errors.h"

namespace deltawire {

void BucketMessages::open(std::size_t sends) {
  sends_.clear();
  sends_.reserve(sends);
}

Incoming& BucketMessages::incoming(std::size_t index) {
  while (receives_.size() <= index) receives_.emplace_back();
  return receives_[index];
}

void BucketMessages::post(Incoming& receive, int peer, std::uint16_t stage, std::uint64_t capacity_bytes) {
  assert(peer >= 0 && peer < run_->world() && peer != run_->rank());
  assert(receive.handle == Handle::kNone);
  receive.buffer.reset();
  receive.buffer = pool_->take(capacity_bytes);
  receive.handle = run_->transport().post_recv(peer, run_->tag(stage), receive.buffer.bytes());
}

Result<Bytes> BucketMessages::take(Incoming& receive) {
  const Handle handle = std::exchange(receive.handle, Handle::kNone);
  ASSIGN_OR_RETURN(const auto length, run_->transport().wait(handle, run_->deadline()));
  assert(length <= receive.buffer.bytes().size());
  return Bytes(receive.buffer.bytes()).first(length);
}

Handle BucketMessages::send(int peer, std::uint16_t stage, std::span<const Bytes> pieces, Channel* from) {
  assert(peer >= 0 && peer < run_->world() && peer != run_->rank());
  for (const Bytes piece : pieces) run_->report().bytes_sent += piece.size();
  sends_.push_back({Handle::kNone, from, stage, pieces});  // first: a send that is posted must be known
  sends_.back().handle = run_->transport().post_send(peer, run_->tag(stage), pieces);
  return sends_.back().handle;
}

// Every rank starts with another receiver, so that none is flooded first.
void BucketMessages::send_to_all(std::uint16_t stage, std::span<const Bytes> pieces, Channel* from) {
  const int world = run_->world();
  for (int i = 1; i < world; ++i) send((run_->rank() + i) % world, stage, pieces, from);
}

// A message goes to one rank or to all; its memory is free when the last copy is sent.
void BucketMessages::release_sent() noexcept {
  auto kept = sends_.begin();
  for (auto first = sends_.begin(); first != sends_.end();) {
    const auto end = std::find_if(first, sends_.end(), [&](const Sent& other) {
      return other.message.data() != first->message.data();
    });
    const bool all_sent = first->from != nullptr && std::all_of(first, end, [&](const Sent& sent) {
                            return run_->transport().done(sent.handle);
                          });
    if (all_sent) {
      first->from->release(first->message);
      for (; first != end; ++first) await_end(first->handle);
    } else {
      kept = std::move(first, end, kept);
      first = end;
    }
  }
  sends_.erase(kept, sends_.end());
}

void BucketMessages::await_sent(std::uint16_t stage) noexcept {
  const Stopwatch timer(run_->report(), Stopwatch::Phase::kExchange);
  for (Sent& sent : sends_) {
    if (sent.stage == stage) await_end(sent.handle);
  }
}

void BucketMessages::give_back() noexcept {
  for (Incoming& receive : receives_) receive.buffer.reset();
}

void BucketMessages::drain() noexcept {
  const Stopwatch timer(run_->report(), Stopwatch::Phase::kExchange);
  for (Incoming& receive : receives_) await_end(receive.handle);
  for (Sent& sent : sends_) await_end(sent.handle);
}

// A wait on a transport that has failed returns at once, at worst without memory for the error's text.
void BucketMessages::await_end(Handle& handle) noexcept {
  try {
    if (handle != Handle::kNone) (void)run_->transport().wait(handle, run_->deadline());
    // NOLINTNEXTLINE(bugprone-empty-catch): no buffer is used after the failure, whatever its text.
  } catch (const std::bad_alloc&) {
  }
  handle = Handle::kNone;
}

}  // namespace deltawire
