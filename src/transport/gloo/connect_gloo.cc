#include "deltawire/connect_gloo.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <deque>
#include <exception>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <gloo/context.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "transport/fabric/fabric.h"
#include "transport/fabric/packet_peer.h"
#include "transport/fabric/packet_port.h"
#include "transport/mesh/settings.h"
#include "transport/process/signals.h"

namespace deltawire {

// Packets over Gloo's unbound buffers.
//
// Each peer has a receiving thread, because Gloo only has blocking waits, and a few receives posted ahead, so
// that a packet can leave without a round trip. A posted receive always has room for the largest packet: a
// longer message would abort the process inside Gloo.
class GlooFabric final : public Fabric {
 public:
  // REQUIRES: `context` is connected.
  explicit GlooFabric(std::shared_ptr<gloo::Context> context);
  ~GlooFabric() override;
  GlooFabric(const GlooFabric&) = delete;
  GlooFabric& operator=(const GlooFabric&) = delete;

  void start(PacketPort& port) override;
  bool start_send(int peer, std::size_t slot, Bytes packet) noexcept override;
  bool finish_send(int peer, std::size_t slot) noexcept override;
  bool stop(Deadline deadline, bool drained) noexcept override;
  bool ends_drained() const noexcept override { return false; }  // connections end one by one

 private:
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

  struct Peer {
    std::array<Buffer, kSlots> slots;
    std::array<Buffer, kRooms> rooms;
    std::thread receiver;
  };

  void receive_from(PacketPort& port, int peer);
  Peer& at(int peer) noexcept { return peers_[static_cast<std::size_t>(peer)]; }

  std::shared_ptr<gloo::Context> context_;
  std::vector<Peer> peers_;
  std::atomic<bool> stopping_{false};
};

namespace {

constexpr std::uint64_t kGlooSlot = 0;  // Gloo's word for a tag
constexpr std::size_t kPostedAhead = 4;
static_assert(kRooms >= kLanes * kWindow + kPostedAhead + 1);

// Gloo must not time out, as it would close every connection: the engine handles deadlines. (Gloo adds this
// to the current time, so it can't be the largest possible number.)
constexpr std::chrono::milliseconds kNoTimeLimit = std::chrono::hours(24 * 365);
// For the end of a send whose packet has arrived: another of Gloo's threads only has to report it.
constexpr std::chrono::milliseconds kAtOnce{2000};

}  // namespace

GlooFabric::GlooFabric(std::shared_ptr<gloo::Context> context)
    : context_(std::move(context)), peers_(static_cast<std::size_t>(context_->size)) {}

GlooFabric::~GlooFabric() {
  (void)stop(Clock::now(), false);
}

void GlooFabric::start(PacketPort& port) {
  const auto buffer_over = [this](std::span<std::byte> memory) {
    return context_->createUnboundBuffer(memory.data(), memory.size());
  };
  const SignalsHeldBack no_signals;
  for (int rank = 0; rank < context_->size; ++rank) {
    if (rank == context_->rank) continue;
    for (std::size_t i = 0; i < kSlots; ++i) at(rank).slots[i] = buffer_over(port.slot(rank, i));
    for (std::size_t i = 0; i < kRooms; ++i) at(rank).rooms[i] = buffer_over(port.room(rank, i));
    at(rank).receiver = std::thread([this, &port, rank] { receive_from(port, rank); });
  }
}

void GlooFabric::receive_from(PacketPort& port, int rank) {
  Peer& peer = at(rank);
  try {
    std::deque<PacketPort::Room> posted;
    while (!stopping_) {
      while (posted.size() < kPostedAhead) {
        const PacketPort::Room room = port.take_room(rank);
        if (room.bytes.empty()) break;
        peer.rooms[room.index]->recv(rank, kGlooSlot);
        posted.push_back(room);
      }
      // The windows guarantee more rooms than packets in flight.
      if (posted.empty()) return port.lost(rank, EBADMSG);
      // Only stop() aborts it, and it returns false; at any other time a spurious abort would lose a packet.
      if (!peer.rooms[posted.front().index]->waitRecv(kNoTimeLimit)) return;
      const PacketPort::Room room = posted.front();
      posted.pop_front();
      port.arrived(rank, room, room.bytes.size());
    }
  } catch (const std::exception&) {
    if (!stopping_) port.lost(rank, 0);
  }
}

bool GlooFabric::start_send(int rank, std::size_t slot, Bytes packet) noexcept {
  const BrokenPipesHeldBack no_signal;
  try {
    at(rank).slots[slot]->send(rank, kGlooSlot, 0, packet.size());
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool GlooFabric::finish_send(int rank, std::size_t slot) noexcept {
  try {
    return at(rank).slots[slot]->waitSend(kAtOnce);
  } catch (const std::exception&) {
    return false;
  }
}

// Once the connections are closed, Gloo releases all memory, whatever the peers do.
bool GlooFabric::stop(Deadline, bool) noexcept {
  if (stopping_.exchange(true)) return true;
  const BrokenPipesHeldBack no_signal;
  context_->closeConnections();
  for (Peer& peer : peers_) {
    for (Buffer& room : peer.rooms) {
      if (room) room->abortWaitRecv();
    }
    if (peer.receiver.joinable()) peer.receiver.join();
  }
  peers_.clear();
  context_.reset();
  return true;
}

namespace {

constexpr std::string_view kJobLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
constexpr std::chrono::milliseconds kLook{10};

Status check_options(const GlooOptions& options) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return fail(ErrorCode::kInvalidArgument, "connect_gloo: rank " + std::to_string(options.rank) +
                                                 " is not in a world of " +
                                                 std::to_string(options.world_size));
  }
  if (options.job.empty() || options.job.find_first_not_of(kJobLetters) != std::string::npos) {
    return fail(ErrorCode::kInvalidArgument,
                "connect_gloo: the job's name must be letters, digits, '-', '_' and '.', and not empty");
  }
  std::error_code unreadable;
  if (!std::filesystem::is_directory(options.rendezvous_folder, unreadable)) {
    return fail(ErrorCode::kInvalidArgument,
                "connect_gloo: rendezvous_folder \"" + options.rendezvous_folder + "\" is not a folder");
  }
  if (!options.host.empty() && !options.network_interface.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "connect_gloo: give host or network_interface, not both of them");
  }
  if (options.connect_timeout.count() <= 0) {
    return fail(ErrorCode::kInvalidArgument, "connect_gloo: connect_timeout must be above 0");
  }
  return check_settings("connect_gloo", options.settings);
}

// Gloo's store in a folder. It can tell at once whether a key exists, instead of waiting whole seconds.
class FolderStore final : public gloo::rendezvous::FileStore {
 public:
  using FileStore::FileStore;
  bool has(const std::string& key) { return check({key}); }
};

// Every rank leaves a mark in the store, so that the missing ones have names.
Status meet(FolderStore& store, const GlooOptions& options, Deadline deadline) {
  const auto mark = [&options](int rank) { return options.job + "/here/" + std::to_string(rank); };
  if (store.has(mark(options.rank))) {
    return fail(ErrorCode::kInvalidArgument,
                "connect_gloo: rank " + std::to_string(options.rank) + " of job \"" + options.job +
                    "\" has connected before through " + options.rendezvous_folder +
                    "; give every job, and every restart of it, its own name");
  }
  store.set(mark(options.rank), {'1'});
  std::vector<int> missing(static_cast<std::size_t>(options.world_size));
  std::iota(missing.begin(), missing.end(), 0);
  while (true) {
    std::erase_if(missing, [&](int rank) { return store.has(mark(rank)); });
    if (missing.empty()) return {};
    if (Clock::now() >= deadline) break;
    std::this_thread::sleep_for(kLook);
  }
  std::string names;
  for (const int rank : missing) names += (names.empty() ? "" : ", ") + std::to_string(rank);
  return fail(ErrorCode::kTimeout,
              "rank " + std::to_string(options.rank) + " waited " +
                  std::to_string(options.connect_timeout.count()) + " ms in " + options.rendezvous_folder +
                  " for rank " + names + " of job \"" + options.job +
                  "\"; did all ranks start, with the same folder and job?",
              missing.front());
}

// Gloo's interface for stores changed from a reference to a shared pointer in 2025.
template <class Context>
void connect_full_mesh(Context& context, gloo::rendezvous::Store& store,
                       std::shared_ptr<gloo::transport::Device>& device) {
  if constexpr (requires { context.connectFullMesh(store, device); }) {
    context.connectFullMesh(store, device);
  } else {
    const std::shared_ptr<gloo::rendezvous::Store> borrowed(&store, [](gloo::rendezvous::Store*) {});
    context.connectFullMesh(borrowed, device);
  }
}

Result<std::shared_ptr<gloo::Context>> connect_context(const GlooOptions& options, Deadline deadline) {
  FolderStore folder(options.rendezvous_folder);
  if (Status met = meet(folder, options, deadline); !met) return forward_error(met);
  gloo::transport::tcp::attr address;
  address.hostname = options.host;
  address.iface = options.network_interface;
  std::shared_ptr<gloo::transport::Device> device;
  {
    const SignalsHeldBack no_signals;  // for Gloo's thread, which starts here
    device = gloo::transport::tcp::CreateDevice(address);
  }
  const BrokenPipesHeldBack no_broken_pipes;
  auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.world_size);
  context->setTimeout(options.connect_timeout);
  gloo::rendezvous::PrefixStore store(options.job, folder);
  connect_full_mesh(*context, store, device);
  return context;
}

}  // namespace

bool has_gloo() noexcept {
  return true;
}

Result<std::unique_ptr<Transport>> connect_gloo(const GlooOptions& options) {
  if (Status status = check_options(options); !status) return forward_error(status);
  const Deadline deadline = Clock::now() + options.connect_timeout;
  try {
    auto context = connect_context(options, deadline);
    if (!context) return forward_error(context);
    return connect_fabric({options.rank, options.world_size, options.settings, options.epoch},
                          std::make_unique<GlooFabric>(std::move(*context)),
                          std::max(deadline, Clock::now() + kLook));
  } catch (const std::exception& error) {
    return fail(ErrorCode::kSystem,
                "connect_gloo: rank " + std::to_string(options.rank) + ": " + std::string(error.what()));
  }
}

}  // namespace deltawire
