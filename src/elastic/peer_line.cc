#include "elastic/peer_line.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "transport/tcp/proof.h"

namespace deltawire::elastic {
namespace {

using namespace std::chrono_literals;

constexpr Clock::duration kTellPause = 500ms;
constexpr Clock::duration kTellTime = 100ms;  // a message fits into any buffer but a full one

tl::unexpected<Error> said_nothing(Clock::duration time) {
  return fail(ErrorCode::kTimeout, "another process said nothing for " + seconds_text(time) + " s");
}

tl::unexpected<Error> closed_meanwhile() {
  return fail(ErrorCode::kAborted, "the session was closed meanwhile");
}

}  // namespace

class PeerLine::Turn {
 public:
  explicit Turn(PeerLine& line) : line_(line) {
    MutexLock lock(line.mutex_);
    while (line.in_use_) line.freed_.wait(lock.standard());
    line.in_use_ = true;
  }
  ~Turn() {
    const MutexLock lock(line_.mutex_);
    line_.in_use_ = false;
    line_.freed_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  // Whether it may be used.
  Status taken() const {
    const MutexLock lock(line_.mutex_);
    return line_.is_broken_ ? fail(ErrorCode::kPeerLost, "the other end takes nothing") : Status();
  }

 private:
  PeerLine& line_;
};

Status PeerLine::send(Bytes bytes, Deadline until) {
  const Turn turn(*this);
  RETURN_IF_ERROR(turn.taken());
  return line_->send(bytes, until);
}

Result<std::vector<std::byte>> PeerLine::receive(std::size_t bytes_max, Deadline until) {
  const Turn turn(*this);
  RETURN_IF_ERROR(turn.taken());
  return line_->receive(bytes_max, until);
}

Result<std::optional<Message>> PeerLine::hear(Deadline until) {
  const auto got = receive(kMessageMax, until);
  if (!got) {
    if (got.error().code == ErrorCode::kTimeout) return std::nullopt;
    return forward_error(got);
  }
  ASSIGN_OR_RETURN(auto message, decode(*got));
  return std::optional(std::move(message));
}

Result<Message> PeerLine::hear_within(Clock::duration time, const Ending& ending) {
  Patience patience(time);
  while (true) {
    ASSIGN_OR_RETURN(auto heard, hear(MachineClock::now() + std::min(patience.left(), kSlice)));
    if (heard) return *std::move(heard);
    if (ending.is_set()) return closed_meanwhile();
    if (patience.is_over()) return said_nothing(time);
  }
}

Status PeerLine::send_bytes(Bytes bytes, Clock::duration within, const Ending& ending) {
  RETURN_IF_ERROR(say(BytesHead{bytes.size(), digest_of(bytes)}, within));
  while (!bytes.empty()) {
    const Bytes piece = bytes.first(std::min(kPieceBytes, bytes.size()));
    RETURN_IF_ERROR(send(piece, MachineClock::now() + within));
    bytes = bytes.subspan(piece.size());
    if (ending.is_set()) return closed_meanwhile();
  }
  return {};
}

Result<std::vector<std::byte>> PeerLine::receive_bytes(Clock::duration within, const Ending& ending,
                                                       std::uint64_t most) {
  auto first = hear_within(within, ending);
  while (first && (std::holds_alternative<Wait>(*first) || std::holds_alternative<Moves>(*first))) {
    first = hear_within(within, ending);
  }
  if (!first) return forward_error(first);
  const auto* const head = std::get_if<BytesHead>(&*first);
  if (head == nullptr || head->count > most) {
    return corrupt("another process sent no bytes where they were due");
  }
  std::vector<std::byte> bytes;
  Patience patience(within);
  while (bytes.size() < head->count) {
    const std::size_t due = std::min<std::uint64_t>(kPieceBytes, head->count - bytes.size());
    const auto piece = receive(due, MachineClock::now() + std::min(patience.left(), kSlice));
    if (piece && !piece->empty()) {
      bytes.insert(bytes.end(), piece->begin(), piece->end());
      patience = Patience(within);
    } else if (!piece && piece.error().code != ErrorCode::kTimeout) {
      return forward_error(piece);
    } else if (patience.is_over()) {
      return said_nothing(within);
    } else if (ending.is_set()) {
      return closed_meanwhile();
    }
  }
  if (digest_of(bytes) != head->digest) {
    return corrupt("the bytes of another process don't have the digest that it gave");
  }
  return bytes;
}

std::optional<Message> PeerLine::keep(std::optional<Message> message) {
  const MutexLock lock(mutex_);
  tell_at_ = {};
  return std::exchange(kept_, std::move(message));
}

void PeerLine::tell(Deadline now) {
  std::optional<Message> message;
  {
    const MutexLock lock(mutex_);
    if (in_use_ || !kept_ || is_broken_ || now < tell_at_) return;
    tell_at_ = now + kTellPause;
    message = kept_;
    in_use_ = true;
  }
  const bool is_sent = line_->send(encode(*message), now + kTellTime).has_value();
  const MutexLock lock(mutex_);
  in_use_ = false;
  is_broken_ = !is_sent;
  freed_.notify_all();
}

Digest digest_of(Bytes bytes) noexcept {
  return deltawire::digest_of(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

Result<std::shared_ptr<PeerLine>> Caller::call(const Endpoint& door, Clock::duration within,
                                               const Ending* also) const {
  Patience patience(within);
  const auto ends = [&] {
    (void)patience.left();
    return ending_.is_set() || (also != nullptr && also->is_set());
  };
  while (true) {
    auto line = call_at_door(door, options_, MachineClock::now() + patience.left(), ends);
    if (line) return std::make_shared<PeerLine>(*std::move(line));
    if (line.error().code != ErrorCode::kTimeout || patience.is_over()) return forward_error(line);
  }
}

Result<Message> Caller::ask(const Endpoint& door, const Message& question, Clock::duration within) const {
  ASSIGN_OR_RETURN(const auto line, call(door, within));
  RETURN_IF_ERROR(line->say(question, within));
  return line->hear_within(within, ending_);
}

}  // namespace deltawire::elastic
