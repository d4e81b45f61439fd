#include "transport/mesh/engine.h"

#include <cassert>
#include <new>
#include <string>
#include <utility>

#include "base/errors.h"
#include "transport/links/shared_areas.h"
#include "transport/process/signals.h"

namespace deltawire {

void WaitLoop::block(Lock& lock, Waiter& waiter) {
  assert(lock.owns_lock());
  if (is_over(waiter)) return;
  waiters_.add(waiter, announcer_.anyone_waits());
  // Ends the wait also if announcing it runs out of memory.
  struct Leaves {
    WaitLoop& loop;
    Waiter& waiter;
    ~Leaves() { loop.leave(waiter); }
  };
  {
    const Leaves leaves{*this, waiter};
    driver_.take_over(waiter);
    wait(lock, waiter);
  }
  // A wait that was renewed has announced itself before, too.
  if (!consensus_.failed()) announcer_.update();
}

void WaitLoop::leave(Waiter& waiter) noexcept {
  if (driver_.is_driven_by(waiter)) {
    driver_.hand_back(consensus_.failed() || waiters_.all().size() > 1 || streams_.is_midway());
  }
  waiters_.remove(waiter);
}

void WaitLoop::wait(Lock& lock, Waiter& waiter) {
  while (!is_over(waiter)) {
    const Deadline now = MachineClock::now();
    if (Peer* gone = judge_.hopeless(waiter)) {
      judge_.blame_left(*gone);
    } else if (now >= waiter.deadline && driver_.is_driven_by(waiter) && waiter.looked_at < waiter.deadline) {
      // Messages that have arrived by now are not late, and no other thread may have read them.
      waiter.looked_at = now;
      driver_.drive(lock, streams_, now);
    } else if (now >= waiter.deadline) {
      meet_deadline(waiter);
    } else if (!waiter.announced && now >= waiter.announce_at) {
      announcer_.ask(waiter, MachineClock::now());
    } else {
      const Deadline wake_at =
          waiter.announced ? waiter.deadline : std::min(waiter.deadline, waiter.announce_at);
      if (driver_.is_driven_by(waiter)) {
        driver_.drive(lock, streams_, wake_at);
      } else {
        waiter.changed.wait_until(lock, wake_at);
      }
    }
  }
}

void WaitLoop::meet_deadline(Waiter& waiter) {
  assert(!is_over(waiter));
  control_.read_all();
  if (is_over(waiter) || judge_.extend(waiter, MachineClock::now())) return;
  // This rank itself may have been frozen: then the verdict of the others has already arrived.
  control_.read_all();
  if (!is_over(waiter)) judge_.time_out(waiter, MachineClock::now());
}

namespace {

tl::unexpected<Error> forked() {
  return wrong_state("a transport can't be used in a forked child; connect a new one there");
}

std::vector<LineState> states_of(const std::vector<PeerLinks>& links) {
  std::vector<LineState> states;
  for (const PeerLinks& peer : links) states.push_back(peer.data ? peer.data->state() : LineState{});
  return states;
}

}  // namespace

Engine::Parts::Parts(const MeshMember& self, std::vector<PeerLinks> links, GuardedFd wake)
    : peers(self.rank, std::move(links), self.names),
      waiters(operations),
      driver(std::move(wake), Streams::entries_for(peers.world_size()), waiters),
      steps(peers),
      consensus(peers, waiters, driver),
      announcer(peers, waiters, steps),
      membership(peers, operations, waiters, driver, consensus, announcer),
      judge(peers, waiters, steps, consensus, announcer, membership),
      control(peers, driver, steps, consensus, announcer, membership, judge),
      streams(peers, driver, consensus, membership, judge, control),
      wait_loop(waiters, driver, consensus, announcer, judge, control, streams) {}

Engine::Engine(const MeshMember& self, std::vector<PeerLinks> links, std::unique_ptr<LinkHost> host,
               GuardedFd wake)
    : rank_(self.rank),
      world_size_(static_cast<int>(links.size())),
      names_(self.names),
      epoch_(self.epoch),
      lines_(states_of(links)),
      host_(std::move(host)),
      parts_(self, std::move(links), std::move(wake)) {
  const SignalsHeldBack no_signals;
  io_thread_ = MachineThread([this] {
    MutexLock lock(mutex_);
    parts_.driver.run(lock.standard(), parts_.streams);
  });
}

Engine::~Engine() {
  {
    const MutexLock lock(mutex_);
    parts_.streams.leave(MachineClock::now() + kFarewellTime + kFarewellTrips * Engine::round_trip());
    parts_.driver.wake();
  }
  io_thread_.join();
}

// Like any other misuse, an operation for a peer that doesn't exist ends the mesh: its wait reports it.
bool Engine::refuses(int peer) {
  if (in_forked_child()) return true;
  if (peer >= 0 && peer < world_size_ && peer != rank_) return false;
  abort({.code = ErrorCode::kInvalidArgument,
         .message = names().of(rank()) + " posted an operation for rank " + std::to_string(peer) +
                    " in a world of " + std::to_string(world_size()),
         .suspect = rank(),
         .reporter = rank()});
  return true;
}

bool Engine::ends_at_once(Operation& posted) noexcept {
  if (parts_.consensus.failed()) return true;
  if (!parts_.peers[posted.peer].departure) return false;
  posted.fail();
  return true;
}

Handle Engine::post_send(int to, Tag tag, std::span<const Bytes> pieces) {
  if (refuses(to)) return Handle::kNone;
  MutexLock lock(mutex_);
  Operation& posted = parts_.operations.add(pieces);
  const Handle handle{posted.handle};
  posted.kind = Operation::Kind::kSend;
  posted.peer = to;
  posted.tag = tag;
  for (const Bytes piece : pieces) posted.length += piece.size();
  if (ends_at_once(posted)) return handle;
  if (posted.length > kMessageBytesMax) {
    parts_.consensus.fail({ErrorCode::kLimit,
                           "a message of " + std::to_string(posted.length) + " bytes is above the limit of " +
                               std::to_string(kMessageBytesMax) + "; send it in parts",
                           rank()},
                          rank());
    return handle;
  }
  parts_.streams.post_send(lock.standard(), parts_.peers[to], posted);
  return handle;
}

Handle Engine::post_recv(int from, Tag tag, MutBytes capacity) {
  if (refuses(from)) return Handle::kNone;
  MutexLock lock(mutex_);
  Operation& posted = parts_.operations.add();
  const Handle handle{posted.handle};
  posted.kind = Operation::Kind::kReceive;
  posted.peer = from;
  posted.tag = tag;
  posted.capacity = capacity;
  if (!ends_at_once(posted)) parts_.streams.post_receive(lock.standard(), parts_.peers[from], posted);
  return handle;
}

Result<std::uint64_t> Engine::wait(Handle handle, Deadline deadline) {
  if (in_forked_child()) return forked();
  MutexLock lock(mutex_);
  Operation* operation = parts_.operations.find(handle);
  if (operation == nullptr) {
    if (parts_.consensus.failed()) return failed(lock);
    if (handle == Handle::kNone) return std::uint64_t{0};
    return wrong_state("wait: no such operation, or an earlier wait has returned its result");
  }
  if (operation->waiter != nullptr) {
    return wrong_state("wait: another thread already waits for this operation");
  }
  Waiter waiter{.operation = operation, .deadline = deadline};
  parts_.wait_loop.block(lock.standard(), waiter);
  const std::uint64_t length = operation->length;
  const Peer* departed = operation->failed ? &parts_.peers[operation->peer] : nullptr;
  // Removed at once, because other threads may run while this one waits for the calls in the kernel.
  parts_.operations.remove(*operation);
  if (parts_.consensus.failed() || departed != nullptr) parts_.streams.await_calls(lock.standard());
  if (parts_.consensus.failed()) return failed(lock);
  if (departed != nullptr) return tl::unexpected<Error>(*departed->departure);
  return length;
}

bool Engine::done(Handle handle) const noexcept {
  if (in_forked_child()) return true;
  const MutexLock lock(mutex_);
  const Operation* operation = parts_.operations.find(handle);
  return operation == nullptr || operation->done || parts_.consensus.failed();
}

Status Engine::wait_any(std::span<const Handle> handles, Deadline deadline) {
  if (in_forked_child()) return forked();
  MutexLock lock(mutex_);
  bool ended = handles.empty();
  for (const Handle handle : handles) {
    const Operation* operation = parts_.operations.find(handle);
    ended = ended || operation == nullptr;
    if (operation != nullptr && operation->waiter != nullptr) {
      return wrong_state("wait_any: another thread waits for one of the operations");
    }
  }
  if (!ended) {
    Waiter waiter{.operation = parts_.operations.find(handles.front()),
                  .deadline = deadline,
                  .others = handles,
                  .heeds_wake = true};
    parts_.wait_loop.block(lock.standard(), waiter);
  }
  parts_.waiters.take_wake();
  if (parts_.consensus.failed()) return failed(lock);
  return {};
}

void Engine::wake() noexcept {
  if (in_forked_child()) return;
  const MutexLock lock(mutex_);
  parts_.waiters.wake();
  parts_.driver.tell();
}

// Returns the mesh's error once no thread touches posted memory any more.
tl::unexpected<Error> Engine::failed(MutexLock& lock) {
  parts_.streams.await_calls(lock.standard());
  return tl::unexpected<Error>(parts_.consensus.failure());
}

void Engine::set_arrival_timeout(std::chrono::milliseconds timeout) {
  if (in_forked_child()) return;
  const MutexLock lock(mutex_);
  parts_.judge.set_arrival_timeout(timeout);
}

void Engine::set_optional(std::span<const int> ranks) {
  if (in_forked_child()) return;
  const MutexLock lock(mutex_);
  parts_.membership.set_optional(ranks);
}

std::optional<Error> Engine::departure_of(int rank) const {
  if (in_forked_child() || rank == rank_) return std::nullopt;
  const MutexLock lock(mutex_);
  return parts_.peers[rank].departure;
}

void Engine::drop(int rank, const Error& error) noexcept {
  if (in_forked_child()) return;
  {
    const MutexLock lock(mutex_);
    if (parts_.membership.may_drop(rank)) {
      const auto drop = [&]() DELTAWIRE_UNCHECKED_LOCKS {
        Peer& peer = parts_.peers[rank];
        parts_.membership.drop(peer, error);
      };
      parts_.consensus.or_fail(drop);  // calls it at once, so with the lock
      return;
    }
  }
  abort(error);
}

void Engine::arrive(std::uint64_t step) {
  if (in_forked_child()) return;
  const MutexLock lock(mutex_);
  if (parts_.consensus.failed()) return;
  if (auto mismatch = parts_.steps.arrive(step)) parts_.consensus.fail(std::move(*mismatch), rank());
}

Result<std::span<const Ballot>> Engine::vote(const Ballot& ballot, Deadline deadline) {
  if (in_forked_child()) return forked();
  MutexLock lock(mutex_);
  Consensus& consensus = parts_.consensus;
  // If this rank was frozen, the others may have continued without it: read their messages first.
  parts_.control.read_all();
  if (consensus.failed()) return failed(lock);
  if (parts_.membership.has_optional()) {
    return wrong_state("vote: ranks of this transport are optional, and have no vote");
  }
  if (consensus.is_voting()) return wrong_state("vote: this rank's last vote is still open");
  parts_.peers.note_step();
  Operation vote;
  vote.kind = Operation::Kind::kVote;
  vote.peer = rank();
  consensus.cast(ballot, vote);
  parts_.steps.end_step();
  Waiter waiter{.operation = &vote, .deadline = deadline};
  try {
    parts_.control.count_ballots();
    parts_.wait_loop.block(lock.standard(), waiter);
  } catch (const std::bad_alloc&) {
    consensus.fail_without_text(ErrorCode::kNoMemory);
  }
  const auto ballots = consensus.close(lock.standard(), waiter);
  if (!ballots) return failed(lock);
  if (SharedAreas* const areas = shared_areas()) areas->own().note_vote();
  return *ballots;
}

LastCommit Engine::last_commit() const {
  if (in_forked_child()) return {};
  MutexLock lock(mutex_);
  return parts_.consensus.await_last_commit(lock.standard());
}

void Engine::abort(const Error& error) noexcept {
  if (in_forked_child()) return;
  try {
    const MutexLock lock(mutex_);
    Error named = error;
    if (named.suspect < 0 || !names().has(named.suspect, world_size())) named.suspect = rank();
    parts_.consensus.fail(std::move(named), rank());
  } catch (...) {
    const MutexLock lock(mutex_);
    parts_.consensus.fail_without_text(error.code);
  }
}

std::optional<Error> Engine::failure(std::chrono::milliseconds wait) const {
  if (in_forked_child()) return forked().value();
  MutexLock lock(mutex_);
  return parts_.consensus.await_end(lock.standard(), wait);
}

SharedAreas* Engine::shared_areas() noexcept {
  return host_ == nullptr || in_forked_child() ? nullptr : host_->shared_areas();
}

Traffic Engine::traffic() const noexcept {
  if (in_forked_child()) return {};
  const SharedAreas* const areas = host_ == nullptr ? nullptr : host_->shared_areas();
  const Traffic lying = areas == nullptr ? Traffic{} : areas->traffic();
  const MutexLock lock(mutex_);
  const Traffic moved = parts_.peers.traffic();
  return {moved.bytes_sent + lying.bytes_sent, moved.bytes_received + lying.bytes_received};
}

}  // namespace deltawire
