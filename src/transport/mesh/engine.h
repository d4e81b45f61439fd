// The message engine: posted operations of one rank over two byte streams to each peer.
//
// Posting threads do what can be done at once. The rest is the driver's: a thread that waits for an operation
// drives, as it has nothing better to do, and nobody then has to wake it; while none waits, the I/O thread
// does. A driver sleeps in ppoll and never spins. One lock guards everything. It is let go only while the
// kernel copies much (Unlocker), and no wait returns a failure before such calls are back: so an operation's
// memory is never touched after wait() has returned.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>

#include "deltawire/transport.h"
#include "transport/mesh/agreement.h"
#include "transport/mesh/operation.h"
#include "transport/mesh/peer.h"
#include "transport/mesh/wait_graph.h"
#include "transport/process/fork_guard.h"

namespace deltawire {

// "rank 3"; what that rank says, with its name in front.
std::string rank_name(int rank);
std::string reported(int by, const std::string& text);

class Engine final : public Transport {
 public:
  // `links` by rank; the own entry is empty. `host` may be empty: links that stand alone. `wake` is an
  // eventfd. May throw std::system_error when there is no thread to be had.
  Engine(const MeshMember& self, std::vector<PeerLinks> links, std::unique_ptr<LinkHost> host,
         GuardedFd wake);
  // Flushes what is posted, for at most about two seconds, and says goodbye.
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  // Of a forked child's engine the thread doesn't exist, the lock may be held for ever, and what it guards
  // may be half changed: all of it is left to the child's end.
  static void operator delete(Engine* self, std::destroying_delete_t) {
    if (self->in_forked_child()) return;
    self->~Engine();
    ::operator delete(self);  // clang before 19 declares no sized one
  }

  int rank() const noexcept override { return rank_; }
  int world_size() const noexcept override { return static_cast<int>(peers_.size()); }
  std::uint32_t epoch() const noexcept override { return epoch_; }
  Handle post_send(int to, Tag tag, std::span<const Bytes> pieces) override;
  Handle post_recv(int from, Tag tag, MutBytes capacity) override;
  Result<std::uint64_t> wait(Handle handle, Deadline deadline) override;
  bool done(Handle handle) const noexcept override;
  Status wait_any(std::span<const Handle> handles, Deadline deadline) override;
  void wake() noexcept override;
  void set_arrival_timeout(std::chrono::milliseconds timeout) override;
  void set_optional(std::span<const int> ranks) override;
  std::optional<Error> loss_of(int rank) const override;
  void lose(int rank, const Error& error) noexcept override;
  void arrive(std::uint64_t step) override;
  Result<std::span<const Ballot>> vote(const Ballot& ballot, Deadline deadline) override;
  Standing standing() const override;
  void abort(const Error& error) noexcept override;
  std::optional<Error> failure(std::chrono::milliseconds wait) const override;
  Traffic traffic() const noexcept override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  // A thread that has just waited may well wait again at once: for this long the I/O thread lets the waiter
  // keep driving.
  static constexpr std::chrono::microseconds kComeback{500};
  // In which a rank that lives answers, on however busy a machine.
  static constexpr std::chrono::milliseconds kAnswerTime{1000};
  // How long a rank may take to say where it stands when the mesh has failed. A living one takes
  // milliseconds; this is what an interrupt (Ctrl-C) waits for a frozen one.
  static constexpr std::chrono::milliseconds kSettleTime{3000};
  // Before memory that could not be had is asked for again.
  static constexpr std::chrono::milliseconds kMemoryPause{1};

  // A thread inside wait() or wait_any().
  struct Waiter {
    Operation* operation;  // the one that counts: its peer is announced, and blamed at the deadline
    Deadline deadline;
    std::span<const Handle> others = {};  // any of these ends the wait too
    bool heeds_wake = false;
    Deadline began_at = Clock::now();
    Clock::duration span{};  // that the deadline left at first
    Deadline looked_at{};    // at the streams, after a deadline
    Deadline announce_at{};  // when to tell the others whom this rank waits for, and to ask who is there
    bool announced = false;
    int renewals = 0;            // for losses that others have to decide
    Deadline asked_at = kNever;  // when they were asked last
    std::condition_variable changed{};
  };

  // engine.cc: operations
  bool in_forked_child() const noexcept { return fork_generation() != generation_; }
  static tl::unexpected<Error> forked();
  bool refuses(int peer);
  void block(Lock& lock, Waiter& waiter);
  bool has_ended(const Waiter& waiter) const noexcept;
  void set_waiter(const Waiter& waiter, std::condition_variable* changed) noexcept;
  void wait_on(Lock& lock, Waiter& waiter);
  tl::unexpected<Error> failed(Lock& lock);
  void ask(Waiter& waiter);
  bool extend(Waiter& waiter);
  Peer& peer(int rank) noexcept { return *peers_[static_cast<std::size_t>(rank)]; }
  template <class Visit>
  void each_peer(Visit visit) {
    for (const auto& one : peers_) {
      if (one) visit(*one);
    }
  }

  // engine_io.cc: what drives the streams
  struct Poller {
    std::vector<pollfd> entries;  // the eventfd, then those of each peer
    bool polling = false;
  };
  void run() noexcept;
  void rest(Lock& lock);
  void take_over(Waiter& waiter) noexcept;
  void hand_back() noexcept;
  bool is_midway() const noexcept;
  void turn(Lock& lock, Poller& poller, Deadline until) noexcept;
  // Memory that `act` can't have ends the mesh, whoever's thread it is: what is posted stays posted.
  template <class Act>
  void or_fail(Act act) noexcept {
    try {
      act();
    } catch (const std::exception&) {
      fail_for_memory();
    }
  }
  Deadline prepare_poll(Poller& poller);
  // The entries that ppoll() has for one peer: a link may have a descriptor for each direction.
  enum PollEntry : std::size_t { kControlIn, kControlOut, kDataIn, kDataOut, kPollEntries };
  using PeerPolls = std::span<pollfd, kPollEntries>;
  static PeerPolls polls_of(Poller& poller, std::size_t rank) noexcept;
  Deadline prepare_peer(Peer& peer, PeerPolls polls);
  static void poll_until(Poller& poller, Deadline wake_at);
  void serve_all(Lock& lock, Poller& poller);
  void serve(Lock& lock, Peer& peer, PeerPolls polls);
  void send_data(Lock& lock, Peer& peer);
  void receive_data(Lock& lock, Peer& peer);
  void wake_driver() noexcept;
  bool wake_polling() noexcept;
  void tell_driver() noexcept;
  void poll_again(Peer& peer) noexcept;
  bool may_leave();
  bool all_flushed();

  // engine_vote.cc: what the ranks agree on
  void on_agreement(Peer& peer, const AgreementMessage& message);
  void on_start(Peer& peer, const Start& start);
  void compare_start(const Peer& peer);
  // What `act` makes of the agreement, and what that has to say, after `first`: wholly or, where memory
  // fails, not at all.
  template <class Act>
  void agree(Act act, const ControlMessage* first = nullptr) {
    next_agreement_ = agreement_;
    act(next_agreement_);
    adopt_next(first);
  }
  void adopt_next(const ControlMessage* first);
  void heed_agreement() noexcept;
  void count_ballots();
  void settle_on(Lock& lock, Waiter& waiter) noexcept;
  bool has_concluded() const noexcept { return agreement_.failed() && agreement_.concluded(); }
  void give_up_waiting();
  void note_step_blocks() noexcept;
  Error told_failure() const;

  // engine_failure.cc: what can go wrong, and who is to blame
  void read_control(Peer& peer);
  void read_all_control();
  void on_control_end(Peer& peer);
  void on_control(Peer& peer, const ControlMessage& message);
  void on_goodbye(Peer& peer, const Goodbye& goodbye);
  void on_waiting(Peer& peer, const Waiting& waiting);
  void on_abort(Peer& peer, const Abort& abort);
  void on_data_lost(Peer& peer, int error);
  void fail(Error error, int origin, int silent = kNoSuspect);
  void fail_for_memory() noexcept;
  void fail_without_text(ErrorCode code) noexcept;
  bool is_untold() const noexcept { return failure_ && !agreement_.failed(); }
  void tell_late() noexcept;
  void fail_lost(Peer& peer, int error);
  void fail_left(Peer& peer);
  void fail_timeout(Waiter& waiter);
  std::string what_is_known(const Waiter& waiter, const WaitGraph::Verdict& verdict);
  static std::chrono::milliseconds deaf_for(Peer& peer) noexcept;
  bool answers(const Peer& peer, const Waiter& waiter) const noexcept;
  std::string what_is_due(const Operation& operation) const;
  void broadcast(const ControlMessage& message);
  std::string waited(const Waiter& waiter, const Operation& operation) const;
  void update_announcement();
  void announce_all_waits();
  void notify_waiters() noexcept;

  // engine_loss.cc: ranks that the others go on without
  void blame(Peer& peer, Error error);
  void lose(Peer& peer, Error error);
  void on_lost(const Peer& from, const Lost& lost);
  bool blames_required(const Peer& lost) const noexcept;
  Peer* hopeless(const Waiter& waiter) noexcept;
  bool awaits_answers(Waiter& waiter);
  WaitGraph::Verdict verdict_on(const Waiter& waiter);
  bool outlives(Waiter& waiter, Peer& suspect, const Error& error);
  void renew();
  void renew(Waiter& waiter, Deadline now) noexcept;

  const int rank_;
  const std::uint32_t epoch_;
  const std::uint64_t generation_ = fork_generation();
  const std::unique_ptr<LinkHost> host_;  // before the links, which end first
  const GuardedFd wake_;
  EarlyBlocks early_blocks_;
  std::uint64_t blocks_before_ = 0;  // DataReceiver::early_blocks of all peers, at the last vote
  std::uint64_t step_blocks_ = 0;    // of them, since the vote before
  std::vector<std::unique_ptr<Peer>> peers_;

  mutable std::mutex mutex_;               // guards all below, and the peers
  mutable std::condition_variable ended_;  // the mesh, or a peer has left: for failure()
  OperationTable operations_;
  std::vector<Waiter*> waiters_;  // the longest-waiting first
  bool wake_due_ = false;         // wake() was called; the next wait_any takes it
  WaitGraph waits_;
  int announced_ = WaitGraph::kNobody;
  std::optional<Error> failure_;
  bool has_optional_ = false;  // some rank is optional
  bool is_optional_ = false;   // this one
  Clock::duration longest_wait_{};
  Deadline renewed_until_{};  // no wait ends before
  std::chrono::milliseconds arrival_timeout_{0};
  Agreement agreement_;
  Agreement next_agreement_;     // where it is made; with the next, it keeps its memory between votes
  std::vector<std::byte> said_;  // the messages about it
  Deadline settle_by_{};         // after a failure: the I/O thread waits so long for what others have to say
  Operation* vote_ = nullptr;    // the open one
  Ballot ballot_;                // of this rank, cast last
  std::vector<Ballot> ballots_;  // everybody's, by rank, in the last vote
  std::uint64_t standing_step_ = kNoStep;
  std::uint64_t place_ = 0;  // buckets begun
  std::uint32_t starts_ = 0;
  std::uint64_t start_step_ = 0;
  std::uint64_t last_step_ = 0;
  bool step_is_open_ = false;  // begun, and not voted for

  Poller io_poller_;
  Poller waiter_poller_;
  Waiter* driver_ = nullptr;         // nullptr: the I/O thread drives, or will when it has rested
  Deadline rests_until_{};           // the I/O thread, after the driver has left
  bool rests_deeply_ = false;        // until it is told
  Deadline drives_since_{};          // the driver
  std::condition_variable io_turn_;  // for the I/O thread
  CallsInKernel calls_in_kernel_;
  std::size_t first_served_ = 0;
  bool woken_ = false;
  bool leaving_ = false;
  bool farewell_said_ = false;
  Deadline leave_by_ = kNever;

  std::thread io_thread_;  // last: it uses all the above
};

}  // namespace deltawire
