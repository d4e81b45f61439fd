#include "elastic/founding.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/errors.h"
#include "base/little_endian.h"
#include "transport/tcp/proof.h"

namespace deltawire::elastic {

namespace {

using namespace std::chrono_literals;

constexpr Clock::duration kLook = 10ms;
constexpr Clock::duration kTelling = 10s;      // at most, for ranks that come after the founding has failed
constexpr Clock::duration kPause = 200ms;      // before a door is tried again at which nobody answered
constexpr Clock::duration kTellPause = 200ms;  // between two reports of how far a process is
// Of a process's time to get in: how long a member may be silent, if that is more than kSilence. Nobody waits
// for such a process, and machines that start many at once are slow.
constexpr int kPatiencePart = 4;
constexpr std::size_t kWhyMost = 1000;
constexpr std::uint64_t kLayoutMax = std::uint64_t{64} << 20;

std::string rank_text(int rank) {
  return "rank " + std::to_string(rank);
}

// The founding of one session.
class Founding {
 public:
  Founding(MeetingContext& context, int world_size) : context_(context), world_size_(world_size) {}

  Result<Agreement> run() {
    const Deadline end = MachineClock::now() + context_.options.connect_timeout;
    for (std::string missing = missing_ranks(); !missing.empty(); missing = missing_ranks()) {
      const PendingPeers callers = context_.reception->take_callers();
      for (const auto& peer : callers) {
        if (const std::string why = greet(peer); !why.empty()) return give_up(callers, end, why);
      }
      if (context_.ending.is_set() || (context_.options.interrupted && context_.options.interrupted())) {
        return fail(ErrorCode::kAborted, "the session was closed before all ranks had come");
      }
      // The last one may come before this process wakes up.
      if (MachineClock::now() > end && !(missing = missing_ranks()).empty()) return time_out(missing);
      context_.ending.pause(kLook);
    }
    return agree();
  }

 private:
  // Why the session can't begin; another process of the same rank is turned away alone.
  std::string greet(const std::shared_ptr<PendingPeer>& peer) {
    const auto* const found = std::get_if<Found>(&peer->said);
    if (found == nullptr) return {};
    const std::string rank = rank_text(found->rank);
    if (found->world_size != world_size_) {
      return rank + " was started for " + std::to_string(found->world_size) + " ranks, rank 0 for " +
             std::to_string(world_size_) + "; start all with the same number";
    }
    if (found->rank <= 0 || found->rank >= world_size_) {
      return rank + " is not in a world of " + std::to_string(world_size_);
    }
    if (found->settings != context_.settings) {
      return differing_settings("rank 0", context_.settings, rank, found->settings) + "; give all the same";
    }
    const auto before = ranks_.find(found->rank);
    if (before != ranks_.end() && before->second->line->is_waiting()) {
      const std::string why = "two processes call themselves " + rank + "; give each its own rank";
      (void)peer->line->say(Refused{ErrorCode::kMismatch, why});
    } else {
      ranks_[found->rank] = peer;
    }
    return {};
  }

  // With commas between.
  std::string missing_ranks() const {
    std::string missing;
    for (int rank = 1; rank < world_size_; ++rank) {
      const auto found = ranks_.find(rank);
      if (found != ranks_.end() && found->second->line->is_waiting()) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      if (found != ranks_.end()) missing += " (which has come and left)";
    }
    return missing;
  }

  Result<Agreement> time_out(const std::string& missing) {
    const std::string text = "rank 0 waited " + seconds_text(context_.options.connect_timeout) +
                             " s for ranks " + missing + "; were they started, with the same token?";
    for (const auto& [rank, peer] : ranks_) (void)peer->line->say(Refused{ErrorCode::kTimeout, text});
    return fail(ErrorCode::kTimeout, text, std::stoi(missing));
  }

  // A rank that was started in another way: all are told, also those who come until then.
  Result<Agreement> give_up(PendingPeers peers, Deadline end, const std::string& why) {
    for (const auto& [rank, peer] : ranks_) peers.push_back(peer);
    const Deadline until = std::min(end, MachineClock::now() + kTelling);
    std::set<int> told;
    while (static_cast<int>(told.size()) < world_size_ - 1 && MachineClock::now() < until &&
           !context_.ending.is_set()) {
      for (const auto& peer : peers) {
        const auto* const found = std::get_if<Found>(&peer->said);
        (void)peer->line->say(Refused{ErrorCode::kMismatch, why});
        if (found != nullptr) told.insert(found->rank);
      }
      context_.ending.pause(kLook);
      peers = context_.reception->take_callers();
    }
    return mismatch(why);
  }

  Result<Agreement> agree() {
    Agreement agreement;
    NextView& next = agreement.next;
    const auto random = random_nonce();
    if (!random) return fail(ErrorCode::kSystem, "the operating system gives no random bytes");
    next.job = load_le<std::uint64_t>(random->data());
    next.view.members.push_back({0, context_.reception->address()});
    for (const auto& [rank, peer] : ranks_) {
      next.view.members.push_back({rank, std::get<Found>(peer->said).address});
    }
    next.view.next_id = world_size_;
    ASSIGN_OR_RETURN(agreement.listener, context_.listen());
    next.meeting_place = agreement.listener->endpoint();
    for (const auto& [rank, peer] : ranks_) {
      (void)peer->line->say(next);  // who is gone will be missing in the mesh
    }
    return agreement;
  }

  MeetingContext& context_;
  const int world_size_;
  std::map<int, std::shared_ptr<PendingPeer>> ranks_;  // that have come, but for rank 0; some have left
};

}  // namespace

Result<Agreement> found_session(MeetingContext& context, int world_size) {
  return Founding(context, world_size).run();
}

Arrival::Arrival(MeetingContext& context, StateReceiver* receiver, Deadline end)
    : context_(context),
      receiver_(receiver),
      end_(end),
      patience_(std::max<Clock::duration>(kSilence, (end - MachineClock::now()) / kPatiencePart)),
      known_(context.options.doors) {}

Result<Agreement> Arrival::come(const Message& question) {
  std::string last = "nobody answers there";
  while (true) {
    if (context_.options.more_doors) add_doors(known_, context_.options.more_doors());
    for (const Endpoint& door : std::vector<Endpoint>(known_)) {
      RETURN_IF_ERROR(check_open());
      auto agreement = call(door, question);
      if (agreement && *agreement) return **std::move(agreement);
      if (agreement) continue;
      const Problem& problem = agreement.error();
      const ErrorCode code = problem.error.code;  // nobody there, or silence: again
      const bool may_come = code == ErrorCode::kPeerLost || code == ErrorCode::kTimeout;
      if (problem.is_final || !may_come) return tl::unexpected<Error>(problem.error);
      last = problem.error.text();
    }
    if (MachineClock::now() > end_) {
      return fail(ErrorCode::kTimeout, "no session took this process in at " +
                                           list_of(context_.options.doors, ",",
                                                   [](const Endpoint& door) { return to_string(door); }) +
                                           ": " + last);
    }
    context_.ending.pause(kPause);
  }
}

Arrival::OrNothing Arrival::call(const Endpoint& door, const Message& question) {
  const Clock::duration left = std::max<Clock::duration>(kSlice, end_ - MachineClock::now());
  const auto line = context_.caller.call(door, std::min(patience_, left));
  if (!line) return passing(line.error());
  if (Status said = (*line)->say(question); !said) return passing(said.error());
  return wait_at(*line);
}

Arrival::OrNothing Arrival::wait_at(const std::shared_ptr<PeerLine>& line) {
  Patience patience(patience_);
  ResidualShares shares;
  while (true) {
    if (Status open = check_open(); !open) return final_problem(open.error());
    if (MachineClock::now() > end_) return std::nullopt;
    auto heard = line->hear(MachineClock::now() + kSlice);
    if (!heard) return passing(heard.error());
    if (!*heard) {
      if (auto in_time = check_heard(patience); !in_time) return tl::unexpected<Problem>(in_time.error());
      continue;
    }
    const Message& message = **heard;
    if (const auto* const next = std::get_if<NextView>(&message)) {
      return Agreement{*next, std::move(shares), nullptr, {line}};
    }
    if (const auto* const offer = std::get_if<Offer>(&message); offer != nullptr && receiver_ != nullptr) {
      if (auto taken = take_state(*line, *offer); !taken) return tl::unexpected<Problem>(taken.error());
    }
    if (const auto* const first = std::get_if<Shares>(&message)) {
      auto received = receive_shares(*line, *first, context_.ending);
      if (!received) return passing(received.error());
      shares = *std::move(received);
    }
    patience = Patience(patience_);
    if (const auto* const elsewhere = std::get_if<Elsewhere>(&message)) {
      move_to_front(elsewhere->address);
      return std::nullopt;
    }
    if (std::holds_alternative<Again>(message)) return std::nullopt;
    if (const auto* const refused = std::get_if<Refused>(&message)) {
      const bool is_usual = refused->code == ErrorCode::kAborted || refused->code == ErrorCode::kTimeout;
      return final_problem(
          fail(is_usual ? refused->code : ErrorCode::kMismatch, refused->why.substr(0, kWhyMost)).value());
    }
  }
}

// From all members at once. If the host dies, another one says what the state is made of, and what has been
// taken counts.
Arrival::OrProblem<void> Arrival::take_state(PeerLine& line, const Offer& offer) {
  const auto bytes = line.receive_bytes(context_.chunk_time, context_.ending, kLayoutMax);
  if (!bytes) return passing(bytes.error());
  auto layout = state_layout_in(*bytes);
  if (!layout) return passing(layout.error());
  add_doors(known_, offer.doors);
  Patience patience(patience_);
  Deadline told_at = MachineClock::now();
  const auto look = [&](std::uint64_t taken) -> Status {
    RETURN_IF_ERROR(check_open());
    const Deadline now = MachineClock::now();
    ASSIGN_OR_RETURN(const auto heard, line.hear(now));
    if (heard) patience = Patience(patience_);
    if (auto in_time = check_heard(patience); !in_time) return tl::unexpected<Error>(in_time.error().error);
    if (now <= told_at + kTellPause) return {};
    told_at = now;
    return line.say(Taken{taken});
  };
  if (Status taken = receiver_->take(*std::move(layout), offer.doors, look); !taken) {
    return passing(taken.error());
  }
  end_ = std::max(end_, MachineClock::now() + patience_);  // it is as good as in
  if (Status said = line.say(Ready{}); !said) return passing(said.error());
  return {};
}

Arrival::OrProblem<void> Arrival::check_heard(Patience& patience) const {
  if (!patience.is_over()) return {};
  return passing(
      fail(ErrorCode::kTimeout, "a member said nothing for " + seconds_text(patience_) + " s").value());
}

Status Arrival::check_open() const {
  if (context_.options.interrupted && context_.options.interrupted()) {
    return fail(ErrorCode::kAborted, "interrupted before the session was connected");
  }
  return context_.check_open("before it was connected");
}

void add_doors(std::vector<Endpoint>& known, const std::vector<Endpoint>& doors) {
  for (const Endpoint& door : doors) {
    if (std::ranges::find(known, door) == known.end()) known.push_back(door);
  }
}

void Arrival::move_to_front(const Endpoint& door) {
  std::erase(known_, door);
  known_.insert(known_.begin(), door);
}

}  // namespace deltawire::elastic
