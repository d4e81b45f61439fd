// Rate against distortion, drawn as SVG.
#pragma once

#include <span>
#include <string>

#include "cli/measure/method.h"

namespace deltawire::cli {

// A figure for each input, one below the other: bits per value to the right, relative L2 upwards, both on log
// axes; what lost nothing stands on a line of its own below. A codec's methods share a colour. Rows without
// these figures are left out. The same rows give the same bytes.
std::string rate_plot(std::span<const Row> rows);

}  // namespace deltawire::cli
