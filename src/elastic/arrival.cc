#include <algorithm>

#include "elastic/founding.h"

namespace deltawire::elastic {
namespace {

using namespace std::chrono_literals;

constexpr Clock::duration kPause = 200ms;      // before a door is tried again at which nobody answered
constexpr Clock::duration kTellPause = 200ms;  // between two reports of how far a process is
// Of a process's time to get in: how long a member may be silent, if that is more than kSilence. Nobody waits
// for such a process, and machines that start many at once are slow.
constexpr int kPatiencePart = 4;
constexpr std::size_t kWhyMost = 1000;
constexpr std::uint64_t kLayoutMax = std::uint64_t{64} << 20;

bool may_be_tried_again(const Error& error) {
  return error.code == ErrorCode::kPeerLost || error.code == ErrorCode::kTimeout;
}

}  // namespace

Arrival::Arrival(MeetingContext& context, StateReceiver* receiver, Deadline end)
    : context_(context),
      receiver_(receiver),
      end_(end),
      patience_(std::max<Clock::duration>(kSilence, (end - MachineClock::now()) / kPatiencePart)),
      known_(context.options.doors) {}

Result<Agreement> Arrival::come(const Message& question) {
  std::string last = "nobody answers there";
  while (true) {
    if (context_.options.more_doors) learn(context_.options.more_doors());
    for (const Endpoint& door : std::vector<Endpoint>(known_)) {
      if (Status open = check_open(); !open) return forward_error(open);
      auto agreement = call(door, question);
      if (agreement && *agreement) return **std::move(agreement);
      if (agreement) continue;
      const Problem& problem = agreement.error();
      if (problem.is_final || !may_be_tried_again(problem.error)) return tl::unexpected<Error>(problem.error);
      last = problem.error.text();
    }
    if (MachineClock::now() > end_) {
      return fail(ErrorCode::kTimeout, "no session took this process in at " + doors_text() + ": " + last);
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
  Deadline heard_at = MachineClock::now();
  ResidualShares shares;
  while (true) {
    if (Status open = check_open(); !open) return final_problem(open.error());
    if (MachineClock::now() > end_) return std::nullopt;
    auto heard = line->hear(MachineClock::now() + kSlice);
    if (!heard) return passing(heard.error());
    if (!*heard) {
      if (auto in_time = check_heard(heard_at); !in_time) return tl::unexpected<Problem>(in_time.error());
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
    heard_at = MachineClock::now();
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
  learn(offer.doors);
  Deadline heard_at = MachineClock::now();
  Deadline told_at = heard_at;
  const auto look = [&](std::uint64_t taken) -> Status {
    if (Status open = check_open(); !open) return open;
    const Deadline now = MachineClock::now();
    const auto heard = line.hear(now);
    if (!heard) return forward_error(heard);
    if (*heard) heard_at = now;
    if (auto in_time = check_heard(heard_at); !in_time) return tl::unexpected<Error>(in_time.error().error);
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

Arrival::OrProblem<void> Arrival::check_heard(Deadline at) const {
  if (MachineClock::now() <= at + patience_) return {};
  return passing(
      fail(ErrorCode::kTimeout, "a member said nothing for " + seconds_text(patience_) + " s").value());
}

Status Arrival::check_open() const {
  if (context_.options.interrupted && context_.options.interrupted()) {
    return fail(ErrorCode::kAborted, "interrupted before the session was connected");
  }
  return context_.check_open("before it was connected");
}

void Arrival::learn(const std::vector<Endpoint>& doors) {
  for (const Endpoint& door : doors) {
    if (std::ranges::find(known_, door) == known_.end()) known_.push_back(door);
  }
}

void Arrival::move_to_front(const Endpoint& door) {
  std::erase(known_, door);
  known_.insert(known_.begin(), door);
}

std::string Arrival::doors_text() const {
  std::string text;
  for (const Endpoint& door : context_.options.doors) text += (text.empty() ? "" : ",") + to_string(door);
  return text;
}

}  // namespace deltawire::elastic
