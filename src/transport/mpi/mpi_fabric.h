// Packets over MPI: non-blocking sends, matched probes, and one thread that polls. Several threads call MPI
// at once: it must have been initialized with MPI_THREAD_MULTIPLE.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <thread>
#include <vector>

#include <mpi.h>

#include "base/mutex.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/packet_peer.h"
#include "transport/fabric/packet_port.h"

namespace deltawire {

class MpiFabric final : public Fabric {
 public:
  // Takes over `communicator`, a duplicate whose errors are returned.
  explicit MpiFabric(MPI_Comm communicator);
  ~MpiFabric() override;
  MpiFabric(const MpiFabric&) = delete;
  MpiFabric& operator=(const MpiFabric&) = delete;

  void start(PacketPort& port) override;
  bool start_send(int peer, std::size_t slot, Bytes packet) noexcept override;
  bool finish_send(int peer, std::size_t slot) noexcept override;
  bool stop(Deadline deadline, bool drained) noexcept override;
  // A communicator must not be freed with a message in it: Open MPI reuses its number, and takes the message
  // for one of the new communicator.
  bool ends_drained() const noexcept override { return true; }

  // Whether a fabric of this process has ended while a rank was silent: MPI_Finalize would wait for that
  // rank, perhaps forever.
  static std::atomic<bool>& ranks_left_behind() noexcept;

 private:
  // A packet that has been matched and is coming in.
  struct Incoming {
    PacketPort::Room room;
    MPI_Request request = MPI_REQUEST_NULL;
    int bytes = 0;
    bool complete = false;
  };
  struct Peer {
    std::array<MPI_Request, kSlots> sends;  // null: none
    std::deque<Incoming> incoming;          // in the order of matching
  };

  void run(PacketPort& port) noexcept;
  bool look(PacketPort& port);
  bool match_one(PacketPort& port);
  bool deliver_from(PacketPort& port, int peer);
  bool sends_complete() noexcept;
  Peer& at(int peer) noexcept { return peers_[static_cast<std::size_t>(peer)]; }

  MPI_Comm communicator_;
  std::vector<Peer> peers_;

  Mutex mutex_;
  std::condition_variable changed_;
  bool busy_ DELTAWIRE_GUARDED_BY(mutex_) = false;  // a send was started since the thread last looked
  std::atomic<bool> stopping_{false};
  bool clean_ = true;     // MPI has released all memory
  bool drained_ = false;  // the communicator is empty, too
  std::thread looker_;    // last: it uses all the above
};

}  // namespace deltawire
