#include "transport/mesh/engine.h"

#include <algorithm>

#include "transport/process/signals.h"

namespace deltawire {
namespace {

// While others are already announcing, a wait that lasts this long is worth announcing too.
constexpr std::chrono::milliseconds kPromptAnnouncement{20};
// A loss gives other waits no more time than this, however long this rank has waited before.
constexpr std::chrono::hours kLongestRenewal{24};

}  // namespace

Engine::Engine(const MeshMember& self, std::vector<PeerLinks> links, std::unique_ptr<LinkHost> host,
               GuardedFd wake)
    : rank_(self.rank),
      epoch_(self.epoch),
      host_(std::move(host)),
      wake_(std::move(wake)),
      waits_(static_cast<int>(links.size())),
      agreement_(rank_, static_cast<int>(links.size())),
      next_agreement_(agreement_),
      ballots_(links.size()) {
  const int world_size = static_cast<int>(links.size());
  peers_.resize(links.size());
  for (int i = 0; i < world_size; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (i != rank_) peers_[at] = std::make_unique<Peer>(i, std::move(links[at]), world_size, early_blocks_);
  }
  io_poller_.entries.resize(1 + kPollEntries * peers_.size());
  waiter_poller_.entries.resize(io_poller_.entries.size());
  const SignalsHeldBack no_signals;
  io_thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  {
    const Lock lock(mutex_);
    leaving_ = true;
    leave_by_ = Clock::now() + kFarewellTime;
    wake_driver();
  }
  io_thread_.join();
}

tl::unexpected<Error> Engine::forked() {
  return deltawire::fail(ErrorCode::kState,
                         "a transport can't be used in a forked child; connect a new one there");
}

// A peer that doesn't exist ends the mesh like any other misuse: the wait tells.
bool Engine::refuses(int peer) {
  if (in_forked_child()) return true;
  if (peer >= 0 && peer < world_size() && peer != rank_) return false;
  abort({ErrorCode::kInvalidArgument,
         "rank " + std::to_string(rank_) + " posted an operation for rank " + std::to_string(peer) +
             " in a world of " + std::to_string(world_size()),
         rank_});
  return true;
}

Handle Engine::post_send(int to, Tag tag, std::span<const Bytes> pieces) {
  if (refuses(to)) return Handle::kNone;
  Lock lock(mutex_);
  Operation& posted = operations_.add(pieces);
  const Handle handle{posted.handle};
  posted.kind = Operation::Kind::kSend;
  posted.peer = to;
  posted.tag = tag;
  for (const Bytes piece : pieces) posted.length += piece.size();
  if (failure_) return handle;
  if (peer(to).loss) {
    posted.fail();
    return handle;
  }
  if (posted.length > kMessageBytesMax) {
    fail({ErrorCode::kLimit,
          "a message of " + std::to_string(posted.length) + " bytes is above the limit of " +
              std::to_string(kMessageBytesMax) + "; send it in parts",
          rank_},
         rank_);
    return handle;
  }
  Peer& receiver = peer(to);
  const bool idle = receiver.sender.empty();
  receiver.sender.post(posted);
  // Nothing is ahead of it: sending from here saves the way through the other thread.
  if (idle && receiver.wants_send()) {
    or_fail([&] { send_data(lock, receiver); });
  }
  if ((receiver.wants_send() && !receiver.sending) || receiver.pump_at != kNever) wake_driver();
  return handle;
}

Handle Engine::post_recv(int from, Tag tag, MutBytes capacity) {
  if (refuses(from)) return Handle::kNone;
  Lock lock(mutex_);
  Operation& posted = operations_.add();
  const Handle handle{posted.handle};
  posted.kind = Operation::Kind::kReceive;
  posted.peer = from;
  posted.tag = tag;
  posted.capacity = capacity;
  if (failure_) return handle;
  Peer& sender = peer(from);
  if (sender.loss) {
    posted.fail();
    return handle;
  }
  StreamStep step = sender.receiver.post(posted);
  if (step.kind == StreamStep::Kind::kFailed) {
    blame(sender, std::move(step.failure));
  } else if (sender.receive_paused) {
    // What waits in the stream may be what was posted for: taking it from here saves waking the driver.
    sender.receive_paused = false;
    if (sender.wants_receive()) or_fail([&] { receive_data(lock, sender); });
    wake_polling();
  }
  return handle;
}

Result<std::uint64_t> Engine::wait(Handle handle, Deadline deadline) {
  if (in_forked_child()) return forked();
  Lock lock(mutex_);
  Operation* operation = operations_.find(handle);
  if (operation == nullptr) {
    if (failure_) return failed(lock);
    if (handle == Handle::kNone) return std::uint64_t{0};
    return deltawire::fail(ErrorCode::kState, "wait: no such operation, or it was waited for before");
  }
  if (operation->waiter != nullptr) {
    return deltawire::fail(ErrorCode::kState, "wait: another thread waits for this operation already");
  }
  Waiter waiter{.operation = operation, .deadline = deadline};
  block(lock, waiter);
  const std::uint64_t length = operation->length;
  const Peer* lost = operation->failed ? &peer(operation->peer) : nullptr;
  // At once: other threads may come while this one waits for the calls in the kernel.
  operations_.remove(*operation);
  if (failure_ || lost != nullptr) calls_in_kernel_.await_none(lock);
  if (failure_) return failed(lock);
  if (lost != nullptr) return tl::unexpected<Error>(*lost->loss);
  return length;
}

bool Engine::done(Handle handle) const noexcept {
  if (in_forked_child()) return true;
  const Lock lock(mutex_);
  const Operation* operation = operations_.find(handle);
  return operation == nullptr || operation->done || failure_.has_value();
}

Status Engine::wait_any(std::span<const Handle> handles, Deadline deadline) {
  if (in_forked_child()) return forked();
  Lock lock(mutex_);
  bool ended = handles.empty();
  for (const Handle handle : handles) {
    const Operation* operation = operations_.find(handle);
    ended = ended || operation == nullptr;
    if (operation != nullptr && operation->waiter != nullptr) {
      return deltawire::fail(ErrorCode::kState, "wait_any: another thread waits for one of the operations");
    }
  }
  if (!ended) {
    Waiter waiter{.operation = operations_.find(handles.front()),
                  .deadline = deadline,
                  .others = handles,
                  .heeds_wake = true};
    block(lock, waiter);
  }
  wake_due_ = false;
  if (failure_) return failed(lock);
  return {};
}

void Engine::wake() noexcept {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  wake_due_ = true;
  for (Waiter* waiter : waiters_) {
    if (waiter->heeds_wake) waiter->changed.notify_one();
  }
  tell_driver();
}

// Nobody touches posted memory any more.
tl::unexpected<Error> Engine::failed(Lock& lock) {
  calls_in_kernel_.await_none(lock);
  return tl::unexpected<Error>(told_failure());
}

bool Engine::has_ended(const Waiter& waiter) const noexcept {
  return waiter.operation->done || (waiter.heeds_wake && wake_due_) ||
         std::ranges::any_of(waiter.others, [this](Handle other) { return operations_.find(other)->done; });
}

void Engine::set_waiter(const Waiter& waiter, std::condition_variable* changed) noexcept {
  waiter.operation->waiter = changed;
  for (const Handle other : waiter.others) operations_.find(other)->waiter = changed;
}

// Until the wait has ended or the mesh has failed, perhaps because of this very wait.
void Engine::block(Lock& lock, Waiter& waiter) {
  if (failure_ || has_ended(waiter)) return;
  waiter.span = std::max(waiter.deadline - waiter.began_at, Clock::duration{0});
  longest_wait_ = std::max(longest_wait_, std::min<Clock::duration>(waiter.span, kLongestRenewal));
  if (waiter.deadline < renewed_until_) {
    waiter.deadline = renewed_until_;
    waiter.span = std::max(waiter.deadline - waiter.began_at, Clock::duration{0});
  }
  waiter.announce_at = waiter.began_at + waiter.span / 2;
  if (waits_.anyone_waits()) {
    waiter.announce_at = std::min(waiter.announce_at, waiter.began_at + kPromptAnnouncement);
  }
  waiters_.push_back(&waiter);
  // Taken out again also where there is no memory to announce the wait with.
  struct Listed {
    Engine& engine;
    Waiter& waiter;
    ~Listed() {
      if (engine.driver_ == &waiter) engine.hand_back();
      engine.set_waiter(waiter, nullptr);
      std::erase(engine.waiters_, &waiter);
    }
  };
  {
    const Listed listed{*this, waiter};
    set_waiter(waiter, &waiter.changed);
    if (driver_ == nullptr) take_over(waiter);
    wait_on(lock, waiter);
  }
  if (waiter.announced) update_announcement();
}

void Engine::wait_on(Lock& lock, Waiter& waiter) {
  while (!failure_ && !has_ended(waiter)) {
    const Deadline now = Clock::now();
    if (Peer* gone = hopeless(waiter)) {
      fail_left(*gone);
    } else if (now >= waiter.deadline && driver_ == &waiter && waiter.looked_at < waiter.deadline) {
      // What has come by now is not late, and nobody else need have looked.
      waiter.looked_at = now;
      turn(lock, waiter_poller_, now);
    } else if (now >= waiter.deadline) {
      if (!extend(waiter)) fail_timeout(waiter);
    } else if (!waiter.announced && now >= waiter.announce_at) {
      waiter.announced = true;
      ask(waiter);
    } else {
      const Deadline wake_at =
          waiter.announced ? waiter.deadline : std::min(waiter.deadline, waiter.announce_at);
      if (driver_ == &waiter) {
        turn(lock, waiter_poller_, wake_at);
      } else {
        waiter.changed.wait_until(lock, wake_at);
      }
    }
  }
}

// Tells the others whom this rank waits for; whoever lives answers.
void Engine::ask(Waiter& waiter) {
  waiter.asked_at = Clock::now();
  announced_ = WaitGraph::kNobody;  // said again, even if it is the same
  update_announcement();
  each_peer([&waiter](Peer& peer) { peer.control.watch(waiter.asked_at); });
}

// The deadline has passed: whether the wait may go on, because the rank that everybody waits for answers, and
// is only late.
bool Engine::extend(Waiter& waiter) {
  read_all_control();
  if (failure_ || has_ended(waiter)) return true;
  const Deadline now = Clock::now();
  if (arrival_timeout_.count() == 0) return false;
  const WaitGraph::Verdict verdict = waits_.follow(rank_, waiter.operation->peer);
  if (verdict.cycle) return false;
  Peer& suspect = peer(verdict.suspect);
  if (waiter.asked_at == kNever) {
    waiter.announced = true;
    ask(waiter);
  }
  if (!answers(suspect, waiter)) {
    // Asked so late that the answer may still be on its way.
    if (now - waiter.asked_at >= kAnswerTime) return false;
    waiter.deadline = waiter.asked_at + kAnswerTime;
    return true;
  }
  const bool is_late = suspect.place < place_;
  if (is_late && now - waiter.began_at >= arrival_timeout_) return false;
  // Where it has arrived since it was asked last, its messages get the time that they have otherwise.
  if (!is_late && !suspect.was_late) return false;
  suspect.was_late = is_late;
  waiter.deadline = now + std::max<Clock::duration>(waiter.span, kAnswerTime);
  if (is_late) waiter.deadline = std::min(waiter.deadline, waiter.began_at + arrival_timeout_);
  ask(waiter);
  return true;
}

void Engine::abort(const Error& error) noexcept {
  if (in_forked_child()) return;
  try {
    const Lock lock(mutex_);
    Error named = error;
    if (named.suspect < 0 || named.suspect >= world_size()) named.suspect = rank_;
    fail(std::move(named), rank_);
  } catch (...) {
    const Lock lock(mutex_);
    fail_without_text(error.code);
  }
}

Traffic Engine::traffic() const noexcept {
  if (in_forked_child()) return {};
  const Lock lock(mutex_);
  Traffic all;
  for (const auto& peer : peers_) {
    const Traffic one = peer ? peer->traffic() : Traffic{};
    all.bytes_sent += one.bytes_sent;
    all.bytes_received += one.bytes_received;
  }
  return all;
}

}  // namespace deltawire
