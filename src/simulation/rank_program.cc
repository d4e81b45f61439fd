#include <string>

#include "simulation/job.h"
#include "simulation/work.h"

namespace deltawire::simulation {
namespace {

using namespace std::chrono_literals;

// Transport::last_commit waits so long at most.
constexpr Clock::duration kLastCommit = 6s;

class RankProgram {
 public:
  RankProgram(Job& job, int rank)
      : job_(job),
        rank_(rank),
        dice_(job.plan().seed, 100 + static_cast<std::uint64_t>(rank)),
        work_(job.plan().spec.empty() ? make_messages(job, rank) : make_training(job, rank)) {}

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
