#include "simulation/timed_network.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace deltawire::simulation {
namespace {

// What a message has that does not grow with the tensors: the headers of frame and chunk, or a ballot.
constexpr std::size_t kFixedBytes = 128;
// Ethernet's frames: what of the stream each holds, and what surrounds it, with preamble and gap.
constexpr double kFrameHolds = 1448;
constexpr double kFrameAdds = 90;
// Memory that a stream without bytes may keep.
constexpr std::size_t kKept = 256;

}  // namespace

// An end of a stream, as the engine sees it.
class TimedLink final : public Link {
 public:
  TimedLink(TimedNetwork& network, std::size_t end) noexcept : network_(network), end_(end) {}
  ~TimedLink() override { network_.close(end_); }

  int fd() const noexcept override { return static_cast<int>(end_); }
  IoResult send(std::span<const iovec> pieces) noexcept override { return network_.send(end_, pieces); }
  IoResult recv(MutBytes into) noexcept override { return network_.receive(end_, into); }
  bool stands_alone() const noexcept override { return true; }
  bool delivered() noexcept override { return unacknowledged() == 0; }
  std::size_t unacknowledged() noexcept override {
    const TimedNetwork::Pipe& out = network_.pipes_[end_];
    return out.bytes.size() - out.arrived;
  }

 private:
  TimedNetwork& network_;
  std::size_t end_;
};

TimedNetwork::TimedNetwork(TimedMachine& machine, int world, const Line& line, double scale)
    : machine_(machine),
      world_(static_cast<std::size_t>(world)),
      line_(line),
      scale_(scale),
      pipes_(2 * world_ * world_),
      sends_until_(world_),
      receives_until_(world_),
      sent_(2 * world_) {
  machine.set_readiness([this](int descriptor) { return readiness(static_cast<std::size_t>(descriptor)); });
}

std::vector<PeerLinks> TimedNetwork::links_of(int rank) {
  std::vector<PeerLinks> links(world_);
  for (std::size_t peer = 0; peer < world_; ++peer) {
    if (static_cast<int>(peer) == rank) continue;
    const int to = static_cast<int>(peer);
    links[peer] = {std::make_unique<TimedLink>(*this, number_of(rank, to, Kind::kData)),
                   std::make_unique<TimedLink>(*this, number_of(rank, to, Kind::kControl))};
  }
  return links;
}

double TimedNetwork::weight(std::size_t bytes) const noexcept {
  const std::size_t fixed = std::min(bytes, kFixedBytes);
  return static_cast<double>(fixed) + scale_ * static_cast<double>(bytes - fixed);
}

short TimedNetwork::readiness(std::size_t end) const noexcept {
  const Pipe& in = pipes_[back(end)];
  const bool readable = in.read < in.arrived || in.has_ended;
  return static_cast<short>(POLLOUT | (readable ? POLLIN : 0));
}

IoResult TimedNetwork::send(std::size_t end, std::span<const iovec> pieces) {
  Pipe& pipe = pipes_[end];
  const std::size_t count = total_bytes(pieces);
  for (const iovec& piece : pieces) {
    const auto* const begin = static_cast<const std::byte*>(piece.iov_base);
    pipe.bytes.insert(pipe.bytes.end(), begin, begin + piece.iov_len);
  }
  Sent& sent = sent_[2 * static_cast<std::size_t>(from(end)) + end % 2];
  ++sent.calls;
  sent.bytes += static_cast<std::uint64_t>(weight(count));
  machine_.spend(machine_.costs().call + machine_.costs().byte * weight(count));
  launch(end, count);
  return IoResult::moved(count);
}

IoResult TimedNetwork::receive(std::size_t end, MutBytes into) {
  Pipe& pipe = pipes_[back(end)];
  const std::size_t count = std::min(into.size(), pipe.arrived - pipe.read);
  machine_.spend(machine_.costs().call + machine_.costs().byte * weight(count));
  if (count == 0) return pipe.has_ended ? IoResult::closed() : IoResult::would_block();
  std::memcpy(into.data(), pipe.bytes.data() + pipe.read, count);
  pipe.read += count;
  if (pipe.read == pipe.bytes.size()) {
    pipe.read = pipe.arrived = 0;
    pipe.bytes.clear();
    if (pipe.bytes.capacity() > kKept) pipe.bytes = {};
  }
  return IoResult::moved(count);
}

void TimedNetwork::close(std::size_t end) {
  launch(end, 0);
}

// A line is as long taken as the message is, at both ends; in between it takes the delay.
void TimedNetwork::launch(std::size_t pipe, std::size_t bytes) {
  const auto host = static_cast<std::size_t>(machine_.host_of(from(pipe)));
  const auto far_host = static_cast<std::size_t>(machine_.host_of(to(pipe)));
  if (host == far_host) return machine_.at(machine_.time(), [this, pipe, bytes] { arrive(pipe, bytes); });
  const double frames = std::max(1.0, std::ceil(weight(bytes) / kFrameHolds));
  const double seconds = (weight(bytes) + frames * kFrameAdds) / line_.bytes_per_second;
  const auto takes = std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * seconds));
  const Deadline begins = std::max(machine_.time(), sends_until_[host]);
  sends_until_[host] = begins + takes;
  machine_.at(begins + line_.delay, [this, pipe, bytes, far_host, takes] {
    Deadline& until = receives_until_[far_host];
    until = std::max(machine_.time(), until) + takes;
    machine_.at(until, [this, pipe, bytes] { arrive(pipe, bytes); });
  });
}

void TimedNetwork::arrive(std::size_t number, std::size_t bytes) {
  Pipe& pipe = pipes_[number];
  pipe.arrived += bytes;
  if (bytes == 0) pipe.has_ended = true;
  machine_.on_ready(to(number), static_cast<int>(back(number)));
}

}  // namespace deltawire::simulation
