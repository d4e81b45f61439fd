// For tests: a transport that hands every call on to another, to be changed in one place.
#pragma once

#include <chrono>
#include <optional>
#include <span>

#include "deltawire/transport.h"

namespace deltawire {

class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(Transport& inner) : inner_(inner) {}
  int rank() const noexcept override { return inner_.rank(); }
  int world_size() const noexcept override { return inner_.world_size(); }
  std::uint32_t epoch() const noexcept override { return inner_.epoch(); }
  const RankNames& names() const noexcept override { return inner_.names(); }
  Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) override {
    return inner_.post_send(peer, tag, pieces);
  }
  Handle post_recv(int peer, Tag tag, MutBytes capacity) override {
    return inner_.post_recv(peer, tag, capacity);
  }
  Result<std::uint64_t> wait(Handle handle, Deadline deadline) override {
    return inner_.wait(handle, deadline);
  }
  bool done(Handle handle) const noexcept override { return inner_.done(handle); }
  Status wait_any(std::span<const Handle> handles, Deadline deadline) override {
    return inner_.wait_any(handles, deadline);
  }
  void wake() noexcept override { inner_.wake(); }
  void set_arrival_timeout(std::chrono::milliseconds timeout) override {
    inner_.set_arrival_timeout(timeout);
  }
  void set_optional(std::span<const int> ranks) override { inner_.set_optional(ranks); }
  std::optional<Error> departure_of(int rank) const override { return inner_.departure_of(rank); }
  void drop(int rank, const Error& error) noexcept override { inner_.drop(rank, error); }
  void arrive(std::uint64_t step) override { inner_.arrive(step); }
  Result<std::span<const Ballot>> vote(const Ballot& ballot, Deadline deadline) override {
    return inner_.vote(ballot, deadline);
  }
  LastCommit last_commit() const override { return inner_.last_commit(); }
  void abort(const Error& error) noexcept override { inner_.abort(error); }
  std::optional<Error> failure(std::chrono::milliseconds wait) const override { return inner_.failure(wait); }
  Traffic traffic() const noexcept override { return inner_.traffic(); }

 private:
  Transport& inner_;
};

}  // namespace deltawire
