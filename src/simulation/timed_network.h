// The network of a TimedMachine: two streams between each two ranks, which take what is sent at once, and
// deliver it in order. Between ranks of one host that takes no time. Hosts have a line each, at whose end and
// beginning messages wait for each other; the network between the lines is never full, and loses nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "simulation/timed_machine.h"
#include "transport/mesh/peer.h"

namespace deltawire::simulation {

// Of each host, in each direction.
struct Line {
  Clock::duration delay{};  // from host to host
  double bytes_per_second = 1e9;
};

class TimedNetwork {
 public:
  enum class Kind : std::uint8_t { kControl, kData };
  struct Sent {
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;
  };

  // `scale`: for how many bytes each byte of a message stands, but those that are there for any message.
  TimedNetwork(TimedMachine& machine, int world, const Line& line, double scale);
  TimedNetwork(const TimedNetwork&) = delete;
  TimedNetwork& operator=(const TimedNetwork&) = delete;

  // A rank's ends of its streams, by peer.
  std::vector<PeerLinks> links_of(int rank);
  // By a rank, so far.
  const Sent& sent(int rank, Kind kind) const noexcept {
    return sent_[2 * static_cast<std::size_t>(rank) + static_cast<std::size_t>(kind)];
  }

 private:
  friend class TimedLink;
  // One direction of a stream.
  struct Pipe {
    std::vector<std::byte> bytes;  // sent, and not all received yet
    std::size_t read = 0;          // of them
    std::size_t arrived = 0;       // likewise
    bool has_ended = false;
  };

  // Pipes and descriptors have one numbering: that of the end which sends into a pipe.
  std::size_t number_of(int from, int to, Kind kind) const noexcept {
    return 2 * (static_cast<std::size_t>(from) * world_ + static_cast<std::size_t>(to)) +
           static_cast<std::size_t>(kind);
  }
  int from(std::size_t pipe) const noexcept { return static_cast<int>(pipe / 2 / world_); }
  int to(std::size_t pipe) const noexcept { return static_cast<int>(pipe / 2 % world_); }
  // The pipe of the other direction; so the end that receives from this one.
  std::size_t back(std::size_t pipe) const noexcept {
    return number_of(to(pipe), from(pipe), static_cast<Kind>(pipe % 2));
  }
  double weight(std::size_t bytes) const noexcept;
  short readiness(std::size_t end) const noexcept;
  IoResult send(std::size_t end, std::span<const iovec> pieces);
  IoResult receive(std::size_t end, MutBytes into);
  void close(std::size_t end);
  void launch(std::size_t pipe, std::size_t bytes);
  void arrive(std::size_t pipe, std::size_t bytes);

  TimedMachine& machine_;
  std::size_t world_;
  Line line_;
  double scale_;
  std::vector<Pipe> pipes_;
  std::vector<Deadline> sends_until_;     // by host: when its line is free again
  std::vector<Deadline> receives_until_;  // likewise
  std::vector<Sent> sent_;                // by rank and kind
};

}  // namespace deltawire::simulation
