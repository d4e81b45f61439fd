// What any thread may ask of an elastic session while another one takes its steps.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "elastic/epoch_exchange.h"
#include "elastic/messages.h"
#include "elastic/view.h"

namespace deltawire::elastic {

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
