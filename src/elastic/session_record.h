// What any thread may ask of an elastic session while another one takes its steps.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "deltawire/connect.h"
#include "deltawire/elastic.h"
#include "deltawire/reducer.h"
#include "elastic/messages.h"

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

// Thread rule: any thread may call any member.
class SessionRecord {
 public:
  // A view begins.
  void enter(const View& view, std::shared_ptr<EpochExchange> exchange, std::uint64_t steps);
  void set_steps(std::uint64_t steps);
  // The change from the view before; returns the event.
  ElasticEvent add_event(const NextView& next, const View& before, const Error& error, double seconds);
  // The session ends with this error, in which the epoch is named. `about`: the epoch that it is about
  // already. Returns the first such error.
  Error end_with(Error error, std::optional<std::uint32_t> about = {});

  View view() const;
  std::shared_ptr<EpochExchange> exchange() const;  // null: in no view yet
  std::uint64_t steps() const;
  std::vector<ElasticEvent> events() const;
  std::optional<ElasticSession::End> end() const;

 private:
  mutable Mutex mutex_;
  View view_ DELTAWIRE_GUARDED_BY(mutex_);
  std::shared_ptr<EpochExchange> exchange_ DELTAWIRE_GUARDED_BY(mutex_);
  std::uint64_t steps_ DELTAWIRE_GUARDED_BY(mutex_) = 0;
  std::vector<ElasticEvent> events_ DELTAWIRE_GUARDED_BY(mutex_);
  std::optional<ElasticSession::End> end_ DELTAWIRE_GUARDED_BY(mutex_);
};

}  // namespace deltawire::elastic
