#include <cstdint>
#include <fstream>
#include <thread>
#include <utility>

#include "deltawire/connect.h"
#include "deltawire/connect_gloo.h"
#include "deltawire/connect_mpi.h"
#include "rounds.h"

namespace deltawire::bench {
namespace {

constexpr std::chrono::seconds kPatience{60};

class MeshRounds final : public Rounds {
 public:
  explicit MeshRounds(Result<std::unique_ptr<Transport>> connected) {
    if (!connected) give_up(connected.error().message);
    self_ = std::move(*connected);
  }

  void prepare(Messages& messages) override { messages_ = &messages; }

  void play() override {
    const int world_size = self_->world_size();
    handles_.clear();
    for (int step = 1; step < world_size; ++step) {
      const int from = (self_->rank() + world_size - step) % world_size;
      handles_.push_back(self_->post_recv(from, 1, messages_->got[static_cast<std::size_t>(from)]));
    }
    for (int step = 1; step < world_size; ++step) {
      const int to = (self_->rank() + step) % world_size;
      const Bytes piece(messages_->sent[static_cast<std::size_t>(to)]);
      handles_.push_back(self_->post_send(to, 1, {&piece, 1}));
    }
    for (const Handle handle : handles_) {
      const auto moved = self_->wait(handle, Clock::now() + kPatience);
      if (!moved) give_up(moved.error().message);
    }
  }

 private:
  std::unique_ptr<Transport> self_;
  Messages* messages_ = nullptr;
  std::vector<Handle> handles_;
};

// Addresses are exchanged in files, whose names begin with the mesh's.
std::vector<Endpoint> exchange_endpoints(const Meeting& meeting, const std::string& mesh,
                                         const Endpoint& own) {
  const auto file = [&](int of) { return meeting.folder / (mesh + "-" + std::to_string(of)); };
  const std::filesystem::path written = file(meeting.rank).string() + ".new";
  std::ofstream(written) << own.host << " " << own.port;
  std::filesystem::rename(written, file(meeting.rank));
  std::vector<Endpoint> endpoints(static_cast<std::size_t>(meeting.world_size));
  for (int peer = 0; peer < meeting.world_size; ++peer) {
    while (!std::filesystem::exists(file(peer))) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    Endpoint& endpoint = endpoints[static_cast<std::size_t>(peer)];
    std::ifstream(file(peer)) >> endpoint.host >> endpoint.port;
  }
  return endpoints;
}

}  // namespace

std::unique_ptr<Rounds> make_tcp_rounds(const Meeting& meeting, bool shared_memory) {
  auto listener = listen_tcp(meeting.host);
  if (!listener) give_up(listener.error().message);
  MeshOptions options;
  options.rank = meeting.rank;
  options.world_size = meeting.world_size;
  options.endpoints =
      exchange_endpoints(meeting, shared_memory ? "shared" : "sockets", (*listener)->endpoint());
  options.shared_memory = shared_memory;
  return std::make_unique<MeshRounds>(connect_tcp(std::move(*listener), options));
}

std::unique_ptr<Rounds> make_gloo_mesh_rounds(const Meeting& meeting) {
  GlooOptions options;
  options.rank = meeting.rank;
  options.world_size = meeting.world_size;
  options.rendezvous_folder = meeting.folder.string();
  options.job = "bench";
  options.host = meeting.host;
  return std::make_unique<MeshRounds>(connect_gloo(options));
}

std::unique_ptr<Rounds> make_mpi_rounds() {
  return std::make_unique<MeshRounds>(connect_mpi());
}

}  // namespace deltawire::bench
