// A line to another process of an elastic session: messages, bytes of any length, and a message that is
// repeated while the other end waits.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "deltawire/door.h"
#include "elastic/messages.h"
#include "elastic/timing.h"

namespace deltawire::elastic {

inline constexpr std::size_t kPieceBytes = std::size_t{16} << 10;  // takes less than kSilence at 44 kbit/s

// Thread rule: any thread; each call has the line to itself.
class PeerLine {
 public:
  explicit PeerLine(std::unique_ptr<Line> line) : line_(std::move(line)) {}

  // kTimeout, kPeerLost; the line is of no use then.
  Status say(const Message& message, Clock::duration within = kSilence) {
    return send(encode(message), MachineClock::now() + within);
  }
  // The next message; nothing: none has come by then. kPeerLost, and the errors of decode.
  Result<std::optional<Message>> hear(Deadline until);
  // kTimeout instead of nothing; kAborted, soon, once `ending` is set.
  Result<Message> hear_within(Clock::duration time, const Ending& ending);
  // Whether the other end waits: it has neither hung up nor said anything.
  bool is_waiting() {
    const auto heard = hear(MachineClock::now());
    return heard && !*heard;
  }

  // In pieces, with their digest. `within`: for each piece.
  Status send_bytes(Bytes bytes, Clock::duration within, const Ending& ending);
  // What send_bytes sent. kCorrupt where the digest is another one; kTimeout where a piece takes longer.
  Result<std::vector<std::byte>> receive_bytes(Clock::duration within, const Ending& ending,
                                               std::uint64_t most = std::uint64_t{1} << 40);

  // From now on tell() repeats this, twice a second; nothing: no message. Returns what it was before.
  std::optional<Message> keep(std::optional<Message> message);
  // Says it if it is time to, and nobody uses the line.
  void tell(Deadline now);

 private:
  // Whoever uses the line. Not a mutex, which threads of a simulation can't hold while they wait.
  class Turn;

  Status send(Bytes bytes, Deadline until);
  Result<std::vector<std::byte>> receive(std::size_t bytes_max, Deadline until);

  const std::unique_ptr<Line> line_;
  Mutex mutex_;
  Condition freed_;
  bool in_use_ DELTAWIRE_GUARDED_BY(mutex_) = false;
  bool is_broken_ DELTAWIRE_GUARDED_BY(mutex_) = false;
  std::optional<Message> kept_ DELTAWIRE_GUARDED_BY(mutex_);
  Deadline tell_at_ DELTAWIRE_GUARDED_BY(mutex_){};
};

// Meanwhile nothing is said on the line but by the caller, and `message` again and again if there is one.
class Busy {
 public:
  explicit Busy(PeerLine& line, std::optional<Message> message = std::nullopt)
      : line_(line), before_(line.keep(std::move(message))) {}
  ~Busy() { line_.keep(std::move(before_)); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  PeerLine& line_;
  std::optional<Message> before_;
};

Digest digest_of(Bytes bytes) noexcept;

// How a process calls at the doors of others.
class Caller {
 public:
  // The ending must outlive it: once it is set, calls end with kAborted.
  Caller(const DoorOptions& options, const Ending& ending) : options_(options), ending_(ending) {}

  // `also`: another reason to end.
  Result<std::shared_ptr<PeerLine>> call(const Endpoint& door, Clock::duration within = kSilence,
                                         const Ending* also = nullptr) const;
  // One message and the answer.
  Result<Message> ask(const Endpoint& door, const Message& question, Clock::duration within) const;
  const Ending& ending() const { return ending_; }

 private:
  const DoorOptions options_;
  const Ending& ending_;
};

}  // namespace deltawire::elastic
