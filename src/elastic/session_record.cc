#include "elastic/session_record.h"

namespace deltawire::elastic {

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
