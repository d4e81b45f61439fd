// The table of all codecs, in Markdown: `deltawire codecs --markdown`, and docs/reference/compare.md's.
#pragma once

#include <string>

namespace deltawire::cli {

// All of it comes from CodecInfo, and from encoding a few values: whether a codec's size is the same for all.
std::string codec_table();

}  // namespace deltawire::cli
