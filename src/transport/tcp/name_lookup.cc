#include "transport/tcp/name_lookup.h"

#include <system_error>
#include <thread>

namespace deltawire {
namespace {

constexpr std::chrono::milliseconds kRetryPause{300};

}  // namespace

NameLookup::NameLookup(const Endpoint& endpoint) {
  if (auto numeric = SocketAddress::from_numeric(endpoint.host, endpoint.port)) {
    const MutexLock lock(shared_->mutex);
    shared_->answer = *numeric;
    return;
  }
  const auto look = [shared = shared_, endpoint] {
    auto found = SocketAddress::from_host(endpoint.host, endpoint.port);
    const MutexLock lock(shared->mutex);
    shared->answer = std::move(found);
  };
  try {
    std::thread(look).detach();  // nobody can end it sooner than the resolver does
  } catch (const std::system_error&) {
    look();  // no thread is left
  }
}

std::optional<Result<SocketAddress>> NameLookup::answer() const {
  const MutexLock lock(shared_->mutex);
  return shared_->answer;
}

Result<SocketAddress> look_up_until(const Endpoint& endpoint, Deadline deadline,
                                    const std::function<bool()>& interrupted) {
  NameLookup lookup(endpoint);
  Deadline again = Deadline::max();
  Error last{ErrorCode::kInvalidArgument, "no such address: \"" + endpoint.host + "\" (no answer)"};
  while (true) {
    if (const auto found = lookup.answer(); found && again == Deadline::max()) {
      if (*found) return *found;
      last = found->error();
      again = Clock::now() + kRetryPause;
    }
    const Deadline now = Clock::now();
    if (now >= deadline) return tl::unexpected<Error>(last);
    if (interrupted && interrupted()) {
      return fail(ErrorCode::kAborted, "interrupted while \"" + endpoint.host + "\" was looked up");
    }
    if (now >= again) {
      lookup = NameLookup(endpoint);
      again = Deadline::max();
    }
    std::this_thread::sleep_for(NameLookup::kPause);
  }
}

}  // namespace deltawire
