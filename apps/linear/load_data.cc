#include "linear/load_data.h"

#include <bit>
#include <utility>

#include "base/random.h"

namespace deltawire::linear {
namespace {

// The size of a block: long enough to read at the disk's speed, short enough that shuffling blocks, and rows
// within them, shuffles the data.
constexpr std::size_t kBlockBytes = std::size_t{1} << 22;

// A hash of the files and of how they are read, which identifies a cache.
class Key {
 public:
  void add(std::uint64_t number) { key_ = CounterRng(key_).at(number); }
  void add(const std::string& text) {
    add(text.size());
    for (const char c : text) add(static_cast<unsigned char>(c));
  }
  void add(const std::vector<DataFile>& files) {
    add(files.size());
    for (const DataFile& file : files) {
      add(file.path);
      add(file.bytes);
      add(static_cast<std::uint64_t>(file.changed));
    }
  }
  void add(const ParseOptions& options) {
    add(options.merge_duplicates ? 1 : 0);
    add(static_cast<std::uint64_t>(options.hash_bits));
    add(options.positive ? 1 : 0);
    add(std::bit_cast<std::uint32_t>(options.positive.value_or(0)));
    add(options.seed);
    add(std::bit_cast<std::uint64_t>(options.held_out));
  }
  std::uint64_t value() const noexcept { return key_; }

 private:
  std::uint64_t key_ = 1;
};

Status check_standard_input(const std::vector<DataFile>& files, const DataSettings& settings,
                            const RowPartition& partition) {
  for (const DataFile& file : files) {
    if (file.path != "-") continue;
    if (partition.world > 1) {
      return fail(ErrorCode::kInvalidArgument, "standard input feeds one worker; name files for several");
    }
    if (!settings.cache.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  "standard input can't be told from another; name a file for a cache");
    }
  }
  return {};
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
    if (Status usable = check_standard_input(*files, settings, partition); !usable)
      return forward_error(usable);
  }
  ParseOptions parse = settings.parse;
  if (!tests->empty()) parse.held_out = 0;
  std::string path = settings.cache;
  if (!path.empty() && partition.world > 1) {
    path += "." + std::to_string(partition.rank) + "-of-" + std::to_string(partition.world);
  }
  Key key;
  key.add(*data);
  key.add(*tests);
  key.add(parse);
  key.add(static_cast<std::uint64_t>(partition.rank));
  key.add(static_cast<std::uint64_t>(partition.world));
  if (!path.empty()) {
    auto cached = BlockStore::open(settings.memory_bytes, path, key.value());
    if (!cached) return forward_error(cached);
    if (*cached) return **std::move(cached);
  }
  BlockStore store(settings.memory_bytes, path);
  if (Status read = parse_into(store, *data, partition, parse, interrupted); !read)
    return forward_error(read);
  if (!tests->empty()) {
    parse.held_out = 1;  // every draw is below it
    if (Status read = parse_into(store, *tests, partition, parse, interrupted); !read)
      return forward_error(read);
  }
  if (Status done = store.finish(key.value()); !done) return forward_error(done);
  return store;
}

}  // namespace deltawire::linear
