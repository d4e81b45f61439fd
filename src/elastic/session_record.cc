#include "elastic/session_record.h"

#include "base/errors.h"
#include "transport/process/machine.h"

namespace deltawire::elastic {

Result<std::shared_ptr<EpochExchange>> EpochExchange::connect(const std::string& spec,
                                                              const ReducerOptions& options,
                                                              std::unique_ptr<Listener> listener,
                                                              const MeshOptions& mesh) {
  ASSIGN_OR_RETURN(auto reducer, make_reducer(spec, options));
  ASSIGN_OR_RETURN(auto transport, connect_tcp(std::move(listener), mesh));
  return std::shared_ptr<EpochExchange>(new EpochExchange(std::move(reducer), std::move(transport)));
}

Result<Report> EpochExchange::run(std::span<const ElasticBucket> buckets, std::uint64_t number,
                                  const ElasticStep& step, std::chrono::milliseconds timeout) {
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

void EpochExchange::abort(const Error& error) {
  if (const auto open = transport()) open->abort(error);
}

Traffic EpochExchange::traffic() const {
  const MutexLock lock(mutex_);
  return transport_ ? transport_->traffic() : last_traffic_;
}

void EpochExchange::close() {
  std::shared_ptr<Transport> ended;  // outlives the lock: its goodbye takes a while
  const MutexLock lock(mutex_);
  if (!transport_) return;
  last_traffic_ = transport_->traffic();
  ended = std::move(transport_);
}

void SessionRecord::enter(const View& view, std::shared_ptr<EpochExchange> exchange, std::uint64_t steps) {
  const MutexLock lock(mutex_);
  view_ = view;
  exchange_.swap(exchange);  // the one before ends without the lock
  steps_ = steps;
}

void SessionRecord::set_steps(std::uint64_t steps) {
  const MutexLock lock(mutex_);
  steps_ = steps;
}

ElasticEvent SessionRecord::add_event(const NextView& next, const View& before, const Error& error,
                                      double seconds) {
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
    event.gone.push_back({member.id, *before.rank_of(member.id), why == next.gone.end() ? "" : why->second});
  }
  for (const Member& member : next.view.members) {
    if (!before.has(member.id)) event.joined.push_back(member.id);
  }
  const MutexLock lock(mutex_);
  events_.push_back(event);
  return event;
}

Error SessionRecord::end_with(Error error, std::optional<std::uint32_t> about) {
  const MutexLock lock(mutex_);
  if (end_) return end_->error;
  if (!about) {
    about = view_.epoch;
    error.message += " (epoch " + std::to_string(*about) + ")";
  }
  end_ = ElasticSession::End{error, about};
  return error;
}

View SessionRecord::view() const {
  const MutexLock lock(mutex_);
  return view_;
}

std::shared_ptr<EpochExchange> SessionRecord::exchange() const {
  const MutexLock lock(mutex_);
  return exchange_;
}

std::uint64_t SessionRecord::steps() const {
  const MutexLock lock(mutex_);
  return steps_;
}

std::vector<ElasticEvent> SessionRecord::events() const {
  const MutexLock lock(mutex_);
  return events_;
}

std::optional<ElasticSession::End> SessionRecord::end() const {
  const MutexLock lock(mutex_);
  return end_;
}

}  // namespace deltawire::elastic
