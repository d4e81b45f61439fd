// Reads a rank's part of the rows of all files. Each byte is read by one rank only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "deltawire/result.h"
#include "linear/block_store.h"
#include "linear/parse_rows.h"

namespace deltawire::linear {

struct DataFile {
  std::string path;         // "-" is standard input
  bool stream = true;       // can only be read once, from its front
  std::uint64_t bytes = 0;  // of one that is no stream

  std::string name() const { return path == "-" ? "standard input" : path; }
};

// Finds the files of the patterns, those of each pattern in alphabetical order. A pattern is a path, which
// may have * ? [] in it. Errors (kIo): no file matches; a file is a folder, is packed, or cannot be opened.
Result<std::vector<DataFile>> find_data_files(std::span<const std::string> patterns);

// The paths of one pattern, none of which is opened.
std::vector<std::string> paths_of(const std::string& pattern);

// How ranks divide the rows. With at least as many files as ranks, rank i modulo world reads file i. With
// fewer, each file is divided into `world` byte ranges, one per rank.
struct RowPartition {
  int rank = 0;
  int world = 1;
};

inline constexpr std::uint64_t kRowBytesMax = std::uint64_t{1} << 26;

// Called with the rows parsed since they were last cleared: after each MiB of text or so, and at the end,
// when it must take all of them.
using TakeRows = std::function<Status(RowSink&, bool ended)>;

// Errors: kIo; kCorrupt, "<file>:<line>:<column>: ...", for an invalid row; kLimit for a row of more than
// kRowBytesMax bytes; those of `take`.
Status read_rows(std::span<const DataFile> files, const RowPartition& partition, const ParseOptions& options,
                 const TakeRows& take);

// Loads a rank's rows from its files.
struct DataSettings {
  std::vector<std::string> data;                        // files and patterns (find_data_files)
  std::vector<std::string> tests;                       // their rows are held out, instead of rows of `data`
  ParseOptions parse;                                   // `held_out` counts only without tests
  std::uint64_t memory_bytes = std::uint64_t{2} << 30;  // per rank; more rows go to a file
};

// Errors: those of find_data_files, read_rows and BlockStore; kInvalidArgument for a stream with several
// ranks; kAborted once interrupted() is true.
Result<BlockStore> load_data(const DataSettings& settings, const RowPartition& partition,
                             const std::function<bool()>& interrupted);

}  // namespace deltawire::linear
