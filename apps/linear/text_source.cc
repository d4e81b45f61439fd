#include "linear/text_source.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/disk_file.h"
#include "base/os_error.h"

namespace deltawire::linear {
namespace {

Result<Descriptor> open_file(const std::string& path) {
  Descriptor file(path == "-" ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() >= 0) return file;
  if (errno == ENOENT) return fail(ErrorCode::kIo, path + ": no such file; check the path");
  return io_error(path + ": cannot be opened");
}

class PlainText final : public TextSource {
 public:
  PlainText(Descriptor file, std::uint64_t at) : file_(std::move(file)), at_(at) {
    posix_fadvise(file_.get(), static_cast<off_t>(at), 0, POSIX_FADV_SEQUENTIAL);
  }

  Result<std::size_t> read(std::span<char> out) override {
    Result<std::size_t> got = read_at(file_.get(), std::as_writable_bytes(out), at_);
    if (got) at_ += *got;
    return got;
  }

 private:
  Descriptor file_;
  std::uint64_t at_;
};

Result<DataFile> inspect(const std::string& path) {
  DataFile found{.path = path};
  const Result<Descriptor> file = open_file(path);
  if (!file) return forward_error(file);
  struct stat info{};
  if (fstat(file->get(), &info) != 0) return io_error(path + ": cannot be read");
  if (S_ISDIR(info.st_mode)) {
    return fail(ErrorCode::kIo, path + ": is a folder; name its files, as in " + path + "/*");
  }
  if (!S_ISREG(info.st_mode) || path == "-") return found;
  found.bytes = static_cast<std::uint64_t>(info.st_size);
  std::array<char, 6> front{};
  const auto got = read_at(file->get(), std::as_writable_bytes(std::span(front)), 0);
  if (!got) return fail(got.error().code, path + ": " + got.error().message);
  const std::string_view magic(front.data(), *got);
  found.plain = !is_packed(magic);
  return found;
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  return paths;
}

}  // namespace

Result<std::vector<DataFile>> find_data_files(std::span<const std::string> patterns) {
  std::vector<DataFile> files;
  for (const std::string& pattern : patterns) {
    std::vector<std::string> paths{pattern};
    // A file may have such characters in its name, and is then meant.
    if (access(pattern.c_str(), F_OK) != 0 && pattern.find_first_of("*?[") != std::string::npos) {
      paths = matches(pattern);
      if (paths.empty())
        return fail(ErrorCode::kIo, pattern + ": no file has such a name; check the pattern");
    }
    for (const std::string& path : paths) {
      Result<DataFile> file = inspect(path);
      if (!file) return forward_error(file);
      files.push_back(*std::move(file));
    }
  }
  return files;
}

Result<std::unique_ptr<TextSource>> open_text(const DataFile& file, std::uint64_t offset) {
  Result<Descriptor> opened = open_file(file.path);
  if (!opened) return forward_error(opened);
  if (file.plain) return std::make_unique<PlainText>(*std::move(opened), offset);
  return open_packed(*std::move(opened));
}

}  // namespace deltawire::linear
