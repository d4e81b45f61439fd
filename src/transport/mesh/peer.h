// The engine's state for one other rank.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "transport/links/link.h"
#include "transport/mesh/control_stream.h"
#include "transport/mesh/data_stream.h"

namespace deltawire {

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

}  // namespace deltawire
