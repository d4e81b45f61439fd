#include "elastic/reception.h"

#include <algorithm>
#include <string_view>

#include "base/errors.h"

namespace deltawire::elastic {
namespace {

using namespace std::chrono_literals;

constexpr Clock::duration kLook = 50ms;
constexpr Clock::duration kLookAtFresh = 5ms;
constexpr Clock::duration kLookAtReader = 1ms;
constexpr Clock::duration kAnswerTime = 100ms;  // an answer fits into any buffer but a full one
constexpr Clock::duration kFirstMessage = 9s;
constexpr std::size_t kFreshMax = kMembersMax;  // all may call a host at once
constexpr std::size_t kGivingMax = 32;          // processes that take a state here at once
constexpr std::size_t kSettingsMost = 1000;     // characters of another process's that are looked at
constexpr std::size_t kWhyMost = 200;  // as a member's state has those of all that left since the last step

// Whether a comma at `at` stands before "name=", and so between two settings; others are within a spec.
bool stands_before_name(std::string_view text, std::size_t at) {
  const std::size_t first = at + 2;
  std::size_t end = first;
  while (end < text.size() && (text[end] == '_' || (text[end] >= 'a' && text[end] <= 'z'))) ++end;
  return end > first && end < text.size() && text[end] == '=';
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::string_view next = text.substr(at);
    const bool is_break = next.starts_with("; ") || (next.starts_with(", ") && stands_before_name(text, at));
    const bool is_space = next.starts_with(" ") && stands_before_name(text, at - 1);
    if (is_break || is_space) {
      words.emplace_back();
      at += is_break ? 1 : 0;
    } else {
      words.back() += text[at];
    }
  }
  return words;
}

std::string only_in(const std::vector<std::string>& words, const std::vector<std::string>& others) {
  std::string only;
  for (const std::string& word : words) {
    if (std::ranges::find(others, word) != others.end()) continue;
    only += (only.empty() ? "" : ", ") + word;
  }
  return only.empty() ? "less" : only;
}

// A member that meets may know views that the one at `place` does not: only who is out of the view in which
// that one runs, and knows none later, is turned away.
bool is_awaited(const Meet& meet, const std::optional<Place>& place) {
  if (!place || meet.state.job != place->job) return false;
  return place->view.has(meet.state.id) || meet.state.latest_epoch() > place->view.epoch;
}

}  // namespace

std::string differing_settings(const std::string& one, const std::string& its, const std::string& other,
                               std::string others) {
  others.resize(std::min(others.size(), kSettingsMost));
  const auto words = words_of(its);
  const auto theirs = words_of(others);
  return one + " has " + only_in(words, theirs) + ", and " + other + " " + only_in(theirs, words);
}

std::deque<Busy> keep_waiting(const PendingPeers& peers) {
  std::deque<Busy> kept;
  for (const auto& peer : peers) kept.emplace_back(*peer->line, Moves{});
  return kept;
}

Reception::Reception(std::unique_ptr<Door> door, std::string settings, Clock::duration within)
    : settings_(std::move(settings)), within_(within), door_(std::move(door)), address_(door_->endpoint()) {}

Result<std::unique_ptr<Reception>> Reception::open(std::unique_ptr<Door> door, std::string settings,
                                                   Clock::duration within) {
  std::unique_ptr<Reception> made(new Reception(std::move(door), std::move(settings), within));
  try {
    const MutexLock lock(made->mutex_);
    made->thread_.emplace([reception = made.get()] { reception->run(); });
  } catch (const std::system_error& error) {
    made->is_closed_.set();
    return no_thread("the door of an elastic session", error);
  }
  return made;
}

void Reception::enter(std::uint64_t job, int id, const View& view) {
  PendingPeers waiting;
  std::shared_ptr<const StateSender> given;
  {
    const MutexLock lock(mutex_);
    place_ = Place{job, id, false, view};
    meets_ = false;
    given.swap(offer_);
    waiting.swap(callers_);
    waiting.insert(waiting.end(), joiners_.begin(), joiners_.end());
    joiners_.clear();
  }
  for (const auto& peer : waiting) (void)receive(peer);
  // A thread that reads the caller's arrays does so for the time of a chunk.
  Ending never;  // ends_ may be set, and no loop may go round without waiting
  while (given.use_count() > 1) never.pause(kLookAtReader);
}

void Reception::withdraw() {
  PendingPeers waiting;
  {
    const MutexLock lock(mutex_);
    place_.reset();
    waiting.swap(callers_);
  }
  for (const auto& peer : waiting) (void)peer->line->say(Again{}, kAnswerTime);
}

PendingPeers Reception::take(PendingPeers Reception::* from) {
  PendingPeers taken;
  {
    const MutexLock lock(mutex_);
    taken.swap(this->*from);
  }
  std::erase_if(taken, [](const auto& peer) { return !peer->line->is_waiting(); });
  return taken;
}

bool Reception::is_called_by(const View& view) {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(callers_, [&](const auto& peer) {
    const auto* const meet = std::get_if<Meet>(&peer->said);
    return meet != nullptr && view.has(meet->state.id) && peer->line->is_waiting();
  });
}

void Reception::forget_left(const View& view) {
  const MutexLock lock(mutex_);
  std::erase_if(left_, [&](const auto& each) { return !view.has(each.first); });
}

void Reception::close() {
  ends_.set();
  std::optional<MachineThread> running;
  {
    const MutexLock lock(mutex_);
    running.swap(thread_);
  }
  if (!running) return is_closed_.wait();
  running->join();
  giving_.join();
  is_closed_.set();
}

void Reception::run() {
  while (!ends_.is_set()) {
    auto line = door_->answer(MachineClock::now() + (fresh_.empty() ? kLook : kLookAtFresh));
    const Deadline now = MachineClock::now();
    if (line) {
      fresh_.push_back({std::make_shared<PeerLine>(*std::move(line)), now + kFirstMessage});
      if (fresh_.size() > kFreshMax) fresh_.pop_front();
    } else if (line.error().code != ErrorCode::kTimeout) {
      ends_.pause(kLook);
    }
    for (std::size_t count = fresh_.size(); count > 0; --count) {
      Fresh fresh = std::move(fresh_.front());
      fresh_.pop_front();
      if (hear(fresh, now)) fresh_.push_back(std::move(fresh));
    }
    for (const auto& each : kept_) {
      if (const auto kept = each.lock()) kept->tell(now);
    }
    std::erase_if(kept_, [](const auto& each) { return each.expired(); });
    // Nothing here waits, so the lock is short; a line is nobody else's as long as it is in a list.
    const MutexLock lock(mutex_);
    std::erase_if(callers_, [](const auto& peer) { return !peer->line->is_waiting(); });
    std::erase_if(joiners_, [](const auto& peer) { return !peer->line->is_waiting(); });
  }
  door_.reset();  // nobody listens any more
  fresh_.clear();
  const MutexLock lock(mutex_);
  callers_.clear();
  joiners_.clear();
  offer_.reset();
}

bool Reception::hear(Fresh& fresh, Deadline now) {
  auto heard = fresh.line->hear(now);
  if (!heard) {
    // Who speaks another version is told, and knows this one's name then.
    if (heard.error().code == ErrorCode::kMismatch) {
      (void)fresh.line->say(Refused{ErrorCode::kMismatch, heard.error().message}, kAnswerTime);
    }
    return false;
  }
  if (!*heard) return now < fresh.until;
  if (std::holds_alternative<Probe>(**heard)) {
    fresh.until = now + kFirstMessage;  // it may come to the meeting on this line
    Here here;
    {
      const MutexLock lock(mutex_);
      here.place = place_;
      if (here.place) here.place->meets = meets_;
    }
    return fresh.line->say(here, kAnswerTime).has_value();
  }
  if (receive(std::make_shared<PendingPeer>(fresh.line, **std::move(heard)))) kept_.emplace_back(fresh.line);
  return false;
}

bool Reception::receive(const std::shared_ptr<PendingPeer>& peer) {
  if (const auto* const take = std::get_if<Take>(&peer->said)) {
    give(peer->line, *take);
    return false;
  }
  std::optional<Message> answer;
  {
    const MutexLock lock(mutex_);
    answer = place_peer(peer);
  }
  if (answer) (void)peer->line->say(*answer, kAnswerTime);
  return !answer;
}

std::optional<Message> Reception::place_peer(const std::shared_ptr<PendingPeer>& peer) {
  std::optional<Message> answer;
  PendingPeers* waiting = &callers_;
  if (std::holds_alternative<Found>(peer->said)) {
    if (place_ && !place_->meets) {
      answer =
          Refused{ErrorCode::kMismatch, "the session has begun; to join it leave out rank= and world_size="};
    }
  } else if (const auto* const meet = std::get_if<Meet>(&peer->said)) {
    if (!is_awaited(*meet, place_)) {
      answer =
          Excluded{place_ ? std::optional(place_->view.epoch) : std::nullopt, "it did not answer in time"};
    }
  } else if (const auto* const join = std::get_if<Join>(&peer->said)) {
    answer = answer_to(*join);
    waiting = &joiners_;
  } else if (const auto* const leaves = std::get_if<Leaves>(&peer->said)) {
    if (place_ && leaves->job == place_->job) left_[leaves->id] = leaves->why.substr(0, kWhyMost);
    return Heard{};
  } else {
    return Again{};  // nonsense
  }
  if (!answer) {
    peer->line->keep(Wait{});
    waiting->push_back(peer);
  }
  return answer;
}

// The member with the lowest id takes joiners in; at a meeting, its host.
std::optional<Message> Reception::answer_to(const Join& join) {
  if (join.settings != settings_) {
    return Refused{ErrorCode::kMismatch,
                   differing_settings("the session", settings_, "this process", join.settings)};
  }
  if (!place_ || meets_ || place_->view.members.front().id == place_->id) return std::nullopt;
  return Elsewhere{place_->view.members.front().door};
}

void Reception::give(const std::shared_ptr<PeerLine>& line, const Take& first) {
  if (giving_.running() >= kGivingMax) return;  // it takes from others
  (void)giving_.start([this, line, first] {
    const auto offer = [this] {
      const MutexLock lock(mutex_);
      return offer_;
    };
    give_chunks(*line, first, offer, within_, ends_);
  });
}

}  // namespace deltawire::elastic
