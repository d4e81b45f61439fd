// A channel that counts what it holds, and codes with the threads of its owner.
#pragma once

#include <memory>
#include <string_view>

#include "base/buffer_pool.h"
#include "deltawire/channel.h"
#include "deltawire/part_backend.h"
#include "deltawire/workers.h"

namespace deltawire {

// What the channels of one owner have together; each may be null.
struct ChannelResources {
  std::shared_ptr<MemoryMeter> meter;              // counts residuals and messages
  std::shared_ptr<Workers> workers;                // for one channel's call at a time
  std::shared_ptr<PartBackend> backend = nullptr;  // as ReducerOptions::backend
};

class MeteredChannel : public Channel {
 public:
  // From the next step on it codes by these codecs, as make_channel takes them. Messages name them, so its
  // peers' channels change before the same step. Residuals stay, and spec() and saved states are those of the
  // codecs that it was made with. kState while a transaction is open; errors of make_channel.
  virtual Status recode(std::string_view codecs) = 0;
};

// As make_channel.
Result<std::unique_ptr<MeteredChannel>> make_metered_channel(std::string_view codecs,
                                                             const ChannelOptions& options,
                                                             ChannelResources resources);

}  // namespace deltawire
