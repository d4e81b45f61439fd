#include "doorkeeper.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <string_view>

namespace deltawire::python {
namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 50ms;
constexpr auto kLookAtFresh = 5ms;
constexpr auto kTellPause = 500ms;
constexpr auto kTellTime = 100ms;  // a text fits into any buffer but a full one
constexpr auto kFirstMessage = 9s;
constexpr std::size_t kFreshMax = 64;

Bytes bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

Status KeptLine::send(Bytes message, Deadline deadline) {
  const std::scoped_lock lock(mutex_);
  if (is_broken_) return fail(ErrorCode::kPeerLost, "a line: the other end takes nothing");
  return line_->send(message, deadline);
}

Result<std::vector<std::byte>> KeptLine::receive(std::size_t bytes_max, Deadline deadline) {
  const std::scoped_lock lock(mutex_);
  if (is_broken_) return fail(ErrorCode::kPeerLost, "a line: the other end takes nothing");
  return line_->receive(bytes_max, deadline);
}

void KeptLine::keep(std::optional<std::string> text) {
  const std::scoped_lock lock(mutex_);
  text_ = std::move(text);
  tell_at_ = {};
}

void KeptLine::tell(Deadline now) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !text_ || now < tell_at_) return;
  tell_at_ = now + kTellPause;
  if (!line_->send(bytes_of(*text_), now + kTellTime)) {
    is_broken_ = true;
    text_.reset();
  }
}

Doorkeeper::Doorkeeper(std::unique_ptr<Door> door, KeeperWords words)
    : door_(std::move(door)), words_(std::move(words)), endpoint_(door_->endpoint()) {
  thread_ = std::thread([this] { run(); });
}

Doorkeeper::~Doorkeeper() {
  ends_ = true;
  thread_.join();
}

void Doorkeeper::describe(std::string answer) {
  const std::scoped_lock lock(mutex_);
  answer_ = std::move(answer);
}

std::optional<Doorkeeper::Visit> Doorkeeper::next(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!came_.wait_until(lock, deadline, [this] { return !visits_.empty(); })) return std::nullopt;
  Visit visit = std::move(visits_.front());
  visits_.pop_front();
  return visit;
}

void Doorkeeper::run() {
  while (!ends_) {
    auto line = door_->answer(Clock::now() + (fresh_.empty() ? Clock::duration(kLook) : kLookAtFresh));
    const Deadline now = Clock::now();
    if (line) {
      fresh_.push_back({std::make_shared<KeptLine>(*std::move(line)), now + kFirstMessage});
      if (fresh_.size() > kFreshMax) fresh_.pop_front();
    } else if (line.error().code != ErrorCode::kTimeout) {
      std::this_thread::sleep_for(kLook);
    }
    hear_fresh(now);
    for (const auto& each : kept_) {
      if (const auto kept = each.lock()) kept->tell(now);
    }
    std::erase_if(kept_, [](const auto& each) { return each.expired(); });
  }
}

void Doorkeeper::hear_fresh(Deadline now) {
  std::deque<Fresh> silent;
  for (Fresh& fresh : fresh_) {
    if (hear(fresh, now)) silent.push_back(std::move(fresh));
  }
  fresh_ = std::move(silent);
}

bool Doorkeeper::hear(Fresh& fresh, Deadline now) {
  auto message = fresh.line->receive(words_.bytes_max, now);
  if (!message) return message.error().code == ErrorCode::kTimeout && now < fresh.until;
  const std::string_view text(reinterpret_cast<const char*>(message->data()), message->size());
  const std::scoped_lock lock(mutex_);
  if (text == words_.question) {
    fresh.until = now + kFirstMessage;  // it may come to the meeting on this line
    return fresh.line->send(bytes_of(answer_), now + kTellTime).has_value();
  }
  if (std::ranges::any_of(words_.waiting, [&](const auto& each) { return text.starts_with(each); })) {
    fresh.line->keep(words_.wait);
  }
  kept_.emplace_back(fresh.line);
  visits_.emplace_back(std::move(fresh.line), *std::move(message));
  came_.notify_one();
  return false;
}

}  // namespace deltawire::python
