// A channel that counts what it holds.
#pragma once

#include <memory>
#include <string_view>

#include "base/memory_meter.h"
#include "deltawire/channel.h"

namespace deltawire {

// As make_channel; residuals and messages are counted in `meter`.
Result<std::unique_ptr<Channel>> make_metered_channel(std::string_view codec_spec,
                                                      const ChannelOptions& options,
                                                      std::shared_ptr<MemoryMeter> meter);

}  // namespace deltawire
