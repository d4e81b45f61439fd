// A rank's rows, parsed or out of its cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "linear/block_store.h"
#include "linear/read_rows.h"

namespace deltawire::linear {

struct DataSettings {
  std::vector<std::string> data;   // files and patterns (find_data_files)
  std::vector<std::string> tests;  // all of whose rows are held out; none of the data's are then
  ParseOptions parse;              // `held_out` is the share where there are no tests
  std::uint64_t memory_bytes = std::uint64_t{2} << 30;  // of a rank; more rows go to a file
  std::string cache;  // "": none. With several ranks each has its own: "<cache>.<rank>-of-<world>"
};

// Errors: those of find_data_files, read_rows and BlockStore; kInvalidArgument for standard input beside a
// cache or with several ranks; kAborted once interrupted() is true.
Result<BlockStore> load_data(const DataSettings& settings, const Share& share,
                             const std::function<bool()>& interrupted);

}  // namespace deltawire::linear
