#include "base/disk_file.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/errors.h"

namespace deltawire {
namespace {

// The permissions that the shell's `>` would give; mkostemp's only allow the owner.
mode_t usual_mode() {
  const mode_t mask = umask(0);
  umask(mask);
  return static_cast<mode_t>(0666 & ~mask);
}

// Moves the whole span, or as much as there is until `move` reaches the end; returns the bytes moved.
// `move(offset)` is a system call.
Result<std::size_t> move_whole(std::size_t count, const char* failure, const auto& move) {
  std::size_t moved = 0;
  while (moved < count) {
    const ssize_t step = move(moved);
    if (step < 0 && errno == EINTR) continue;
    if (step < 0) return io_error(failure);
    if (step == 0) break;
    moved += static_cast<std::size_t>(step);
  }
  return moved;
}

}  // namespace

Descriptor::Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

Status write_all(int descriptor, Bytes bytes) {
  return move_whole(bytes.size(), "cannot be written",
                    [&](std::size_t at) { return write(descriptor, bytes.data() + at, bytes.size() - at); })
      .map([](std::size_t) {});
}

Status write_at(int descriptor, Bytes bytes, std::uint64_t offset) {
  return move_whole(bytes.size(), "cannot be written",
                    [&](std::size_t at) {
                      return pwrite(descriptor, bytes.data() + at, bytes.size() - at,
                                    static_cast<off_t>(offset + at));
                    })
      .map([](std::size_t) {});
}

Result<std::size_t> read_next(int descriptor, MutBytes out) {
  return move_whole(out.size(), "cannot be read",
                    [&](std::size_t at) { return ::read(descriptor, out.data() + at, out.size() - at); });
}

Result<std::size_t> read_at(int descriptor, MutBytes out, std::uint64_t offset) {
  return move_whole(out.size(), "cannot be read", [&](std::size_t at) {
    return pread(descriptor, out.data() + at, out.size() - at, static_cast<off_t>(offset + at));
  });
}

Status flush_folder(const std::string& folder) {
  const Descriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0 ? errno == EACCES : fsync(opened.get()) == 0 || errno == EINVAL || errno == ENOTSUP) {
    return {};
  }
  return io_error(folder + ": cannot be flushed to the disk");
}

Result<Descriptor> make_unnamed_file() {
  const std::string_view folder = setting_of("TMPDIR");
  std::string name = std::string(folder.empty() ? "/tmp" : folder) + "/deltawire.XXXXXX";
  Descriptor file(mkostemp(name.data(), O_CLOEXEC));
  if (file.get() < 0) return io_error("needs a temporary file, which cannot be made (TMPDIR says where)");
  unlink(name.c_str());
  return file;
}

Result<NewFile> NewFile::create(const std::string& path) {
  if (path.empty()) return fail(ErrorCode::kIo, "the new file's name is empty; give it one");
  NewFile file(path);
  std::string name = path + ".XXXXXX";
  file.descriptor_ = Descriptor(mkostemp(name.data(), O_CLOEXEC));
  if (file.descriptor() < 0) {
    if (errno == ENOENT) {
      return fail(ErrorCode::kIo, path + ": its folder does not exist; create it first");
    }
    return io_error(path + ": cannot be written, its folder takes no new file");
  }
  file.beside_ = std::move(name);
  fchmod(file.descriptor(), usual_mode());
  return file;
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      beside_(std::exchange(other.beside_, {})),
      descriptor_(std::move(other.descriptor_)),
      flushed_(other.flushed_) {}

NewFile::~NewFile() {
  if (!beside_.empty()) unlink(beside_.c_str());
}

Status NewFile::flush() {
  if (fsync(descriptor()) != 0) return io_error(path_ + ": cannot be flushed to the disk");
  flushed_ = true;
  return {};
}

Status NewFile::put_in_place() {
  // Some file systems report a full disk only when a descriptor is closed; closing a duplicate is enough.
  const int copy = dup(descriptor());
  if (copy < 0 || close(copy) != 0) return io_error(path_ + ": cannot be written");
  if (std::rename(beside_.c_str(), path_.c_str()) != 0) {
    return io_error(path_ + ": cannot be put in place");
  }
  beside_.clear();
  if (!flushed_) return {};
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  const Status kept = flush_folder(folder.empty() ? "." : folder);
  if (kept) return {};
  return fail(kept.error().code,
              path_ +
                  ": is written and in place, but after a power failure it may be gone, or "
                  "be the old one: the folder " +
                  kept.error().message);
}

}  // namespace deltawire
