#include "linear/read_rows.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/disk_file.h"
#include "base/errors.h"

namespace deltawire::linear {

namespace {

Result<Descriptor> open_file(const std::string& path) {
  Descriptor file(path == "-" ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() >= 0) return file;
  if (errno == ENOENT) return fail(ErrorCode::kIo, path + ": no such file; check the path");
  return io_error(path + ": cannot be opened");
}

// Whether gzip, xz, bzip2 or zstd has packed what begins with these bytes.
bool is_packed(std::string_view front) noexcept {
  constexpr std::array<std::string_view, 4> kMagic{"\x1F\x8B", "\xFD\x37zXZ", "BZh", "\x28\xB5\x2F\xFD"};
  return std::ranges::any_of(kMagic, [&](std::string_view magic) { return front.starts_with(magic); });
}

Result<DataFile> inspect(const std::string& path) {
  DataFile found{.path = path};
  ASSIGN_OR_RETURN(const Descriptor file, open_file(path));
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return io_error(path + ": cannot be read");
  if (S_ISDIR(info.st_mode)) {
    return fail(ErrorCode::kIo, path + ": is a folder; name its files, as in " + path + "/*");
  }
  if (!S_ISREG(info.st_mode) || path == "-") return found;
  found.stream = false;
  found.bytes = static_cast<std::uint64_t>(info.st_size);
  std::array<char, 5> front{};
  const auto got = read_at(file.get(), std::as_writable_bytes(std::span(front)), 0);
  if (!got) return fail(got.error().code, path + ": " + got.error().message);
  if (!is_packed({front.data(), *got})) return found;
  return fail(ErrorCode::kIo, path + ": is packed; unpack it first (gzip -d, xz -d, bzip2 -d, zstd -d)");
}

}  // namespace

std::vector<std::string> paths_of(const std::string& pattern) {
  // A file may have such characters in its name, and is then meant.
  if (access(pattern.c_str(), F_OK) == 0 || pattern.find_first_of("*?[") == std::string::npos)
    return {pattern};
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  return paths;
}

Result<std::vector<DataFile>> find_data_files(std::span<const std::string> patterns) {
  std::vector<DataFile> files;
  for (const std::string& pattern : patterns) {
    const std::vector<std::string> paths = paths_of(pattern);
    if (paths.empty()) return fail(ErrorCode::kIo, pattern + ": no file has such a name; check the pattern");
    for (const std::string& path : paths) {
      ASSIGN_OR_RETURN(files.emplace_back(), inspect(path));
    }
  }
  return files;
}

namespace {

// A data file, to be read from an offset on. Error messages lack its name.
Result<Descriptor> open_at(const DataFile& file, std::uint64_t offset) {
  ASSIGN_OR_RETURN(Descriptor opened, open_file(file.path));
  if (!file.stream) {
    lseek(opened.get(), static_cast<off_t>(offset), SEEK_SET);
    posix_fadvise(opened.get(), static_cast<off_t>(offset), 0, POSIX_FADV_SEQUENTIAL);
  }
  return opened;
}

// Fills `out`; fewer bytes are the last ones.
Result<std::size_t> read_text(const Descriptor& file, std::span<char> out) {
  return read_next(file.get(), std::as_writable_bytes(out));
}

constexpr std::uint64_t kSliceBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kEverything = std::numeric_limits<std::uint64_t>::max();

// This rank's lines of a file: those that begin in [begin, end).
struct Cut {
  std::uint64_t begin = 0;
  std::uint64_t end = kEverything;
};

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
    const auto source = open_at(file_, place_.offset);
    if (!source) return named(source.error());
    bool ended = false;
    while (!ended && place_.offset < cut_.end) {
      if (filled_ == buffer_.size()) {
        if (buffer_.size() >= kRowBytesMax) return too_long();
        buffer_.resize(std::max<std::size_t>(2 * buffer_.size(), 2 * kSliceBytes));
      }
      const auto got = read_text(*source, std::span(buffer_).subspan(filled_));
      if (!got) return named(got.error());
      ended = *got < buffer_.size() - filled_;
      filled_ += *got;
      RETURN_IF_ERROR(take_lines(ended));
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
      RETURN_IF_ERROR(take_slice(text));
    }
    std::memmove(buffer_.data(), buffer_.data() + whole, filled_ - whole);
    filled_ -= whole;
    return {};
  }

  // Removes the lines that begin in one slice from the front of the text, and parses them.
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
    ASSIGN_OR_RETURN(const auto source, open_at(file_, 0));
    std::vector<char> block(kSliceBytes);
    std::uint64_t feeds = 0;
    for (std::uint64_t at = 0; at < first_offset_;) {
      const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), first_offset_ - at));
      ASSIGN_OR_RETURN(const auto got, read_text(source, std::span(block).first(want)));
      if (got == 0) break;
      feeds += static_cast<std::uint64_t>(std::ranges::count(std::span(block).first(got), '\n'));
      at += got;
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
    } else {
      // Whole quotients first: bytes * rank could wrap.
      const auto border = [&](std::uint64_t r) {
        return files[i].bytes / world * r + files[i].bytes % world * r / world;
      };
      cut.begin = border(rank);
      if (rank + 1 < world) cut.end = border(rank + 1);
    }
    RETURN_IF_ERROR(FileReader(files[i], i, cut, options, take, sink).run());
  }
  return take(sink, true);
}

namespace {

// The size of a block: long enough to read at the disk's speed, short enough that shuffling blocks, and rows
// within them, shuffles the data.
constexpr std::size_t kBlockBytes = std::size_t{1} << 22;

Status check_streams(const std::vector<DataFile>& files, int world) {
  const auto stream = std::ranges::find_if(files, &DataFile::stream);
  if (stream == files.end() || world == 1) return {};
  return invalid(stream->name() + " feeds one worker; name files for several");
}

Status parse_into(BlockStore& store, const std::vector<DataFile>& files, const RowPartition& partition,
                  const ParseOptions& options, const std::function<bool()>& interrupted) {
  const TakeRows take = [&](RowSink& sink, bool all) -> Status {
    if (interrupted()) return fail(ErrorCode::kAborted, "interrupted while reading the data");
    for (const bool held_out : {false, true}) {
      RowBlock& block = held_out ? sink.held_out : sink.training;
      if (!all && block.bytes() < kBlockBytes) continue;
      RETURN_IF_ERROR(store.add(block, held_out));
    }
    return {};
  };
  return read_rows(files, partition, options, take);
}

}  // namespace

Result<BlockStore> load_data(const DataSettings& settings, const RowPartition& partition,
                             const std::function<bool()>& interrupted) {
  ASSIGN_OR_RETURN(const auto data, find_data_files(settings.data));
  ASSIGN_OR_RETURN(const auto tests, find_data_files(settings.tests));
  for (const auto* files : {&data, &tests}) {
    RETURN_IF_ERROR(check_streams(*files, partition.world));
  }
  ParseOptions parse = settings.parse;
  if (!tests.empty()) parse.held_out = 0;
  BlockStore store(settings.memory_bytes);
  RETURN_IF_ERROR(parse_into(store, data, partition, parse, interrupted));
  if (!tests.empty()) {
    parse.held_out = 1;  // every draw is below it
    RETURN_IF_ERROR(parse_into(store, tests, partition, parse, interrupted));
  }
  return store;
}

}  // namespace deltawire::linear
