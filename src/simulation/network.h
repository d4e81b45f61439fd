// The network of a simulation: byte streams between the ranks' machines, each as slow, and as broken, as a
// seed wants it. It behaves as TCP does: in order within a stream, acknowledged, with finite buffers, silent
// while a path is down, and sending again when it is up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "simulation/scheduler.h"
#include "transport/mesh/peers.h"

namespace deltawire::simulation {

// One direction between two machines.
struct Path {
  Clock::duration least{};        // time on the way
  Clock::duration jitter{};       // at most so much more
  double bytes_per_second = 1e9;  // of each stream
  bool is_up = true;
  Deadline healed{};
};

enum class StreamKind : std::uint8_t { kControl, kData };

class Network {
 public:
  // Of so many machines, with such paths between them until connect() gives it others.
  Network(std::uint64_t seed, Scheduler& scheduler, Trace& trace, int machines = 16, const Path& path = {});
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Two new streams for each pair of ranks, whose machines' buffers take `buffer` bytes; by rank, those to
  // each peer.
  std::vector<std::vector<PeerLinks>> connect(int world, const Path& path, std::size_t buffer);

  Path& path(int from, int to) noexcept { return paths_[at(from, to)]; }
  // Nothing arrives any more.
  void cut(int from, int to) noexcept { path(from, to).is_up = false; }
  void heal(int from, int to);
  // The stream ends as if a firewall had sent a reset: to both ends, or to that of `from` alone.
  void reset(int from, int to, StreamKind kind, bool both);
  // One bit of the next byte but `bytes` is inverted.
  void flip(int from, int to, StreamKind kind, std::uint64_t bytes);
  // The process has died: its machine closes its streams.
  void close_all(int process);

  // A stream between two machines, for two sockets of these processes: `descriptors` become ready. Returns
  // its two ends.
  std::pair<std::size_t, std::size_t> open_stream(std::pair<int, int> machines, std::pair<int, int> processes,
                                                  std::pair<int, int> descriptors, std::size_t buffer);

  int machines() const noexcept { return machines_; }
  // Streams' ends that are not closed.
  std::size_t open_ends() const noexcept;

 private:
  friend class SimulatedLink;
  friend class Sockets;
  static constexpr int kFirstDescriptor = 1 << 20;

  struct Segment {
    std::vector<std::byte> bytes;
    Deadline arrives;
    enum class Kind : std::uint8_t { kBytes, kEnd, kReset } kind = Kind::kBytes;
  };
  // One direction of a stream.
  struct Pipe {
    int from = 0;
    int to = 0;
    StreamKind kind{};
    std::size_t sender = 0;  // ends
    std::size_t receiver = 0;
    std::size_t buffer = 0;
    std::vector<Segment> in_flight;
    Deadline last_arrival;
    std::vector<std::byte> received;
    std::size_t read = 0;  // of them
    std::size_t held = 0;  // sent, not yet read, as far as the sender knows
    std::size_t unacknowledged = 0;
    std::size_t acks_lost = 0;    // to be sent again when the path back is up
    std::size_t window_lost = 0;  // likewise
    std::uint64_t sent = 0;
    std::uint64_t flip_at = UINT64_MAX;
    bool has_ended = false;  // the receiver has had the end
  };
  struct End {
    int process = 0;
    std::size_t out = 0;  // pipes
    std::size_t in = 0;
    int descriptor = 0;
    int watcher = -1;        // the descriptor that watches it
    bool is_closed = false;  // by its process
    bool is_reset = false;
  };

  std::size_t at(int from, int to) const noexcept {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(machines_) +
           static_cast<std::size_t>(to);
  }
  std::size_t add_pipe(int from, int to, StreamKind kind, std::size_t buffer);
  std::size_t add_stream_end(int process, std::size_t out, std::size_t in);
  std::unique_ptr<Link> add_link(int process, std::size_t out, std::size_t in);
  Clock::duration draw_time(int from, int to);
  void launch(std::size_t pipe, Segment segment);
  void schedule(std::size_t pipe);
  void deliver(std::size_t pipe);
  void arrive(std::size_t pipe, Segment& segment);
  void acknowledge(std::size_t pipe, std::size_t bytes);
  void open_window(std::size_t pipe, std::size_t bytes);
  void set_reset(std::size_t end);
  void close(std::size_t end);
  short readiness(std::size_t end) const noexcept;
  static int descriptor_of(std::size_t end) noexcept { return kFirstDescriptor + static_cast<int>(end); }
  void tell(std::size_t end) noexcept {
    scheduler_.on_ready(ends_[end].process, ends_[end].descriptor, ends_[end].watcher);
  }

  IoResult send(std::size_t end, std::span<const iovec> pieces);
  IoResult receive(std::size_t end, MutBytes into);
  IoResult peek(std::size_t end, MutBytes into) const;
  bool is_reset(std::size_t end) const noexcept { return ends_[end].is_reset; }
  std::size_t unread(std::size_t end) const noexcept;
  std::size_t unacknowledged(std::size_t end) const noexcept { return pipes_[ends_[end].out].unacknowledged; }

  Dice dice_;
  Scheduler& scheduler_;
  Trace& trace_;
  int machines_;
  std::vector<Path> paths_;
  std::deque<Pipe> pipes_;
  std::vector<End> ends_;
};

// Both ways, from all others.
void cut_off(Network& network, int machine) noexcept;

}  // namespace deltawire::simulation
