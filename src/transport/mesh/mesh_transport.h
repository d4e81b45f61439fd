// The Transport that every mesh is: an engine, and what must not be used in a forked child.
#pragma once

#include <memory>

#include "deltawire/transport.h"
#include "transport/mesh/engine.h"
#include "transport/mesh/make_mesh.h"
#include "transport/metered/metered_link.h"

namespace deltawire {

class MeshTransport final : public Transport {
 public:
  // `host` may be empty: links that stand alone.
  MeshTransport(const MeshMember& self, int world_size, std::unique_ptr<LinkHost> host,
                std::unique_ptr<Engine> engine, std::shared_ptr<TrafficMeter> meter) noexcept
      : self_(self),
        world_size_(world_size),
        generation_(fork_generation()),
        host_(std::move(host)),
        engine_(std::move(engine)),
        meter_(std::move(meter)) {}
  ~MeshTransport() override;

  int rank() const noexcept override { return self_.rank; }
  int world_size() const noexcept override { return world_size_; }
  std::uint32_t epoch() const noexcept override { return self_.epoch; }
  Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) override;
  Handle post_recv(int peer, Tag tag, MutBytes capacity) override;
  Result<std::uint64_t> wait(Handle handle, Deadline deadline) override;
  bool done(Handle handle) const noexcept override;
  Status wait_any(std::span<const Handle> handles, Deadline deadline) override;
  void wake() noexcept override;
  void set_arrival_timeout(std::chrono::milliseconds timeout) override;
  void arrive(std::uint64_t step) override;
  Result<std::span<const Ballot>> vote(const Ballot& ballot, Deadline deadline) override;
  Standing standing() const override;
  void abort(const Error& error) noexcept override;
  Traffic traffic() const noexcept override { return meter_->total(); }

 private:
  // In a forked child the engine's thread doesn't exist and its lock may be held for ever.
  bool in_forked_child() const noexcept { return fork_generation() != generation_; }
  bool refuses(int peer);

  const MeshMember self_;
  const int world_size_;
  const std::uint64_t generation_;
  std::unique_ptr<LinkHost> host_;  // before the engine, which ends first
  std::unique_ptr<Engine> engine_;
  const std::shared_ptr<TrafficMeter> meter_;
};

}  // namespace deltawire
