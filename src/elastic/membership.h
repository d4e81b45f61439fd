// One process's part in an elastic session: its view, the mesh of each epoch, and what is kept from one to
// the next.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/errors.h"
#include "elastic/founding.h"
#include "elastic/meeting.h"
#include "elastic/meeting_context.h"
#include "elastic/session_record.h"

namespace deltawire::elastic {

// Thread rule: as ElasticSession.
class Membership {
 public:
  Membership(std::string spec, const ReducerOptions& options, ElasticOptions elastic, std::string settings);
  ~Membership() { close("it left"); }

  // `door`: as ElasticSession::open.
  Status open(std::unique_ptr<Listener> door);
  Result<Report> all_reduce(std::span<const ElasticBucket> buckets, const ElasticStep& step);
  void abort(std::string_view reason);
  void close(std::string_view why);

  bool has_joiners() const { return context_.reception->has_joiners(); }
  bool closed() const noexcept { return context_.ending.is_set(); }
  const std::string& spec() const { return spec_; }
  const SessionRecord& record() const { return record_; }
  int rank() const { return record_.view().rank_of(state_.id).value_or(0); }
  std::optional<std::span<const StateArray>> joined_state() const;
  void declare(std::span<const Named> tensors);
  void begin_at(std::uint64_t steps);
  // What `call` returns with the reducer of this epoch; kState while a step is under way.
  template <class Call>
  auto between_steps(Call call) -> decltype(call(std::declval<Reducer&>())) {
    const Using use(*this);
    if (!use.is_alone()) {
      return wrong_state("a step is under way; save, load, mask and explain between steps");
    }
    return call(record_.exchange()->reducer());
  }

 private:
  // Of the reducer, by one thread at a time.
  class Using {
   public:
    explicit Using(Membership& owner) : owner_(owner), is_alone_(!owner.in_use_.exchange(true)) {}
    ~Using() {
      if (is_alone_) owner_.in_use_ = false;
    }
    Using(const Using&) = delete;
    Using& operator=(const Using&) = delete;
    bool is_alone() const { return is_alone_; }

   private:
    Membership& owner_;
    const bool is_alone_;
  };

  Status begin();
  Status join();
  Status start(Agreement agreement, Clock::duration within);
  Result<std::shared_ptr<EpochExchange>> connect(Agreement& agreement, Clock::duration within);
  MeshOptions mesh_of(const Agreement& agreement, int rank, Clock::duration within) const;
  Status load(Reducer& reducer, const Agreement& agreement);
  void enter(const NextView& next, std::shared_ptr<EpochExchange> exchange);

  // The error, if the session has ended.
  std::optional<Error> check_open_step(std::span<const ElasticBucket> buckets);
  void committed();
  Status recover(const Error& error);
  Status save_residuals();
  OrEnded<NextView> form_view();
  // kAborted, whose suspect is this rank.
  Error given_up(const std::string& how) const;

  const std::string given_spec_;
  std::string spec_;  // canonical
  const ReducerOptions options_;
  MeetingContext context_;
  MemberState state_;                            // of the thread that calls all_reduce, but for its id
  std::optional<std::vector<TensorShape>> due_;  // in the first step of a process that joins
  bool has_residuals_ = false;                   // context_.residuals are those of state_.steps
  std::optional<StateReceiver::Arrays> joined_;
  std::atomic<bool> in_use_ = false;
  std::atomic<bool> is_stepping_ = false;  // a mesh exchanges its buckets
  std::atomic<bool> gave_up_ = false;
  SessionRecord record_;
};

}  // namespace deltawire::elastic
