// All other ranks of a mesh, and the memory for their unexpected messages.
#pragma once

#include <array>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/links/link.h"
#include "transport/mesh/control_message.h"
#include "transport/mesh/data_stream.h"

namespace deltawire {

// Both directions of the control stream to one peer.

class ControlStream {
 public:
  enum class End : std::uint8_t { kOpen, kClosed, kDamaged };

  ControlStream(std::unique_ptr<Link> link, int world_size) noexcept
      : link_(std::move(link)), parser_(world_size) {
    if (link_->holds_received()) read_at_ = Deadline{};
  }

  Link& link() noexcept { return *link_; }
  Traffic traffic() const noexcept { return traffic_; }
  End end() const noexcept { return end_; }
  // The errno that ended it; 0 if it was closed.
  int error() const noexcept { return error_; }

  // Queues a message and sends as much as the socket takes at once. Messages about waits, and their answers,
  // are dropped while a peer reads nothing, so that the queue stays small. If an allocation fails, nothing is
  // queued.
  void send(const ControlMessage& message);
  // Reserves room for that many bytes, so that sending them does not allocate.
  void reserve(std::size_t bytes) { unsent_.reserve(unsent_.size() + bytes); }
  // Sends encoded messages, whose bytes are reserve()d.
  void send_encoded(Bytes messages) noexcept;

  // Sends as much as the socket takes.
  void flush() noexcept;
  bool has_unsent() const noexcept { return !unsent_.empty() && may_send(); }
  // What arrives may be damaged while this direction is sound: then the peer is told why this rank leaves.
  bool may_send() const noexcept { return end_ != End::kClosed && !send_broken_; }

  // Begins to watch whether the peer's machine acknowledges all bytes sent so far, unless an earlier watch()
  // is still unacknowledged.
  void watch(Deadline now) noexcept;
  // For how long it has acknowledged none of the watched bytes; 0 once it has acknowledged all of them, or if
  // that is unknown.
  Clock::duration unacknowledged_for(Deadline now) noexcept;

  // Lets front() read what has arrived, up to a limit.
  void begin_reading() noexcept;
  // The next message; nullptr if there is none now, and end() tells whether there can be more. It stays until
  // pop(), so that no message is lost if an allocation fails, neither here nor while it is handled.
  const ControlMessage* front();
  void pop() noexcept { front_.reset(); }
  // When to read again without waiting for the socket: kNever unless the limit was reached, or postpone()
  // called. Control streams carry little; the limit keeps a peer that floods one from stalling this rank.
  Deadline read_at() const noexcept { return read_at_; }
  void postpone() noexcept;

 private:
  bool read();

  std::unique_ptr<Link> link_;
  Traffic traffic_;
  ControlParser parser_;
  std::vector<std::byte> unsent_;
  std::array<std::byte, 2048> buffer_;
  Bytes unparsed_;  // of it
  std::optional<ControlMessage> front_;
  std::size_t may_read_ = 0;  // bytes
  Deadline read_at_ = kNever;
  End end_ = End::kOpen;
  int error_ = 0;
  bool send_broken_ = false;
  std::uint64_t watched_bytes_ = 0;  // how many of all sent bytes are to be acknowledged
  Deadline watched_since_ = kNever;
};

// How long a leaving rank waits for the others to receive what it sent, and round trips, for lost packets.
inline constexpr std::chrono::milliseconds kFarewellTime{2000};
inline constexpr int kFarewellTrips = 10;

struct MeshMember {
  int rank = 0;
  std::uint32_t epoch = 0;  // Transport::epoch
  RankNames names{};        // Transport::names
};

// Two streams to each peer, so that an abort is never stuck behind a message without a receive.
struct PeerLinks {
  std::unique_ptr<Link> data;
  std::unique_ptr<Link> control;
};

// The engine's state for one other rank.
struct Peer {
  // How long a long message waits in its stream for a receive, which then takes it without a copy, before it
  // becomes an unexpected one. Only for sockets, where the kernel receives meanwhile; on other links bytes
  // may only move when they are read.
  static constexpr std::chrono::milliseconds kPatience{2};
  // Longer than an acknowledgement takes around the world, twice.
  static constexpr std::chrono::milliseconds kAcknowledgementTime{500};

  // `names` must outlive it.
  Peer(int peer_rank, PeerLinks links, int world_size, UnexpectedBlocks& blocks,
       const RankNames& names = RankNames::plain())
      : rank(peer_rank),
        data(std::move(links.data)),
        stands_alone(data->stands_alone()),
        control(std::move(links.control), world_size),
        sender(*data),
        receiver(peer_rank, *data, blocks, stands_alone ? kPatience : std::chrono::milliseconds{0}, names) {}

  const int rank;
  const std::unique_ptr<Link> data;
  const bool stands_alone;  // the data link
  ControlStream control;
  DataSender sender;
  DataReceiver receiver;

  bool sending = false;      // a thread sends, and may have released the lock meanwhile
  bool receiving = false;    // likewise
  bool is_left_out = false;  // the driver doesn't poll for it, because of these

  Deadline send_at = kNever;     // the link asks to send again then; kNever: when it is writable
  Deadline receive_at = kNever;  // likewise
  Deadline pump_at = kNever;     // the link holds bytes and asks for pump() then
  bool receive_again = data->holds_received();  // there may be bytes that are no longer in the socket
  bool receive_paused = false;                  // until a receive is posted, or until receive_at
  bool receive_ended = false;
  bool send_ended = false;
  bool said_goodbye = false;
  bool is_optional = false;  // Transport::set_optional
  // Why an optional peer was dropped; from then on its messages are ignored.
  std::optional<Error> departure;
  bool is_gone = false;      // its control stream has ended, and that was handled
  Deadline heard_at{};       // when something last arrived on its control stream
  Deadline moved_at{};       // when it said that a wait it had announced is over
  int deaf = -1;             // whose machine acknowledges nothing of it, by its word
  std::uint64_t place = 0;   // how many buckets it had begun by then
  bool was_late = false;     // when it was last asked, it had not begun the bucket that this rank waits for
  std::uint32_t starts = 0;  // how often its steps started anew
  std::uint64_t start_step = 0;  // the step at which they last did
  // The data stream broke without a goodbye: until when the peer may explain itself on the control stream,
  // and since when.
  Deadline verdict_at = kNever;
  Deadline silent_since = kNever;
  int stream_error = 0;

  // For how long the peer's machine has not acknowledged what it was asked: 0 if it has, or if the
  // acknowledgement may be in flight.
  Clock::duration deaf_for(Deadline now) noexcept {
    const Clock::duration time = control.unacknowledged_for(now);
    return time < kAcknowledgementTime ? Clock::duration{} : time;
  }
  bool wants_receive() const noexcept { return !receive_ended && !receive_paused; }
  bool wants_send() const noexcept { return !send_ended && !sender.empty(); }
  ScopedUnlock scoped_unlock(std::unique_lock<std::mutex>& lock, CallsInKernel& calls) const noexcept {
    return stands_alone ? ScopedUnlock(lock, calls) : ScopedUnlock();
  }
  Traffic traffic() const noexcept {
    const Traffic news = control.traffic();
    return {news.bytes_sent + sender.bytes_sent(), news.bytes_received + receiver.bytes_received()};
  }
  // Stops reading and writing both streams, except for what is left to send on the control stream.
  void depart(Error why) noexcept {
    departure = std::move(why);
    is_gone = receive_ended = send_ended = true;
    receive_paused = receive_again = false;
    send_at = receive_at = pump_at = verdict_at = kNever;
    sender.clear();
    receiver.clear();
  }
  // Whether `operation`, which is not done, can't complete any more.
  bool is_hopeless(const Operation& operation) const noexcept {
    if (!said_goodbye) return false;
    return operation.kind != Operation::Kind::kReceive || receive_ended;
  }
};

class Peers {
 public:
  // `links` by rank; the entry of `self` is empty.
  Peers(int self, std::vector<PeerLinks> links, RankNames names = {})
      : names_(std::move(names)), self_(self), peers_(links.size()) {
    for (int rank = 0; rank < world_size(); ++rank) {
      if (rank == self) continue;
      peers_[at(rank)] =
          std::make_unique<Peer>(rank, std::move(links[at(rank)]), world_size(), blocks_, names_);
    }
  }

  // This rank.
  int self() const noexcept { return self_; }
  int world_size() const noexcept { return static_cast<int>(peers_.size()); }
  const RankNames& names() const noexcept { return names_; }
  std::string name(int rank) const { return names_.of(rank); }
  // Whether it is another rank of this mesh.
  bool has(int rank) const noexcept { return rank >= 0 && rank < world_size() && rank != self_; }

  Peer& operator[](int rank) noexcept {
    assert(has(rank));
    return *peers_[at(rank)];
  }
  const Peer& operator[](int rank) const noexcept {
    assert(has(rank));
    return *peers_[at(rank)];
  }

  void each(auto visit) {
    for (const auto& peer : peers_) {
      if (peer) visit(*peer);
    }
  }
  // The first peer for which `holds` is true; nullptr: there is none.
  const Peer* find(auto holds) const {
    for (const auto& peer : peers_) {
      if (peer && holds(std::as_const(*peer))) return peer.get();
    }
    return nullptr;
  }

  void broadcast(const ControlMessage& message) {
    each([&message](Peer& peer) { peer.control.send(message); });
  }
  Traffic traffic() const noexcept {
    Traffic all;
    for (const auto& peer : peers_) {
      const Traffic one = peer ? peer->traffic() : Traffic{};
      all.bytes_sent += one.bytes_sent;
      all.bytes_received += one.bytes_received;
    }
    return all;
  }

  // All messages of a step have arrived. In the next step all of them may be unexpected, however few were in
  // this one, so this notes how much memory they would need.
  void note_step() noexcept {
    std::uint64_t blocks = 0;
    each([&blocks](const Peer& peer) { blocks += peer.receiver.unexpected_blocks(); });
    assert(blocks >= blocks_before_);
    step_blocks_ = blocks - blocks_before_;
    blocks_before_ = blocks;
  }
  // Reserves memory for the next step's messages, should all be unexpected.
  void reserve_unexpected() { blocks_.reserve(step_blocks_); }

 private:
  static std::size_t at(int rank) noexcept { return static_cast<std::size_t>(rank); }

  const RankNames names_;
  const int self_;
  UnexpectedBlocks blocks_;          // before the peers, which use it
  std::uint64_t blocks_before_ = 0;  // DataReceiver::unexpected_blocks of all peers, at the last step's end
  std::uint64_t step_blocks_ = 0;    // how many of them were for the last step
  std::vector<std::unique_ptr<Peer>> peers_;
};

}  // namespace deltawire
