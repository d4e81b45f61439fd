#include "elastic/epoch_exchange.h"

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

}  // namespace deltawire::elastic
