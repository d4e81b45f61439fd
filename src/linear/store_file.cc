#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "linear/block_store.h"
#include "linear/system_error.h"

namespace deltawire::linear {
namespace {

Status flush_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const int descriptor = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return system_error(path + ": its folder cannot be opened");
  const int flushed = fsync(descriptor);
  close(descriptor);
  if (flushed != 0) return system_error(path + ": its folder cannot be flushed to the disk");
  return {};
}

}  // namespace

Result<StoreFile> StoreFile::create(const std::string& path) {
  std::string name = path;
  if (path.empty()) {
    const char* folder = std::getenv("TMPDIR");
    name = std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") + "/deltawire";
  }
  name += ".XXXXXX";
  StoreFile file(mkostemp(name.data(), O_CLOEXEC));
  if (file.descriptor_ < 0) {
    return system_error(path.empty()
                            ? "rows beyond --memory need a temporary file, which cannot be made (TMPDIR "
                              "says where)"
                            : path + ": cannot be written, its folder takes no new file");
  }
  if (path.empty()) {
    unlink(name.c_str());
  } else {
    file.unfinished_ = std::move(name);
  }
  return file;
}

Result<StoreFile> StoreFile::open(const std::string& path) {
  StoreFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.descriptor_ < 0) return system_error(path + ": cannot be opened");
  return file;
}

StoreFile::StoreFile(StoreFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), unfinished_(std::exchange(other.unfinished_, {})) {}

StoreFile::~StoreFile() {
  if (!unfinished_.empty()) unlink(unfinished_.c_str());
  if (descriptor_ >= 0) close(descriptor_);
}

Status StoreFile::write(const void* bytes, std::size_t count, std::uint64_t offset) const {
  const auto* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = pwrite(descriptor_, at, count, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("rows cannot be written to their file");
    at += written;
    count -= static_cast<std::size_t>(written);
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

Status StoreFile::read(void* bytes, std::size_t count, std::uint64_t offset) const {
  auto* at = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t got = pread(descriptor_, at, count, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("rows cannot be read from their file");
    if (got == 0) return fail(ErrorCode::kTruncated, "the file of rows ends early");
    at += got;
    count -= static_cast<std::size_t>(got);
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<std::uint64_t> StoreFile::bytes() const {
  struct stat info{};
  if (fstat(descriptor_, &info) != 0) return system_error("the file of rows cannot be read");
  return static_cast<std::uint64_t>(info.st_size);
}

Status StoreFile::keep(const std::string& path) {
  if (fsync(descriptor_) != 0) return system_error(path + ": cannot be flushed to the disk");
  if (std::rename(unfinished_.c_str(), path.c_str()) != 0) {
    return system_error(path + ": cannot be put in place");
  }
  unfinished_.clear();
  return flush_folder_of(path);
}

}  // namespace deltawire::linear
