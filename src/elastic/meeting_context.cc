#include "elastic/meeting_context.h"

#include <algorithm>

namespace deltawire::elastic {

MeetingContext::MeetingContext(ElasticOptions given, std::string all_settings)
    : options(std::move(given)),
      settings(std::move(all_settings)),
      limit(std::max(options.connect_timeout, options.arrival_timeout)),
      chunk_time(options.timeout),
      caller({options.token, options.encryption}, ending) {}

Status MeetingContext::check_open(const char* meanwhile) const {
  if (ending.is_set()) return fail(ErrorCode::kAborted, std::string("the session was closed ") + meanwhile);
  return {};
}

Result<std::unique_ptr<Listener>> MeetingContext::listen() const {
  return listen_tcp(reception->address().host, options.ports);
}

Result<std::vector<std::byte>> MeetingContext::share() const {
  return shared_state(residuals);
}

Result<std::shared_ptr<const StateSender>> MeetingContext::offer_state() {
  if (!options.state) return std::shared_ptr<const StateSender>();
  const auto failed = [&](const Error& error) {
    const std::string text =
        "state= of the member at " + to_string(reception->address()) + " failed: " + error.text();
    log(text + "; a process that joins gets nothing from here");
    return fail(ErrorCode::kAborted, text);
  };
  auto arrays = options.state();
  if (!arrays) return failed(arrays.error());
  auto sender = StateSender::make(*std::move(arrays));
  if (!sender) return failed(sender.error());
  reception->offer(*sender);
  return sender;
}

void MeetingContext::log(const std::string& line) const {
  if (options.log) options.log(line);
}

}  // namespace deltawire::elastic
