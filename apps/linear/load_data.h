// Loads a rank's rows from its files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "linear/block_store.h"
#include "linear/read_rows.h"

namespace deltawire::linear {

struct DataSettings {
  std::vector<std::string> data;                        // files and patterns (find_data_files)
  std::vector<std::string> tests;                       // their rows are held out, instead of rows of `data`
  ParseOptions parse;                                   // `held_out` counts only without tests
  std::uint64_t memory_bytes = std::uint64_t{2} << 30;  // per rank; more rows go to a file
};

// Errors: those of find_data_files, read_rows and BlockStore; kInvalidArgument for standard input with
// several ranks; kAborted once interrupted() is true.
Result<BlockStore> load_data(const DataSettings& settings, const RowPartition& partition,
                             const std::function<bool()>& interrupted);

}  // namespace deltawire::linear
