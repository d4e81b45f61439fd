// Reading data: a rank's share of the rows of all files, each byte of plain files read by one rank alone.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "linear/parse_rows.h"
#include "linear/text_source.h"

namespace deltawire::linear {

// With at least as many files as ranks, file i is rank i modulo world's. With fewer, each file is cut: a
// plain one into `world` ranges of bytes, of which a rank reads its own; another, which can be read from its
// front alone, is unpacked by every rank, who parses every world-th MiB of text.
struct Share {
  int rank = 0;
  int world = 1;
};

inline constexpr std::uint64_t kRowBytesMax = std::uint64_t{1} << 26;

// Called with what has been parsed and not yet been taken (cleared), after each MiB of text or so, and at the
// end, when all is to be taken.
using TakeRows = std::function<Status(RowSink&, bool ended)>;

// Errors: kIo; kCorrupt, "<file>:<line>:<column>: ...", for a row that is none; kLimit for a row of more than
// kRowBytesMax bytes; those of `take`.
Status read_rows(std::span<const DataFile> files, const Share& share, const ParseOptions& options,
                 const TakeRows& take);

}  // namespace deltawire::linear
