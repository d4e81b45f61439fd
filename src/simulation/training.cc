#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "simulation/reference.h"
#include "simulation/work.h"

namespace deltawire::simulation {
namespace {

// Steps of a reducer, each in several buckets.
class Training final : public Work {
 public:
  Training(Job& job, int rank) : job_(job), rank_(rank), reference_(Reference::of(job.plan())) {
    ReducerOptions options;
    options.threads = 1;
    options.revert = job.plan().folds ? Revert::kFold : Revert::kExact;
    reducer_ = *make_reducer(job.plan().spec, options);
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
    const std::size_t first = all.size() * bucket / buckets;
    const std::size_t end = all.size() * (bucket + 1) / buckets;
    Step step{number, static_cast<std::uint32_t>(bucket), bucket + 1 == buckets};
    if (step.last) {
      const Mishap mishap = job_.come_to(rank_, number, Fault::Point::kBeforeVote);
      (void)meet_mishap(job_, rank_, transport, mishap);  // the reducer finds the transport aborted
      step.agreed = mishap.disagrees ? 7 : 5;
    }
    Status begun = in_time(job_, rank_, "begin", deadline + settling(job_), [&] {
      return reducer_->begin(std::span(all).subspan(first, end - first), step, transport, deadline);
    });
    if (!begun) return begun;
    begun_ = end;
  }
  return {};
}

Status Training::finish_all(Deadline deadline) {
  // Where a wait ends well after the deadline, because this rank was frozen or gave others time to speak, the
  // step's time begins anew.
  const Deadline by = deadline + job_.plan().timeout + settling(job_);
  for (std::size_t bucket = 0; bucket < job_.plan().buckets; ++bucket) {
    const auto report = in_time(job_, rank_, "finish", by, [&] { return reducer_->finish(); });
    if (!report) return forward_error(report);
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

}  // namespace

std::unique_ptr<Work> make_training(Job& job, int rank) {
  return std::make_unique<Training>(job, rank);
}

}  // namespace deltawire::simulation
