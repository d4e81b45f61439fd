// How fast a channel codes, beside a copy of the same values.
#pragma once

#include <string_view>

#include "cli/measure/input.h"
#include "deltawire/channel.h"

namespace deltawire::cli {

// GB/s are 10^9 bytes of float32 values by seconds of the thread's processor time; medians. The ratios are to
// the copies made in turn with them: medians of ratios.
struct Speed {
  double encode_gb_s = 0;
  double decode_gb_s = 0;
  double copy_gb_s = 0;
  double encode_to_copy = 0;
  double decode_to_copy = 0;
};

// Encodes the step over and over, as training does: one thread, residuals, frames and checksums, for about
// `seconds`, three times at least (or until interrupted). Errors: those of Channel::encode and decode.
Result<Speed> measure_speed(std::string_view codecs, const Policy& policy, const InputStep& step,
                            double seconds);

}  // namespace deltawire::cli
