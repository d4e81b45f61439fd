#include "simulation/network.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "transport/mesh/scoped_unlock.h"

namespace deltawire::simulation {
namespace {

// A segment that was lost is sent again so long after the path is up.
constexpr std::chrono::milliseconds kSendsAgain{300};
// A machine sends so much at once, ten segments.
constexpr std::size_t kWindow = 14'600;

}  // namespace

// An end of a stream, as the engine sees it.
class SimulatedLink final : public Link {
 public:
  SimulatedLink(Network& network, std::size_t end) noexcept : network_(network), end_(end) {}
  ~SimulatedLink() override { network_.close(end_); }

  int fd() const noexcept override { return Network::descriptor_of(end_); }
  IoResult send(std::span<const iovec> pieces) noexcept override {
    if (total_bytes(pieces) >= ScopedUnlock::kMuch)
      network_.scheduler_.sleep({});  // the engine's lock is free
    return called(network_.send(end_, pieces));
  }
  IoResult recv(MutBytes into) noexcept override {
    if (into.size() >= ScopedUnlock::kMuch) network_.scheduler_.sleep({});
    return called(network_.receive(end_, into));
  }
  bool stands_alone() const noexcept override { return true; }
  bool delivered() noexcept override {
    const Network::End& end = network_.ends_[end_];
    const Network::Pipe& in = network_.pipes_[end.in];
    return called(in.received.size() == in.read) || unacknowledged() == 0;
  }
  std::size_t unacknowledged() noexcept override { return called(network_.unacknowledged(end_)); }

 private:
  // The thread may be interrupted when it already has the call's result.
  template <class Value>
  Value called(Value result) noexcept {
    network_.scheduler_.called();
    return result;
  }

  Network& network_;
  std::size_t end_;
};

Network::Network(std::uint64_t seed, Scheduler& scheduler, Trace& trace, int machines, const Path& path)
    : dice_(seed, 2),
      scheduler_(scheduler),
      trace_(trace),
      machines_(machines),
      paths_(at(machines, 0), path) {
  scheduler.set_readiness(
      [this](int descriptor) { return readiness(static_cast<std::size_t>(descriptor - kFirstDescriptor)); });
}

std::size_t Network::add_pipe(int from, int to, StreamKind kind, std::size_t buffer) {
  Pipe& pipe = pipes_.emplace_back();
  pipe.from = from;
  pipe.to = to;
  pipe.kind = kind;
  pipe.buffer = buffer;
  return pipes_.size() - 1;
}

std::size_t Network::add_stream_end(int process, std::size_t out, std::size_t in) {
  const std::size_t end = ends_.size();
  ends_.push_back({process, out, in, descriptor_of(end)});
  pipes_[out].sender = end;
  pipes_[in].receiver = end;
  return end;
}

std::unique_ptr<Link> Network::add_link(int process, std::size_t out, std::size_t in) {
  return std::make_unique<SimulatedLink>(*this, add_stream_end(process, out, in));
}

std::pair<std::size_t, std::size_t> Network::open_stream(std::pair<int, int> machines,
                                                         std::pair<int, int> processes,
                                                         std::pair<int, int> descriptors,
                                                         std::size_t buffer) {
  const auto [one, other] = machines;
  const std::size_t out = add_pipe(one, other, StreamKind::kControl, buffer);
  const std::size_t in = add_pipe(other, one, StreamKind::kControl, buffer);
  const std::size_t end = add_stream_end(processes.first, out, in);
  const std::size_t far_end = add_stream_end(processes.second, in, out);
  ends_[end].descriptor = descriptors.first;
  ends_[far_end].descriptor = descriptors.second;
  return {end, far_end};
}

std::vector<std::vector<PeerLinks>> Network::connect(int world, const Path& path, std::size_t buffer) {
  std::vector<std::vector<PeerLinks>> links(static_cast<std::size_t>(world));
  for (auto& row : links) row.resize(static_cast<std::size_t>(world));
  for (int low = 0; low < world; ++low) {
    for (int high = low + 1; high < world; ++high) {
      this->path(low, high) = this->path(high, low) = path;
      PeerLinks& of_low = links[static_cast<std::size_t>(low)][static_cast<std::size_t>(high)];
      PeerLinks& of_high = links[static_cast<std::size_t>(high)][static_cast<std::size_t>(low)];
      for (const StreamKind kind : {StreamKind::kControl, StreamKind::kData}) {
        const std::size_t up = add_pipe(low, high, kind, buffer);
        const std::size_t down = add_pipe(high, low, kind, buffer);
        (kind == StreamKind::kControl ? of_low.control : of_low.data) = add_link(low, up, down);
        (kind == StreamKind::kControl ? of_high.control : of_high.data) = add_link(high, down, up);
      }
    }
  }
  return links;
}

Clock::duration Network::draw_time(int from, int to) {
  const Path& way = path(from, to);
  return way.least + dice_.up_to(way.jitter);
}

void Network::launch(std::size_t number, Segment segment) {
  Pipe& pipe = pipes_[number];
  const double seconds =
      static_cast<double>(segment.bytes.size()) / path(pipe.from, pipe.to).bytes_per_second;
  const auto takes = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  const Deadline arrives = scheduler_.read() + draw_time(pipe.from, pipe.to);
  pipe.last_arrival = std::max(pipe.last_arrival, arrives) + takes;
  segment.arrives = pipe.last_arrival;
  assert(pipe.in_flight.empty() || pipe.in_flight.back().arrives <= segment.arrives);
  pipe.in_flight.push_back(std::move(segment));
  if (pipe.in_flight.size() == 1) schedule(number);
}

void Network::schedule(std::size_t pipe) {
  assert(!pipes_[pipe].in_flight.empty());
  const Deadline when = pipes_[pipe].in_flight.front().arrives;
  scheduler_.at(when, [this, pipe, when] {
    const auto& in_flight = pipes_[pipe].in_flight;
    if (!in_flight.empty() && in_flight.front().arrives == when) deliver(pipe);
  });
}

void Network::deliver(std::size_t number) {
  Pipe& pipe = pipes_[number];
  if (!path(pipe.from, pipe.to).is_up) return;  // heal() sends it again
  const Deadline now = scheduler_.read();
  while (!pipe.in_flight.empty() && pipe.in_flight.front().arrives <= now) {
    Segment segment = std::move(pipe.in_flight.front());
    pipe.in_flight.erase(pipe.in_flight.begin());
    arrive(number, segment);
  }
  if (!pipe.in_flight.empty()) schedule(number);
}

void Network::arrive(std::size_t number, Segment& segment) {
  Pipe& pipe = pipes_[number];
  End& receiver = ends_[pipe.receiver];
  trace_.add(number);
  trace_.add(segment.bytes.size());
  if (segment.kind == Segment::Kind::kReset) return set_reset(pipe.receiver);
  if (receiver.is_closed) {
    // The machine answers what nobody takes with a reset.
    if (segment.kind == Segment::Kind::kBytes) launch(receiver.out, {{}, {}, Segment::Kind::kReset});
    return;
  }
  if (receiver.is_reset) return;
  if (segment.kind == Segment::Kind::kEnd) {
    pipe.has_ended = true;
  } else {
    pipe.received.insert(pipe.received.end(), segment.bytes.begin(), segment.bytes.end());
    const std::size_t bytes = segment.bytes.size();
    scheduler_.after(draw_time(pipe.to, pipe.from), [this, number, bytes] { acknowledge(number, bytes); });
  }
  tell(pipe.receiver);
}

void Network::acknowledge(std::size_t number, std::size_t bytes) {
  Pipe& pipe = pipes_[number];
  if (!path(pipe.to, pipe.from).is_up) {
    pipe.acks_lost += bytes;
  } else {
    pipe.unacknowledged -= std::min(bytes, pipe.unacknowledged);
  }
}

void Network::open_window(std::size_t number, std::size_t bytes) {
  Pipe& pipe = pipes_[number];
  if (!path(pipe.to, pipe.from).is_up) {
    pipe.window_lost += bytes;
    return;
  }
  pipe.held -= std::min(bytes, pipe.held);
  tell(pipe.sender);
}

void cut_off(Network& network, int machine) noexcept {
  for (int other = 0; other < network.machines(); ++other) {
    if (other == machine) continue;
    network.cut(machine, other);
    network.cut(other, machine);
  }
}

void Network::heal(int from, int to) {
  const Deadline now = scheduler_.read();
  path(from, to).is_up = true;
  path(from, to).healed = now;
  for (std::size_t number = 0; number < pipes_.size(); ++number) {
    Pipe& pipe = pipes_[number];
    if (pipe.from == from && pipe.to == to && !pipe.in_flight.empty()) {
      // A reset is sent once; the rest until it arrives.
      std::erase_if(pipe.in_flight, [now](const Segment& segment) {
        return segment.kind == Segment::Kind::kReset && segment.arrives <= now;
      });
      Deadline arrives = now + draw_time(from, to) +
                         std::chrono::nanoseconds(dice_.below(std::chrono::nanoseconds(kSendsAgain).count()));
      for (Segment& segment : pipe.in_flight) {
        segment.arrives = arrives = std::max(arrives, segment.arrives);
      }
      pipe.last_arrival = std::max(pipe.last_arrival, arrives);
      if (!pipe.in_flight.empty()) schedule(number);
    }
    if (pipe.from == to && pipe.to == from) {
      acknowledge(number, std::exchange(pipe.acks_lost, 0));
      open_window(number, std::exchange(pipe.window_lost, 0));
    }
  }
}

void Network::set_reset(std::size_t number) {
  End& end = ends_[number];
  end.is_reset = true;
  pipes_[end.out].in_flight.clear();
  pipes_[end.out].unacknowledged = 0;
  tell(number);
}

void Network::reset(int from, int to, StreamKind kind, bool both) {
  for (const Pipe& pipe : pipes_) {
    if (pipe.from != from || pipe.to != to || pipe.kind != kind || ends_[pipe.sender].is_closed) continue;
    set_reset(pipe.sender);
    if (both) set_reset(pipe.receiver);
  }
}

void Network::flip(int from, int to, StreamKind kind, std::uint64_t bytes) {
  for (Pipe& pipe : pipes_) {
    if (pipe.from == from && pipe.to == to && pipe.kind == kind && !ends_[pipe.sender].is_closed) {
      pipe.flip_at = pipe.sent + bytes;
    }
  }
}

void Network::close_all(int process) {
  for (std::size_t end = 0; end < ends_.size(); ++end) {
    if (ends_[end].process == process) close(end);
  }
}

// With unread bytes a machine sends a reset, and forgets what it has not sent yet.
void Network::close(std::size_t number) {
  End& end = ends_[number];
  if (std::exchange(end.is_closed, true) || end.is_reset) return;
  const Pipe& in = pipes_[end.in];
  Pipe& out = pipes_[end.out];
  if (in.received.size() == in.read) return launch(end.out, {{}, {}, Segment::Kind::kEnd});
  // What has left the machine arrives.
  std::size_t left = 0;
  for (std::size_t kept = 0; kept < out.in_flight.size(); ++kept) {
    left += out.in_flight[kept].bytes.size();
    if (left > kWindow && dice_.one_in(2)) {
      out.in_flight.resize(kept);
      break;
    }
  }
  launch(end.out, {{}, {}, Segment::Kind::kReset});
}

std::size_t Network::open_ends() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(ends_, [](const End& end) { return !end.is_closed; }));
}

short Network::readiness(std::size_t number) const noexcept {
  const End& end = ends_[number];
  const Pipe& in = pipes_[end.in];
  const Pipe& out = pipes_[end.out];
  if (end.is_closed || end.is_reset) return POLLIN | POLLOUT | POLLRDHUP;
  int ready = 0;
  if (in.received.size() > in.read || in.has_ended) ready |= POLLIN;
  if (in.has_ended) ready |= POLLRDHUP;
  if (out.held < out.buffer) ready |= POLLOUT;
  return static_cast<short>(ready);
}

IoResult Network::send(std::size_t number, std::span<const iovec> pieces) {
  const End& end = ends_[number];
  Pipe& out = pipes_[end.out];
  if (end.is_closed || end.is_reset) return IoResult::closed();
  if (out.held >= out.buffer) return IoResult::would_block();
  const std::size_t count = std::min(total_bytes(pieces), out.buffer - out.held);
  Segment segment;
  segment.bytes.reserve(count);
  const ClippedPieces clipped(pieces, count);
  for (const iovec& piece : clipped.span()) {
    const auto* first = static_cast<const std::byte*>(piece.iov_base);
    segment.bytes.insert(segment.bytes.end(), first, first + piece.iov_len);
  }
  if (out.flip_at >= out.sent && out.flip_at < out.sent + count) {
    segment.bytes[static_cast<std::size_t>(out.flip_at - out.sent)] ^= std::byte{1} << dice_.below(8);
  }
  out.sent += count;
  out.held += count;
  assert(out.held <= out.buffer);
  out.unacknowledged += count;
  // A long one arrives in pieces.
  const std::size_t piece = count > 4096 && dice_.one_in(2) ? 1 + dice_.below(count) : count;
  if (piece < count) {
    Segment rest{{segment.bytes.begin() + static_cast<std::ptrdiff_t>(piece), segment.bytes.end()}, {}};
    segment.bytes.resize(piece);
    launch(end.out, std::move(segment));
    launch(end.out, std::move(rest));
  } else {
    launch(end.out, std::move(segment));
  }
  return IoResult::moved(count);
}

std::size_t Network::unread(std::size_t number) const noexcept {
  assert(pipes_[ends_[number].in].read <= pipes_[ends_[number].in].received.size());
  const Pipe& in = pipes_[ends_[number].in];
  return in.received.size() - in.read;
}

IoResult Network::peek(std::size_t number, MutBytes into) const {
  const End& end = ends_[number];
  const Pipe& in = pipes_[end.in];
  const std::size_t count = std::min(into.size(), unread(number));
  if (count == 0) return in.has_ended || end.is_reset ? IoResult::closed() : IoResult::would_block();
  std::memcpy(into.data(), in.received.data() + in.read, count);
  return IoResult::moved(count);
}

IoResult Network::receive(std::size_t number, MutBytes into) {
  if (ends_[number].is_closed) return IoResult::closed();
  const IoResult got = peek(number, into);
  if (got.kind != IoResult::Kind::kOk) return got;
  const std::size_t pipe = ends_[number].in;
  Pipe& in = pipes_[pipe];
  in.read += got.bytes;
  if (in.read == in.received.size()) {
    in.received = {};  // with its memory: most streams are quiet
    in.read = 0;
  }
  scheduler_.after(draw_time(in.to, in.from), [this, pipe, got] { open_window(pipe, got.bytes); });
  return got;
}

}  // namespace deltawire::simulation
