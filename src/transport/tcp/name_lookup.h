// A host's address, looked up without keeping the caller waiting: a name server that is silent takes longer
// than a rank may. A numeric host is known at once.
#pragma once

#include <memory>
#include <optional>

#include "base/mutex.h"
#include "transport/tcp/address.h"

namespace deltawire {

// Thread rule: one thread.
class NameLookup {
 public:
  // How often to ask for the answer.
  static constexpr std::chrono::milliseconds kPause{20};

  explicit NameLookup(const Endpoint& endpoint);

  // Nothing while it is being looked up. kInvalidArgument: the name has no address now.
  std::optional<Result<SocketAddress>> answer() const;

 private:
  struct Shared {
    Mutex mutex;
    std::optional<Result<SocketAddress>> answer DELTAWIRE_GUARDED_BY(mutex);
  };

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

// The address of a host, whose name is looked up again until it has one. kInvalidArgument: it has none at
// `deadline`. kAborted: `interrupted`, which may be empty, has returned true.
Result<SocketAddress> look_up_until(const Endpoint& endpoint, Deadline deadline,
                                    const std::function<bool()>& interrupted);

}  // namespace deltawire
