// A transport for one rank whose peers' messages are known beforehand: no threads, no waits. What a rank
// sends is kept. Where a message is wanted and none is left, the peer is lost.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "deltawire/transport.h"

namespace deltawire::fuzz {

using Message = std::vector<std::byte>;
using Script = std::map<Tag, std::deque<Message>>;

class ScriptedTransport final : public Transport {
 public:
  ScriptedTransport(int rank, int world, Script incoming)
      : rank_(rank), world_(world), incoming_(std::move(incoming)) {}

  Script sent;

  int rank() const noexcept override { return rank_; }
  int world_size() const noexcept override { return world_; }
  std::uint32_t epoch() const noexcept override { return 0; }

  Handle post_send(int, Tag tag, std::span<const Bytes> pieces) override {
    Message message;
    for (const Bytes piece : pieces) message.insert(message.end(), piece.begin(), piece.end());
    const std::uint64_t bytes = message.size();
    sent[tag].push_back(std::move(message));
    return ended(bytes);
  }

  Handle post_recv(int peer, Tag tag, MutBytes capacity) override {
    std::deque<Message>& queue = incoming_[tag];
    if (queue.empty()) return ended(fail(ErrorCode::kPeerLost, "no message is left", peer));
    const Message message = std::move(queue.front());
    queue.pop_front();
    if (message.size() > capacity.size()) return ended(fail(ErrorCode::kLimit, "a longer message", peer));
    std::ranges::copy(message, capacity.begin());
    return ended(message.size());
  }

  Result<std::uint64_t> wait(Handle handle, Deadline) override {
    const auto found = ends_.find(handle);
    if (found == ends_.end()) return 0;
    Result<std::uint64_t> end = std::move(found->second);
    ends_.erase(found);
    return end;
  }
  bool done(Handle) const noexcept override { return true; }
  Status wait_any(std::span<const Handle>, Deadline) override { return {}; }
  void wake() noexcept override {}
  void set_arrival_timeout(std::chrono::milliseconds) override {}
  void set_optional(std::span<const int>) override {}
  std::optional<Error> departure_of(int rank) const override {
    const auto found = lost_.find(rank);
    return found == lost_.end() ? std::nullopt : std::optional<Error>(found->second);
  }
  void drop(int rank, const Error& error) noexcept override { lost_.emplace(rank, error); }
  void arrive(std::uint64_t) override {}
  Result<std::span<const Ballot>> vote(const Ballot&, Deadline) override {
    return fail(ErrorCode::kState, "nobody votes here");
  }
  LastCommit last_commit() const override { return {}; }
  void abort(const Error&) noexcept override {}
  std::optional<Error> failure(std::chrono::milliseconds) const override { return std::nullopt; }
  Traffic traffic() const noexcept override { return {}; }

 private:
  Handle ended(Result<std::uint64_t> end) {
    const auto handle = static_cast<Handle>(++last_);
    ends_.emplace(handle, std::move(end));
    return handle;
  }

  int rank_;
  int world_;
  Script incoming_;
  std::map<Handle, Result<std::uint64_t>> ends_;
  std::map<int, Error> lost_;
  std::uint64_t last_ = 0;
};

}  // namespace deltawire::fuzz
