// All that the engine keeps about one other rank.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "transport/links/link.h"
#include "transport/mesh/control_stream.h"
#include "transport/mesh/data_receiver.h"
#include "transport/mesh/data_sender.h"

namespace deltawire {

// How long a leaving rank waits for the others to take what it sent.
inline constexpr std::chrono::milliseconds kFarewellTime{2000};

struct MeshMember {
  int rank = 0;
  std::uint32_t epoch = 0;  // Transport::epoch
};

// Two streams to each peer, so that an abort is never stuck behind a message that nobody claims.
struct PeerLinks {
  std::unique_ptr<Link> data;
  std::unique_ptr<Link> control;
};

struct Peer {
  // How long a long message waits in its stream for a receive, which then takes it without a copy, before it
  // becomes an unexpected one. The kernel goes on receiving meanwhile; on other links, reading may be the
  // line.
  static constexpr std::chrono::milliseconds kPatience{2};

  Peer(int peer_rank, PeerLinks links, int world_size, UnexpectedBlocks& blocks)
      : rank(peer_rank),
        data(std::move(links.data)),
        stands_alone(data->stands_alone()),
        control(std::move(links.control), world_size),
        sender(*data),
        receiver(peer_rank, *data, blocks, stands_alone ? kPatience : std::chrono::milliseconds{0}) {}
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const int rank;
  const std::unique_ptr<Link> data;
  const bool stands_alone;  // the data link
  ControlStream control;
  DataSender sender;
  DataReceiver receiver;

  bool sending = false;      // a thread does, and may have let go of the lock meanwhile
  bool receiving = false;    // likewise
  bool is_left_out = false;  // of what the driver polls for, because of these

  Deadline send_at = kNever;     // the link asks to send again then; kNever: when it is writable
  Deadline receive_at = kNever;  // likewise
  Deadline pump_at = kNever;     // the link holds bytes and asks for pump() then
  bool receive_again = false;    // there may be bytes that are no longer in the socket
  bool receive_paused = false;   // until somebody posts a receive, or until receive_at
  bool receive_ended = false;
  bool send_ended = false;
  bool said_goodbye = false;
  bool is_optional = false;  // Transport::set_optional
  // Of an optional one: why nothing that comes from it is heeded.
  std::optional<Error> departure;
  bool is_gone = false;          // its control stream has ended, and this rank has drawn its conclusions
  Deadline heard_at{};           // when its control stream last brought something
  std::uint64_t place = 0;       // buckets that it had begun by then
  bool was_late = false;         // when it was last asked, it had not begun what this rank waits for
  std::uint32_t starts = 0;      // how often its steps began anew
  std::uint64_t start_step = 0;  // the last time, at this one
  // The data stream broke without a farewell: the peer is given until then to explain itself.
  Deadline verdict_at = kNever;
  int stream_error = 0;

  bool wants_receive() const noexcept { return !receive_ended && !receive_paused; }
  bool wants_send() const noexcept { return !send_ended && !sender.empty(); }
  ScopedUnlock scoped_unlock(std::unique_lock<std::mutex>& lock, CallsInKernel& calls) const noexcept {
    return stands_alone ? ScopedUnlock(lock, calls) : ScopedUnlock();
  }
  Traffic traffic() const noexcept {
    const Traffic news = control.traffic();
    return {news.bytes_sent + sender.bytes_sent(), news.bytes_received + receiver.bytes_received()};
  }
  // Neither stream is read or written any more, but for what the control stream has yet to say.
  void depart(Error why) noexcept {
    departure = std::move(why);
    is_gone = receive_ended = send_ended = true;
    receive_paused = receive_again = false;
    send_at = receive_at = pump_at = verdict_at = kNever;
    sender.clear();
    receiver.clear();
  }
  // Whether `operation`, not done yet, can't be done any more.
  bool is_hopeless(const Operation& operation) const noexcept {
    if (!said_goodbye) return false;
    return operation.kind != Operation::Kind::kReceive || receive_ended;
  }
};

}  // namespace deltawire
