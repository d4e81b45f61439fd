#include "elastic/meeting.h"

#include <algorithm>

#include "elastic/hosting.h"

namespace deltawire::elastic {
namespace {

using namespace std::chrono_literals;

constexpr Clock::duration kPause = 50ms;   // before the candidates are tried again
constexpr Clock::duration kGrace = 250ms;  // before a member with a higher id is asked, too
// Of the meeting's time: how long a member is waited for that should host and doesn't come; longer than a
// host waits for such a member (decision.cc). And a host, which says itself when it gives up.
constexpr double kPatience = 0.7;
constexpr double kPatienceAtHost = 1.2;
// Nobody is given up before it has been waited for so long, or kSilence if that is less: members that come
// late in a meeting, after an attempt that failed, need a moment, too.
constexpr double kAtLeast = 0.15;
constexpr std::size_t kWhyMost = 1000;
constexpr const char* kWhileMeeting = "while its members met";

constexpr Clock::duration kProbePause = 500ms;  // between two probes of one member
constexpr const char* kEnded = "its process has ended";

Finding gone(const Error& error) {
  if (error.code != ErrorCode::kTimeout) return {std::nullopt, kEnded};
  return {std::nullopt, "it answered nothing for " + seconds_text(kSilence) + " s"};
}

struct Answer {
  Finding found;
  std::shared_ptr<PeerLine> line;
};

Answer probe(const Caller& caller, const Member& member, std::uint64_t job) {
  const auto line = caller.call(member.door);
  if (!line) return {gone(line.error()), nullptr};
  if (const Status said = (*line)->say(Probe{}); !said) return {gone(said.error()), nullptr};
  const auto heard = (*line)->hear_within(kSilence, caller.ending());
  if (!heard) return {gone(heard.error()), nullptr};
  const auto* const here = std::get_if<Here>(&*heard);
  const bool is_it =
      here != nullptr && here->place && here->place->job == job && here->place->id == member.id;
  if (!is_it) return {{std::nullopt, kEnded}, nullptr};
  return {{here->place, {}}, *line};
}

}  // namespace

void Probes::ask(const Member& member) {
  const Deadline now = MachineClock::now();
  {
    const MutexLock lock(shared_->mutex);
    Asked& asked = shared_->asked[member.id];
    if (now < asked.again) return;
    asked.again = now + kProbePause + kSilence;  // until it is answered
  }
  (void)context_.probing.start([&caller = context_.caller, shared = shared_, member, job = job_] {
    Answer answer = probe(caller, member, job);
    keep(*shared, member.id, std::move(answer.found), std::move(answer.line));
  });
}

std::map<int, Finding> Probes::findings() const {
  std::map<int, Finding> all;
  const MutexLock lock(shared_->mutex);
  for (const auto& [id, asked] : shared_->asked) {
    if (asked.found) all[id] = *asked.found;
  }
  return all;
}

Ids Probes::answered() const {
  Ids all;
  const MutexLock lock(shared_->mutex);
  for (const auto& [id, asked] : shared_->asked) {
    if (asked.line) all.insert(id);
  }
  return all;
}

std::shared_ptr<PeerLine> Probes::line_to(const Member& member, Clock::duration within) {
  {
    const MutexLock lock(shared_->mutex);
    Asked& asked = shared_->asked[member.id];
    // The line was used, so it is asked for another one.
    if (asked.found && !asked.line && !asked.found->is_gone()) asked = {};
  }
  ask(member);
  MutexLock lock(shared_->mutex);
  Asked& asked = shared_->asked[member.id];
  const Deadline until = MachineClock::now() + within;
  while (!asked.found && MachineClock::now() < until) shared_->came.wait_until(lock.standard(), until);
  return std::exchange(asked.line, nullptr);
}

void Probes::note(int id, const Error& error) {
  if (error.code == ErrorCode::kTimeout) keep(*shared_, id, gone(error), nullptr);
}

void Probes::keep(Shared& shared, int id, Finding found, std::shared_ptr<PeerLine> line) {
  const MutexLock lock(shared.mutex);
  Asked& asked = shared.asked[id];
  // Nobody shall wait on another line of one that is gone.
  if (line || found.is_gone()) asked.line = std::move(line);
  asked.found = std::move(found);
  asked.again = MachineClock::now() + kProbePause;
  shared.came.notify_all();
}

tl::unexpected<Ended> ended(Error error) {
  return tl::unexpected<Ended>(Ended{std::move(error), std::nullopt});
}

tl::unexpected<Ended> excluded(std::optional<std::uint32_t> epoch, const std::string& why) {
  const std::string in = epoch ? " in epoch " + std::to_string(*epoch) : "";
  return tl::unexpected<Ended>(Ended{
      fail(ErrorCode::kExcluded, "the other members went on without this process" + in + ": " +
                                     why.substr(0, kWhyMost) + "; join the session again, as a new member")
          .value(),
      epoch});
}

// What a member holds while it waits at a host's door.
struct Meeting::Visit {
  std::shared_ptr<PeerLine> line;
  ResidualShares shares;
};

OrEnded<Agreement> Meeting::agree() {
  context_.reception->meet();
  while (true) {
    bool has_lower = false;
    for (const Member& member : others()) {
      if (member.id > state_.id || given_up_.contains(member.id)) continue;
      const auto line = probes_.line_to(member, kGrace);
      if (!line) continue;
      auto agreement = attend(member, line);
      if (!agreement) return tl::unexpected<Ended>(agreement.error());
      if (*agreement) return **std::move(agreement);
      if ((has_lower = answers_below(member.id))) break;
    }
    if (has_lower && !is_over()) continue;
    auto hosted = Hosting(*this).host();
    if (!hosted) return tl::unexpected<Ended>(hosted.error());
    if (*hosted) return **std::move(hosted);
    if (is_over()) {
      if (auto included = check_included(); !included) return tl::unexpected<Ended>(included.error());
      return ended(fail(ErrorCode::kNoQuorum, out_of_time(context_.limit)).value());
    }
    context_.ending.pause(kPause);
  }
}

std::vector<Member> Meeting::others() const {
  const Left left = context_.reception->left();
  std::vector<Member> all;
  for (const auto& [id, member] : state_.known()) {
    if (id != state_.id && !left.contains(id)) all.push_back(member);
  }
  return all;
}

OrEnded<void> Meeting::check_included() {
  Probes probes(context_, state_.job);
  std::vector<Member> waiting = others();
  for (const Member& member : waiting) probes.ask(member);
  const Deadline end = MachineClock::now() + 2 * kSilence;
  while (!waiting.empty() && MachineClock::now() < end && !context_.ending.is_set()) {
    for (const auto& [id, found] : probes.findings()) {
      if (is_left_out(found, state_)) return excluded(found.place->view.epoch, "it did not answer in time");
      std::erase_if(waiting, [&](const Member& member) { return member.id == id; });
    }
    if (!waiting.empty()) context_.ending.pause(kPause);
  }
  return {};
}

bool Meeting::answers_below(int id) {
  for (const Member& member : others()) {
    if (member.id < id && !given_up_.contains(member.id)) probes_.ask(member);
  }
  return std::ranges::any_of(probes_.answered(),
                             [&](int other) { return other < id && !given_up_.contains(other); });
}

Meeting::OrNothing Meeting::attend(const Member& member, const std::shared_ptr<PeerLine>& line) {
  const auto lost = [&](const Error& error) -> OrNothing {
    probes_.note(member.id, error);
    return std::nullopt;  // it is gone, or not to be reached
  };
  Left left = context_.reception->left();
  const auto known = state_.known();
  std::erase_if(left, [&](const auto& each) { return !known.contains(each.first); });
  if (Status said = line->say(Meet{state_, std::move(left)}); !said) return lost(said.error());
  Visit visit{line, {}};
  const Deadline begun = MachineClock::now();
  Deadline heard_at = begun;
  Patience patience(kSilence);
  bool is_hosted = false;
  while (true) {
    if (Status open = context_.check_open(kWhileMeeting); !open) return ended(open);
    redirect(member);
    auto heard = line->hear(MachineClock::now() + kSlice);
    if (!heard) return lost(heard.error());
    const Deadline now = MachineClock::now();
    if (!*heard) {
      if (patience.is_over()) return lost({ErrorCode::kTimeout, "a host said nothing"});
      if (!is_hosted && answers_below(member.id)) return std::nullopt;
    } else {
      const Message& message = **heard;
      if (std::holds_alternative<Again>(message)) return std::nullopt;
      auto agreement = take(visit, message);
      if (!agreement) {
        const ErrorCode code = agreement.error().error.code;
        const bool is_end =
            code == ErrorCode::kExcluded || code == ErrorCode::kNoQuorum || code == ErrorCode::kAborted;
        return is_end ? OrNothing(tl::unexpected<Ended>(agreement.error())) : lost(agreement.error().error);
      }
      if (*agreement) return agreement;
      const auto* const wait = std::get_if<Wait>(&message);
      // States move, and the host limits that.
      if (wait == nullptr) stand_still(MachineClock::now() - heard_at);
      heard_at = MachineClock::now();
      patience = Patience(kSilence);
      is_hosted = wait == nullptr || wait->hosted;
    }
    if (is_out_of_patience(now - begun, is_hosted)) {
      given_up_.insert(member.id);
      return std::nullopt;
    }
  }
}

bool Meeting::is_out_of_patience(Clock::duration waited, bool is_hosted) const {
  const bool is_short = waited < std::min(1.0 * kSilence, kAtLeast * context_.limit) && !is_over();
  return !is_short && passed() > (is_hosted ? kPatienceAtHost : kPatience) * context_.limit;
}

// Does what the host's message asks for.
OrEnded<std::optional<Agreement>> Meeting::take(Visit& visit, const Message& message) {
  const auto checked = [](const Status& done) -> OrEnded<std::optional<Agreement>> {
    if (!done) return ended(done);
    return std::nullopt;
  };
  if (const auto* const next = std::get_if<NextView>(&message)) {
    Ids due;
    if (next->shares) due.insert(next->shares->begin(), next->shares->end());
    due.erase(state_.id);
    Ids had;
    for (const auto& [id, share] : visit.shares) had.insert(id);
    if (next->shares && due != had) {
      return ended({ErrorCode::kCorrupt, "another member sent an agreement with other residuals"});
    }
    return Agreement{*next, std::move(visit.shares), nullptr, {visit.line}};
  }
  if (std::holds_alternative<AskShare>(message)) {
    const auto share = shared_state(context_.residuals);
    if (!share) return ended(share);
    return checked(visit.line->send_bytes(*share, kSilence, context_.ending));
  }
  if (const auto* const shares = std::get_if<Shares>(&message)) {
    auto received = receive_shares(*visit.line, *shares, context_.ending);
    if (!received) return ended(received);
    visit.shares = *std::move(received);
    // So that no other view of that epoch has this member.
    state_.promised = std::max(state_.promised, shares->epoch);
    return std::nullopt;
  }
  if (std::holds_alternative<Offer>(message)) {
    (void)context_.offer_state();  // where it fails, the others give without this one
    return std::nullopt;
  }
  if (const auto* const out = std::get_if<Excluded>(&message)) return excluded(out->epoch, out->why);
  if (const auto* const alone = std::get_if<Alone>(&message)) {
    return ended(fail(ErrorCode::kNoQuorum, alone->why.substr(0, kWhyMost)).value());
  }
  return std::nullopt;
}

}  // namespace deltawire::elastic
