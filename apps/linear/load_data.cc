#include "linear/load_data.h"

#include <algorithm>
#include <utility>

namespace deltawire::linear {
namespace {

// The size of a block: long enough to read at the disk's speed, short enough that shuffling blocks, and rows
// within them, shuffles the data.
constexpr std::size_t kBlockBytes = std::size_t{1} << 22;

Status check_standard_input(const std::vector<DataFile>& files, int world) {
  const bool reads_it = std::ranges::any_of(files, [](const DataFile& file) { return file.path == "-"; });
  if (!reads_it || world == 1) return {};
  return fail(ErrorCode::kInvalidArgument, "standard input feeds one worker; name files for several");
}

Status parse_into(BlockStore& store, const std::vector<DataFile>& files, const RowPartition& partition,
                  const ParseOptions& options, const std::function<bool()>& interrupted) {
  const TakeRows take = [&](RowSink& sink, bool all) -> Status {
    if (interrupted()) return fail(ErrorCode::kAborted, "interrupted while reading the data");
    for (const bool held_out : {false, true}) {
      RowBlock& block = held_out ? sink.held_out : sink.training;
      if (!all && block.bytes() < kBlockBytes) continue;
      if (Status added = store.add(block, held_out); !added) return added;
    }
    return {};
  };
  return read_rows(files, partition, options, take);
}

}  // namespace

Result<BlockStore> load_data(const DataSettings& settings, const RowPartition& partition,
                             const std::function<bool()>& interrupted) {
  const auto data = find_data_files(settings.data);
  if (!data) return forward_error(data);
  const auto tests = find_data_files(settings.tests);
  if (!tests) return forward_error(tests);
  for (const auto* files : {&*data, &*tests}) {
    if (Status usable = check_standard_input(*files, partition.world); !usable) return forward_error(usable);
  }
  ParseOptions parse = settings.parse;
  if (!tests->empty()) parse.held_out = 0;
  BlockStore store(settings.memory_bytes);
  if (Status read = parse_into(store, *data, partition, parse, interrupted); !read)
    return forward_error(read);
  if (!tests->empty()) {
    parse.held_out = 1;  // every draw is below it
    if (Status read = parse_into(store, *tests, partition, parse, interrupted); !read)
      return forward_error(read);
  }
  return store;
}

}  // namespace deltawire::linear
