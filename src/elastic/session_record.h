// What any thread may ask of an elastic session while another one takes its steps.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "deltawire/connect.h"
#include "deltawire/elastic.h"
#include "deltawire/reducer.h"
#include "elastic/messages.h"
#include "transport/process/machine.h"

namespace deltawire::elastic {

// The mesh of one epoch with its reducer.
//
// Thread rule: any thread may call abort, traffic and memory; one at a time the others.
class EpochExchange {
 public:
  // Errors: those of make_reducer and connect_tcp.
  static Result<std::shared_ptr<EpochExchange>> connect(const std::string& spec,
                                                        const ReducerOptions& options,
                                                        std::unique_ptr<Listener> listener,
                                                        const MeshOptions& mesh) {
    ASSIGN_OR_RETURN(auto reducer, make_reducer(spec, options));
    ASSIGN_OR_RETURN(auto transport, connect_tcp(std::move(listener), mesh));
    return std::shared_ptr<EpochExchange>(new EpochExchange(std::move(reducer), std::move(transport)));
  }

  ~EpochExchange() { close(); }

  // One attempt: the last bucket's report, or why the step is committed nowhere. `timeout`: of each bucket.
  Result<Report> run(std::span<const ElasticBucket> buckets, std::uint64_t number, const ElasticStep& step,
                     std::chrono::milliseconds timeout) {
    const auto transport = this->transport();
    if (!transport) return fail(ErrorCode::kAborted, "the session was closed");
    Result<Report> report = invalid("a step without buckets");
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      if (buckets[i].prepare) buckets[i].prepare();
      const bool is_last = i + 1 == buckets.size();
      const Step place{.number = number,
                       .bucket = static_cast<std::uint32_t>(i),
                       .last = is_last,
                       .scale = step.scale,
                       .agreed = is_last ? step.agreed : 0,
                       .timed = step.timed};
      report = or_no_memory("exchanging a bucket", [&] {
        return reducer_->all_reduce(buckets[i].bucket, place, *transport, MachineClock::now() + timeout);
      });
      if (!report) break;
    }
    return report;
  }

  void abort(const Error& error) {
    if (const auto open = transport()) open->abort(error);
  }

  Traffic traffic() const {
    const MutexLock lock(mutex_);
    return transport_ ? transport_->traffic() : last_traffic_;
  }

  // Says goodbye to the other ranks. The reducer stays.
  void close() {
    std::shared_ptr<Transport> ended;  // outlives the lock: its goodbye takes a while
    const MutexLock lock(mutex_);
    if (!transport_) return;
    last_traffic_ = transport_->traffic();
    ended = std::move(transport_);
  }

  Reducer& reducer() { return *reducer_; }
  const Reducer& reducer() const { return *reducer_; }

 private:
  EpochExchange(std::unique_ptr<Reducer> reducer, std::unique_ptr<Transport> transport)
      : reducer_(std::move(reducer)), transport_(std::move(transport)) {}

  // Null: it is closed.
  std::shared_ptr<Transport> transport() const {
    const MutexLock lock(mutex_);
    return transport_;
  }

  const std::unique_ptr<Reducer> reducer_;
  mutable Mutex mutex_;
  std::shared_ptr<Transport> transport_ DELTAWIRE_GUARDED_BY(mutex_);
  Traffic last_traffic_ DELTAWIRE_GUARDED_BY(mutex_);
};

// Thread rule: any thread may call any member.
class SessionRecord {
 public:
  // A view begins.
  void enter(const View& view, std::shared_ptr<EpochExchange> exchange, std::uint64_t steps) {
    const MutexLock lock(mutex_);
    view_ = view;
    exchange_.swap(exchange);  // the one before ends without the lock
    steps_ = steps;
  }

  void set_steps(std::uint64_t steps) {
    const MutexLock lock(mutex_);
    steps_ = steps;
  }

  // The change from the view before; returns the event.
  ElasticEvent add_event(const NextView& next, const View& before, const Error& error, double seconds) {
    ElasticEvent event;
    event.epoch = next.view.epoch;
    event.step = next.steps;
    event.world_size = static_cast<int>(next.view.members.size());
    event.seconds = seconds;
    event.residual_kept = next.residual_kept;
    event.residual_lost = next.residual_lost;
    event.error = error;
    for (const Member& member : before.members) {
      if (next.view.has(member.id)) continue;
      const auto why = next.gone.find(member.id);
      event.gone.push_back(
          {member.id, *before.rank_of(member.id), why == next.gone.end() ? "" : why->second});
    }
    for (const Member& member : next.view.members) {
      if (!before.has(member.id)) event.joined.push_back(member.id);
    }
    const MutexLock lock(mutex_);
    events_.push_back(event);
    return event;
  }

  // The session ends with this error, in which the epoch is named. `about`: the epoch that it is about
  // already. Returns the first such error.
  Error end_with(Error error, std::optional<std::uint32_t> about = {}) {
    const MutexLock lock(mutex_);
    if (end_) return end_->error;
    if (!about) {
      about = view_.epoch;
      error.message += " (epoch " + std::to_string(*about) + ")";
    }
    end_ = ElasticSession::End{error, about};
    return error;
  }

  View view() const {
    const MutexLock lock(mutex_);
    return view_;
  }

  // Null: in no view yet.
  std::shared_ptr<EpochExchange> exchange() const {
    const MutexLock lock(mutex_);
    return exchange_;
  }

  std::uint64_t steps() const {
    const MutexLock lock(mutex_);
    return steps_;
  }

  std::vector<ElasticEvent> events() const {
    const MutexLock lock(mutex_);
    return events_;
  }

  std::optional<ElasticSession::End> end() const {
    const MutexLock lock(mutex_);
    return end_;
  }

 private:
  mutable Mutex mutex_;
  View view_ DELTAWIRE_GUARDED_BY(mutex_);
  std::shared_ptr<EpochExchange> exchange_ DELTAWIRE_GUARDED_BY(mutex_);
  std::uint64_t steps_ DELTAWIRE_GUARDED_BY(mutex_) = 0;
  std::vector<ElasticEvent> events_ DELTAWIRE_GUARDED_BY(mutex_);
  std::optional<ElasticSession::End> end_ DELTAWIRE_GUARDED_BY(mutex_);
};

}  // namespace deltawire::elastic
