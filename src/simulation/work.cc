#include <cstddef>
#include <cstring>
#include <memory>

#include "base/errors.h"
#include "reduce/vote.h"
#include "simulation/job.h"

namespace deltawire::simulation {

namespace {

// The steps of a rank's program: plain messages and votes, or a reducer.
class Work {
 public:
  virtual ~Work() = default;
  // One step, to its vote. After an error the step did not happen.
  virtual Status step(Transport& transport, std::uint64_t number) = 0;
  // The mesh has ended, and its transport too: nothing that was posted may have changed since the error.
  virtual void close() {}
};

constexpr std::byte kUntouched{0xA5};

// Each step, a message from every rank to every other, whose length and bytes both know.
class Messages final : public Work {
 public:
  Messages(Job& job, int rank) : job_(job), rank_(rank) {}

  Status step(Transport& transport, std::uint64_t number) override;
  void close() override;

 private:
  struct Message {
    int peer = 0;
    std::vector<std::byte> bytes;
    Handle handle{};
  };

  std::vector<std::byte> message(int from, int to, std::uint64_t number) const;
  void post(Transport& transport, std::uint64_t number);
  Status wait_for_all(Transport& transport, std::uint64_t number, Deadline deadline);
  Status vote(Transport& transport, std::uint64_t number, bool disagrees);
  Status check(Transport& transport, std::uint64_t number) const;
  void spoil();

  Job& job_;
  int rank_;
  std::vector<Message> sent_;
  std::vector<Message> received_;
  bool is_spoiled_ = false;
};

std::vector<std::byte> Messages::message(int from, int to, std::uint64_t number) const {
  Dice dice(job_.plan().seed, 1'000'000 + 10'000 * number + static_cast<std::uint64_t>(100 * from + to));
  const std::uint64_t most = job_.plan().longest_message;
  std::vector<std::byte> bytes(dice.one_in(3) ? dice.below(16) : dice.below(most));
  const std::uint64_t first = dice.below(256);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(first + i * 31 + i / 251);
  return bytes;
}

void Messages::post(Transport& transport, std::uint64_t number) {
  sent_.clear();
  received_.clear();
  is_spoiled_ = false;
  const auto receive = [&](int peer) {
    received_.push_back({peer, std::vector<std::byte>(job_.plan().longest_message + 16, kUntouched)});
    received_.back().handle = transport.post_recv(peer, number % 3, received_.back().bytes);
  };
  const int world = job_.plan().world;
  sent_.reserve(static_cast<std::size_t>(world));
  received_.reserve(static_cast<std::size_t>(world));
  for (int k = 1; k < world; ++k) {
    const int peer = (rank_ + k) % world;
    // Half of the ranks send first: what they send is unexpected.
    if ((number + static_cast<std::uint64_t>(rank_)) % 2 == 0) receive(peer);
    sent_.push_back({peer, message(rank_, peer, number)});
    const Bytes piece = sent_.back().bytes;
    sent_.back().handle = transport.post_send(peer, number % 3, std::span(&piece, 1));
    if ((number + static_cast<std::uint64_t>(rank_)) % 2 != 0) receive(peer);
  }
}

Status Messages::wait_for_all(Transport& transport, std::uint64_t number, Deadline deadline) {
  std::vector<Handle> handles;
  for (const auto* list : {&received_, &sent_}) {
    for (const Message& message : *list) handles.push_back(message.handle);
  }
  if (number % 2 == 0) {
    RETURN_IF_ERROR(
        in_time(job_, rank_, "wait_any", deadline, [&] { return transport.wait_any(handles, deadline); }));
  }
  for (const Handle handle : handles) {
    RETURN_IF_ERROR(in_time(job_, rank_, "wait", deadline, [&] { return transport.wait(handle, deadline); }));
  }
  return {};
}

Status Messages::check(Transport& transport, std::uint64_t number) const {
  for (const Message& each : received_) {
    const std::vector<std::byte> wanted = message(each.peer, rank_, number);
    if (std::equal(wanted.begin(), wanted.end(), each.bytes.begin())) continue;
    const Error error{ErrorCode::kCorrupt, "the message of rank " + std::to_string(each.peer) + " is damaged",
                      each.peer};
    transport.abort(error);
    return tl::unexpected<Error>(error);
  }
  return {};
}

Status Messages::vote(Transport& transport, std::uint64_t number, bool disagrees) {
  const Deadline deadline = job_.scheduler().now() + job_.plan().timeout;
  const Step step{.number = number, .agreed = disagrees ? 7U : 5U};
  Status voted = in_time(job_, rank_, "vote", deadline + settling(job_),
                         [&] { return deltawire::vote(step, 0, transport, deadline); });
  if (!voted) transport.abort(voted.error());
  return voted;
}

Status Messages::step(Transport& transport, std::uint64_t number) {
  transport.arrive(number);
  const Deadline deadline = job_.scheduler().now() + job_.plan().timeout;
  post(transport, number);
  Status done = wait_for_all(transport, number, deadline);
  if (done) done = check(transport, number);
  if (done) {
    const Mishap mishap = job_.come_to(rank_, number, Fault::Point::kBeforeVote);
    done = meet_mishap(job_, rank_, transport, mishap);
    if (done) done = vote(transport, number, mishap.disagrees);
  }
  if (!done) {
    // A wait has failed: no more waits, and no buffer is touched. (The reducers wait for all.)
    for (const auto* list : {&sent_, &received_}) {
      for (const Message& each : *list) (void)transport.wait(each.handle, deadline);
    }
    spoil();
  }
  return done;
}

void Messages::spoil() {
  is_spoiled_ = true;
  for (auto* list : {&sent_, &received_}) {
    for (Message& each : *list) std::ranges::fill(each.bytes, kUntouched);
  }
}

void Messages::close() {
  if (!is_spoiled_) return;
  for (const Message& each : received_) {
    if (std::ranges::all_of(each.bytes, [](std::byte byte) { return byte == kUntouched; })) continue;
    job_.violate(rank_, "a buffer was written to after its wait had failed");
  }
}

// Steps of a reducer, each in several buckets.
class Training final : public Work {
 public:
  Training(Job& job, int rank) : job_(job), rank_(rank), reference_(Reference::of(job.plan())) {
    const Revert revert = job.plan().folds ? Revert::kFold : Revert::kExact;
    reducer_ = *make_reducer(job.plan().spec, {.policy = {}, .revert = revert, .threads = 1});
  }

  Status step(Transport& transport, std::uint64_t number) override;

 private:
  Status begin_all(Transport& transport, std::uint64_t number, Deadline deadline);
  Status finish_all(Deadline deadline);
  void compare(std::uint64_t number);
  void keep_account(bool done);

  Job& job_;
  int rank_;
  const Reference& reference_;
  std::unique_ptr<Reducer> reducer_;
  Gradient tensors_;
  Gradient input_;
  std::size_t begun_ = 0;     // tensors in buckets that were begun
  std::uint64_t folded_ = 0;  // steps that failed and were kept: then means are others than without
};

Status Training::begin_all(Transport& transport, std::uint64_t number, Deadline deadline) {
  const std::vector<Named> all = named(tensors_);
  const std::size_t buckets = job_.plan().buckets;
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const std::span<const Named> tensors = of_bucket(all, bucket, buckets);
    Step step{number, static_cast<std::uint32_t>(bucket), bucket + 1 == buckets};
    if (step.last) {
      const Mishap mishap = job_.come_to(rank_, number, Fault::Point::kBeforeVote);
      (void)meet_mishap(job_, rank_, transport, mishap);  // the reducer finds the transport aborted
      step.agreed = mishap.disagrees ? 7 : 5;
    }
    Status begun = in_time(job_, rank_, "begin", deadline + settling(job_),
                           [&] { return reducer_->begin(tensors, step, transport, deadline); });
    if (!begun) return begun;
    begun_ += tensors.size();
  }
  return {};
}

Status Training::finish_all(Deadline deadline) {
  // Where a wait ends well after the deadline, because this rank was frozen or gave others time to speak, the
  // step's time begins anew.
  const Deadline by = deadline + job_.plan().timeout + settling(job_);
  for (std::size_t bucket = 0; bucket < job_.plan().buckets; ++bucket) {
    RETURN_IF_ERROR(in_time(job_, rank_, "finish", by, [&] { return reducer_->finish(); }));
  }
  return {};
}

// After a step: as without any fault, to the last bit, and the residuals too.
void Training::compare(std::uint64_t number) {
  const Reference::AfterStep& wanted = reference_.after(number);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (std::memcmp(tensors_[i].data(), wanted.means[i].data(), 4 * tensors_[i].size()) != 0) {
      job_.violate(rank_, "the mean of " + std::string(named(tensors_)[i].name) + " in step " +
                              std::to_string(number) + " is not that of an undisturbed run");
    }
  }
  const auto state = reducer_->save();
  if (!state || *state != wanted.states[static_cast<std::size_t>(rank_)]) {
    job_.violate(
        rank_, "the residuals after step " + std::to_string(number) + " are not those of an undisturbed run");
  }
}

// What a folded step has given is kept, and must not be given again.
void Training::keep_account(bool done) {
  Ledger& ledger = job_.log(rank_).ledger;
  if (done || job_.plan().folds) {
    for (std::size_t i = done ? input_.size() : begun_; i < input_.size(); ++i) {
      std::ranges::fill(input_[i], 0.0F);
    }
    add(ledger.given, input_);
  }
  if (done) {
    add(ledger.means, tensors_);
  } else if (job_.plan().folds) {
    ++folded_;
  }
  if (const auto state = reducer_->save())
    ledger.waiting = waiting_in(job_.plan().spec, *state, job_.plan().world);
}

Status Training::step(Transport& transport, std::uint64_t number) {
  input_ = tensors_ = gradient(rank_, number + 1000 * folded_);
  begun_ = 0;
  const Deadline deadline = job_.scheduler().now() + job_.plan().timeout;
  Status done = begin_all(transport, number, deadline);
  if (done) done = finish_all(deadline);
  if (done && (!job_.plan().folds || job_.epoch() == 0)) compare(number);
  keep_account(done.has_value());
  return done;
}

std::unique_ptr<Work> make_work(Job& job, int rank) {
  if (job.plan().spec.empty()) return std::make_unique<Messages>(job, rank);
  return std::make_unique<Training>(job, rank);
}

using namespace std::chrono_literals;

// Transport::last_commit waits so long at most.
constexpr Clock::duration kLastCommit = 6s;

class RankProgram {
 public:
  RankProgram(Job& job, int rank)
      : job_(job),
        rank_(rank),
        dice_(job.plan().seed, 100 + static_cast<std::uint64_t>(rank)),
        work_(make_work(job, rank)) {}

  void run() {
    do {
      auto transport = std::make_unique<Engine>(MeshMember{rank_, job_.epoch()}, job_.take_links(rank_),
                                                nullptr, GuardedFd());
      take_steps(*transport);
      const Deadline by = job_.scheduler().now() + kLeaving;
      in_time(job_, rank_, "leaving", by, [&] {
        transport.reset();
        return 0;
      });
      work_->close();
    } while (job_.meet_again(rank_));
    job_.end(rank_);
  }

 private:
  RankLog& log() { return job_.log(rank_); }
  std::uint64_t committed() { return log().next_step == first_step_ ? kNoStep : log().next_step - 1; }

  void take_steps(Engine& transport);
  void fail(Engine& transport, const Error& error);
  void end(Ending ending) {
    ending.next_step = log().next_step;
    ending.committed = committed();
    log().endings.push_back(std::move(ending));
  }

  Job& job_;
  int rank_;
  Dice dice_;
  std::unique_ptr<Work> work_;
  std::uint64_t first_step_ = 0;  // in this mesh
};

void RankProgram::take_steps(Engine& transport) {
  first_step_ = log().next_step;
  while (log().next_step < job_.plan().steps) {
    const std::uint64_t step = log().next_step;
    job_.scheduler().sleep(dice_.time_between(std::chrono::nanoseconds(1), job_.plan().pause));
    const Mishap mishap = job_.come_to(rank_, step, Fault::Point::kBegin);
    if (mishap.leaves) {
      end({});
      return;
    }
    Status done = meet_mishap(job_, rank_, transport, mishap);
    if (done) done = work_->step(transport, step);
    if (!done) {
      fail(transport, done.error());
      return;
    }
    log().next_step = step + 1;
    job_.note("rank " + std::to_string(rank_) + " has committed step " + std::to_string(step));
    (void)job_.come_to(rank_, step, Fault::Point::kAfterVote);
  }
  end({});
}

void RankProgram::fail(Engine& transport, const Error& error) {
  job_.note("rank " + std::to_string(rank_) + " fails: " + error.message);
  Ending ending;
  ending.error = error;
  ending.failed_at = job_.scheduler().read();
  const auto ask = [&] {
    return in_time(job_, rank_, "last_commit", job_.scheduler().now() + kLastCommit,
                   [&] { return transport.last_commit(); });
  };
  ending.first = ask();
  if (ending.first.step != committed()) {
    job_.violate(rank_, "last_commit() is not the last step that this rank has committed");
  }
  job_.scheduler().sleep(dice_.time_between(1us, 10s));
  ending.last = ask();
  if (ending.last.step != ending.first.step) job_.violate(rank_, "last_commit() was not final");
  std::string unheard;
  for (const int each : ending.last.unheard) unheard += " " + std::to_string(each);
  job_.note("rank " + std::to_string(rank_) + " has " + std::to_string(log().next_step) +
            " steps, unheard:" + unheard);
  end(std::move(ending));
}

}  // namespace

void run_rank(Job& job, int rank) {
  RankProgram(job, rank).run();
}

Status meet_mishap(Job& job, int rank, Transport& transport, const Mishap& mishap) {
  if (mishap.busy > Clock::duration{}) job.scheduler().sleep(mishap.busy);
  if (!mishap.aborts && !mishap.leaves) return {};
  const Error error{ErrorCode::kAborted, "the program of rank " + std::to_string(rank) + " gives up", rank};
  transport.abort(error);
  return tl::unexpected<Error>(error);
}

}  // namespace deltawire::simulation
