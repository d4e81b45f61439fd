#include "linear/load_data.h"

#include <bit>
#include <utility>

#include "base/random.h"

namespace deltawire::linear {
namespace {

// Rows are kept in blocks of about so many bytes: long enough to read at the disk's speed, short enough that
// shuffled blocks are a shuffle.
constexpr std::size_t kBlockBytes = std::size_t{1} << 22;

// What tells that a cache is of these files, read in this way.
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
                            const Share& share) {
  for (const DataFile& file : files) {
    if (file.path != "-") continue;
    if (share.world > 1) {
      return fail(ErrorCode::kInvalidArgument, "standard input feeds one worker; name files for several");
    }
    if (!settings.cache.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  "standard input can't be told from another; name a file for a cache");
    }
  }
  return {};
}

Status parse_into(BlockStore& store, const std::vector<DataFile>& files, const Share& share,
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
  return read_rows(files, share, options, take);
}

}  // namespace

Result<BlockStore> load_data(const DataSettings& settings, const Share& share,
                             const std::function<bool()>& interrupted) {
  const auto data = find_data_files(settings.data);
  if (!data) return forward_error(data);
  const auto tests = find_data_files(settings.tests);
  if (!tests) return forward_error(tests);
  for (const auto* files : {&*data, &*tests}) {
    if (Status usable = check_standard_input(*files, settings, share); !usable) return forward_error(usable);
  }
  ParseOptions parse = settings.parse;
  if (!tests->empty()) parse.held_out = 0;
  std::string path = settings.cache;
  if (!path.empty() && share.world > 1) {
    path += "." + std::to_string(share.rank) + "-of-" + std::to_string(share.world);
  }
  Key key;
  key.add(*data);
  key.add(*tests);
  key.add(parse);
  key.add(static_cast<std::uint64_t>(share.rank));
  key.add(static_cast<std::uint64_t>(share.world));
  if (!path.empty()) {
    auto cached = BlockStore::open(settings.memory_bytes, path, key.value());
    if (!cached) return forward_error(cached);
    if (*cached) return **std::move(cached);
  }
  BlockStore store(settings.memory_bytes, path);
  if (Status read = parse_into(store, *data, share, parse, interrupted); !read) return forward_error(read);
  if (!tests->empty()) {
    parse.held_out = 1;  // a draw is below it, always
    if (Status read = parse_into(store, *tests, share, parse, interrupted); !read) return forward_error(read);
  }
  if (Status done = store.finish(key.value()); !done) return forward_error(done);
  return store;
}

}  // namespace deltawire::linear
