// For tests: a transport without a network. It records what is posted; the test says what has arrived or
// left.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "deltawire/transport.h"

namespace deltawire {

class ScriptedTransport final : public Transport {
 public:
  struct Posted {
    int peer = 0;
    Tag tag = 0;
    std::vector<std::byte> sent = {};  // of a send
    MutBytes room = {};                // of a receive
    std::uint64_t length = 0;          // of what arrived
    bool is_done = false;
    bool is_waited_for = false;
  };

  ScriptedTransport(int rank, int world) : rank_(rank), world_(world) {}

  // By handle, which is the place plus 1.
  std::vector<Posted> posted;
  std::vector<std::vector<Handle>> waits;  // the handles of each wait_any

  Posted& of(Handle handle) { return posted[static_cast<std::size_t>(handle) - 1]; }
  void deliver(Handle handle, Bytes message) {
    Posted& receive = of(handle);
    std::ranges::copy(message, receive.room.begin());
    receive.length = message.size();
    receive.is_done = true;
  }

  int rank() const noexcept override { return rank_; }
  int world_size() const noexcept override { return world_; }
  std::uint32_t epoch() const noexcept override { return 0; }
  Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) override {
    Posted& send = posted.emplace_back(Posted{.peer = peer, .tag = tag});
    for (const Bytes piece : pieces) send.sent.insert(send.sent.end(), piece.begin(), piece.end());
    return static_cast<Handle>(posted.size());
  }
  Handle post_recv(int peer, Tag tag, MutBytes capacity) override {
    posted.push_back({.peer = peer, .tag = tag, .room = capacity});
    return static_cast<Handle>(posted.size());
  }
  Result<std::uint64_t> wait(Handle handle, Deadline) override {
    of(handle).is_waited_for = true;
    return of(handle).length;
  }
  bool done(Handle handle) const noexcept override {
    return posted[static_cast<std::size_t>(handle) - 1].is_done;
  }
  Status wait_any(std::span<const Handle> handles, Deadline) override {
    waits.emplace_back(handles.begin(), handles.end());
    return {};
  }
  void wake() noexcept override {}
  void set_arrival_timeout(std::chrono::milliseconds) override {}
  void set_optional(std::span<const int>) override {}
  std::optional<Error> departure_of(int) const override { return std::nullopt; }
  void drop(int, const Error&) noexcept override {}
  void arrive(std::uint64_t) override {}
  Result<std::span<const Ballot>> vote(const Ballot&, Deadline) override { return std::span<const Ballot>{}; }
  LastCommit last_commit() const override { return {}; }
  void abort(const Error&) noexcept override {}
  std::optional<Error> failure(std::chrono::milliseconds) const override { return std::nullopt; }
  Traffic traffic() const noexcept override { return {}; }

 private:
  int rank_;
  int world_;
};

}  // namespace deltawire
