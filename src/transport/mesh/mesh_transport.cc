#include "transport/mesh/mesh_transport.h"

#include <string>

namespace deltawire {

namespace {

tl::unexpected<Error> forked() {
  return fail(ErrorCode::kState, "a transport can't be used in a forked child; connect a new one there");
}

}  // namespace

MeshTransport::~MeshTransport() {
  // Left to the child's end: to join a thread that doesn't exist would hang.
  if (in_forked_child()) {
    [[maybe_unused]] const Engine* engine = engine_.release();
    [[maybe_unused]] const auto* host = host_.release();
  }
}

// A peer that doesn't exist ends the mesh like any other misuse: the wait tells.
bool MeshTransport::refuses(int peer) {
  if (in_forked_child()) return true;
  if (peer >= 0 && peer < world_size_ && peer != rank()) return false;
  engine_->abort({ErrorCode::kInvalidArgument,
                  "rank " + std::to_string(rank()) + " posted an operation for rank " + std::to_string(peer) +
                      " in a world of " + std::to_string(world_size_),
                  rank()});
  return true;
}

Handle MeshTransport::post_send(int peer, Tag tag, std::span<const Bytes> pieces) {
  return refuses(peer) ? Handle::kNone : engine_->post_send(peer, tag, pieces);
}

Handle MeshTransport::post_recv(int peer, Tag tag, MutBytes capacity) {
  return refuses(peer) ? Handle::kNone : engine_->post_recv(peer, tag, capacity);
}

Result<std::uint64_t> MeshTransport::wait(Handle handle, Deadline deadline) {
  if (in_forked_child()) return forked();
  return engine_->wait(handle, deadline);
}

bool MeshTransport::done(Handle handle) const noexcept {
  return in_forked_child() || engine_->done(handle);
}

Status MeshTransport::wait_any(std::span<const Handle> handles, Deadline deadline) {
  if (in_forked_child()) return forked();
  return engine_->wait_any(handles, deadline);
}

void MeshTransport::wake() noexcept {
  if (!in_forked_child()) engine_->wake();
}

void MeshTransport::set_arrival_timeout(std::chrono::milliseconds timeout) {
  if (!in_forked_child()) engine_->set_arrival_timeout(timeout);
}

void MeshTransport::arrive(std::uint64_t step) {
  if (!in_forked_child()) engine_->arrive(step);
}

Result<std::span<const Ballot>> MeshTransport::vote(const Ballot& ballot, Deadline deadline) {
  if (in_forked_child()) return forked();
  return engine_->vote(ballot, deadline);
}

Standing MeshTransport::standing() const {
  return in_forked_child() ? Standing{} : engine_->standing();
}

void MeshTransport::abort(const Error& error) noexcept {
  if (!in_forked_child()) engine_->abort(error);
}

}  // namespace deltawire
