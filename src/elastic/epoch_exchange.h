// The mesh of one epoch with its reducer.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/mutex.h"
#include "deltawire/connect.h"
#include "deltawire/elastic.h"
#include "deltawire/reducer.h"

namespace deltawire::elastic {

// Thread rule: any thread may call abort, traffic and memory; one at a time the others.
class EpochExchange {
 public:
  // Errors: those of make_reducer and connect_tcp.
  static Result<std::shared_ptr<EpochExchange>> connect(const std::string& spec,
                                                        const ReducerOptions& options,
                                                        std::unique_ptr<Listener> listener,
                                                        const MeshOptions& mesh);
  ~EpochExchange() { close(); }

  // One attempt: the last bucket's report, or why the step is committed nowhere. `timeout`: of each bucket.
  Result<Report> run(std::span<const ElasticBucket> buckets, std::uint64_t number, const ElasticStep& step,
                     std::chrono::milliseconds timeout);
  void abort(const Error& error);
  Traffic traffic() const;
  // Says goodbye to the other ranks. The reducer stays.
  void close();

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

}  // namespace deltawire::elastic
