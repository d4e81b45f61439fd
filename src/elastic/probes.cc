#include "elastic/probes.h"

namespace deltawire::elastic {
namespace {

using namespace std::chrono_literals;

constexpr Clock::duration kPause = 500ms;  // between two probes of one member
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
    asked.again = now + kPause + kSilence;  // until it is answered
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
  asked.found = std::move(found);
  if (line) asked.line = std::move(line);
  asked.again = MachineClock::now() + kPause;
  shared.came.notify_all();
}

}  // namespace deltawire::elastic
