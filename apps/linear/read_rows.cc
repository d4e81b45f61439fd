#include "linear/read_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deltawire::linear {

namespace {

constexpr std::uint64_t kSliceBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kEverything = std::numeric_limits<std::uint64_t>::max();

// This rank's lines of a file: those that begin in [begin, end), and in a slice of this rank's turn.
struct Cut {
  std::uint64_t begin = 0;
  std::uint64_t end = kEverything;
  int turn = 0;
  int turns = 1;

  bool mine(std::uint64_t slice) const noexcept {
    return slice % static_cast<std::uint64_t>(turns) == static_cast<std::uint64_t>(turn);
  }
};

std::uint64_t line_feeds(std::string_view text) noexcept {
  return static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

class FileReader {
 public:
  FileReader(const DataFile& file, std::uint64_t number, const Cut& cut, const ParseOptions& options,
             const TakeRows& take, RowSink& sink)
      : file_(file), cut_(cut), parser_(options), take_(take), sink_(sink), place_{.file = number} {}

  Status run() {
    // Starts one byte early, to see whether a line begins at the start of the range.
    place_.offset = cut_.begin == 0 ? 0 : cut_.begin - 1;
    first_offset_ = place_.offset;
    looking_for_line_ = cut_.begin != 0;
    auto source = open_text(file_, place_.offset);
    if (!source) return named(source.error());
    bool ended = false;
    while (!ended && place_.offset < cut_.end) {
      if (filled_ == buffer_.size()) {
        if (buffer_.size() >= kRowBytesMax) return too_long();
        buffer_.resize(std::max<std::size_t>(2 * buffer_.size(), 2 * kSliceBytes));
      }
      const auto got = (*source)->read(std::span(buffer_).subspan(filled_));
      if (!got) return named(got.error());
      ended = *got < buffer_.size() - filled_;
      filled_ += *got;
      if (Status taken = take_lines(ended); !taken) return taken;
    }
    return {};
  }

 private:
  // Parses the whole lines in the buffer and moves the rest to its front.
  Status take_lines(bool ended) {
    std::size_t whole = filled_;
    if (!ended) {
      const void* last = memrchr(buffer_.data(), '\n', filled_);
      if (last == nullptr) return {};
      whole = static_cast<std::size_t>(static_cast<const char*>(last) - buffer_.data()) + 1;
    }
    std::string_view text(buffer_.data(), whole);
    if (looking_for_line_) {
      const std::size_t feed = text.find('\n');
      const std::size_t skipped = feed == std::string_view::npos ? text.size() : feed + 1;
      text.remove_prefix(skipped);
      place_.offset += skipped;
      place_.line += feed == std::string_view::npos ? 0 : 1;
      looking_for_line_ = false;
    }
    while (!text.empty() && place_.offset < cut_.end) {
      if (Status taken = take_slice(text); !taken) return taken;
    }
    std::memmove(buffer_.data(), buffer_.data() + whole, filled_ - whole);
    filled_ -= whole;
    return {};
  }

  // Removes the lines that begin in one slice from the front of the text, and parses those of this rank.
  Status take_slice(std::string_view& text) {
    const std::uint64_t slice = place_.offset / kSliceBytes;
    const std::uint64_t end = std::min((slice + 1) * kSliceBytes, cut_.end);
    std::size_t length = text.size();
    if (end - place_.offset < length) {
      const std::size_t feed = text.find('\n', end - place_.offset - 1);
      if (feed != std::string_view::npos) length = feed + 1;
    }
    const std::string_view lines = text.substr(0, length);
    text.remove_prefix(length);
    if (!cut_.mine(slice)) {
      place_.offset += length;
      place_.line += line_feeds(lines);
      return {};
    }
    if (Status parsed = parser_.parse(lines, place_, sink_); !parsed) return parsing_failed(parsed.error());
    return take_(sink_, false);
  }

  // Lines were counted from the start of the range: add those before it, which only messages need.
  Status parsing_failed(const Error& error) {
    const std::size_t colon = error.message.find(':');
    const std::uint64_t line = std::stoull(error.message.substr(0, colon));
    auto before = lines_before();
    if (!before) return named(before.error());
    return fail(error.code,
                file_.name() + ":" + std::to_string(*before + line) + error.message.substr(colon));
  }

  Result<std::uint64_t> lines_before() const {
    if (first_offset_ == 0) return 0;
    auto source = open_text(file_, 0);
    if (!source) return forward_error(source);
    std::vector<char> block(kSliceBytes);
    std::uint64_t feeds = 0;
    for (std::uint64_t at = 0; at < first_offset_;) {
      const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), first_offset_ - at));
      const auto got = (*source)->read(std::span(block).first(want));
      if (!got) return forward_error(got);
      if (*got == 0) break;
      feeds += line_feeds(std::string_view(block.data(), *got));
      at += *got;
    }
    return feeds;
  }

  Status too_long() const {
    auto before = lines_before();
    const std::uint64_t line = place_.line + (before ? *before : 0);
    return fail(ErrorCode::kLimit, file_.name() + ":" + std::to_string(line) + ":1: the row has more than " +
                                       std::to_string(kRowBytesMax >> 20) +
                                       " MiB; is this libsvm text, a row a line?");
  }

  Status named(const Error& error) const {
    const bool has_name = error.message.starts_with(file_.path);
    return fail(error.code, has_name ? error.message : file_.name() + ": " + error.message);
  }

  const DataFile& file_;
  Cut cut_;
  RowParser parser_;
  const TakeRows& take_;
  RowSink& sink_;
  Place place_;
  std::uint64_t first_offset_ = 0;
  bool looking_for_line_ = false;
  std::vector<char> buffer_;
  std::size_t filled_ = 0;
};

}  // namespace

Status read_rows(std::span<const DataFile> files, const RowPartition& partition, const ParseOptions& options,
                 const TakeRows& take) {
  const auto world = static_cast<std::uint64_t>(partition.world);
  const auto rank = static_cast<std::uint64_t>(partition.rank);
  RowSink sink;
  for (std::uint64_t i = 0; i < files.size(); ++i) {
    Cut cut;
    if (files.size() >= world) {
      if (i % world != rank) continue;
    } else if (files[i].plain) {
      // Whole quotients first: bytes * rank could wrap.
      const auto border = [&](std::uint64_t r) {
        return files[i].bytes / world * r + files[i].bytes % world * r / world;
      };
      cut.begin = border(rank);
      if (rank + 1 < world) cut.end = border(rank + 1);
    } else {
      cut.turn = partition.rank;
      cut.turns = partition.world;
    }
    if (Status done = FileReader(files[i], i, cut, options, take, sink).run(); !done) return done;
  }
  return take(sink, true);
}

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
