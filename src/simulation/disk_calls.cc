// The system's calls of the code that writes and reads snapshots: linked with --wrap (CMakeLists.txt), a call
// comes here first, and goes to the simulation's disks if it is about a file of theirs. close() is in
// socket_calls.cc.
#include <cstdarg>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simulation/disks.h"

using deltawire::simulation::Disks;

namespace {

Disks* disks_of(int fd) {
  return Disks::owns(fd) ? Disks::current() : nullptr;
}

Disks* disks_of(const char* path) {
  return Disks::current() != nullptr && Disks::owns(path) ? Disks::current() : nullptr;
}

}  // namespace

// The linker's names. NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,cert-dcl50-cpp)
extern "C" {

int __real_open(const char* path, int flags, ...);
int __real_mkostemp(char* pattern, int flags);
int __real_dup(int fd);
ssize_t __real_write(int fd, const void* from, std::size_t bytes);
ssize_t __real_pread(int fd, void* into, std::size_t bytes, off_t offset);
int __real_fstat(int fd, struct stat* found);
int __real_fchmod(int fd, mode_t mode);
int __real_fsync(int fd);
int __real_rename(const char* from, const char* to);
int __real_unlink(const char* path);
DIR* __real_opendir(const char* path);
dirent* __real_readdir(DIR* folder);
int __real_closedir(DIR* folder);

int __wrap_open(const char* path, int flags, ...) {
  if (Disks* const disks = disks_of(path)) return disks->open(path, flags);
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return __real_open(path, flags, mode);
}

int __wrap_mkostemp(char* pattern, int flags) {
  Disks* const disks = disks_of(pattern);
  return disks != nullptr ? disks->create(pattern) : __real_mkostemp(pattern, flags);
}

int __wrap_dup(int fd) {
  Disks* const disks = disks_of(fd);
  return disks != nullptr ? disks->duplicate(fd) : __real_dup(fd);
}

ssize_t __wrap_write(int fd, const void* from, std::size_t bytes) {
  Disks* const disks = disks_of(fd);
  return disks != nullptr ? disks->write(fd, {static_cast<const std::byte*>(from), bytes})
                          : __real_write(fd, from, bytes);
}

ssize_t __wrap_pread(int fd, void* into, std::size_t bytes, off_t offset) {
  Disks* const disks = disks_of(fd);
  return disks != nullptr
             ? disks->read(fd, {static_cast<std::byte*>(into), bytes}, static_cast<std::uint64_t>(offset))
             : __real_pread(fd, into, bytes, offset);
}

// Its size is asked for.
int __wrap_fstat(int fd, struct stat* found) {
  Disks* const disks = disks_of(fd);
  if (disks == nullptr) return __real_fstat(fd, found);
  *found = {};
  found->st_size = disks->size(fd);
  return 0;
}

int __wrap_fchmod(int fd, mode_t mode) {
  return disks_of(fd) != nullptr ? 0 : __real_fchmod(fd, mode);
}

int __wrap_fsync(int fd) {
  Disks* const disks = disks_of(fd);
  return disks != nullptr ? disks->flush(fd) : __real_fsync(fd);
}

int __wrap_rename(const char* from, const char* to) {
  Disks* const disks = disks_of(from);
  return disks != nullptr ? disks->rename(from, to) : __real_rename(from, to);
}

int __wrap_unlink(const char* path) {
  Disks* const disks = disks_of(path);
  return disks != nullptr ? disks->unlink(path) : __real_unlink(path);
}

DIR* __wrap_opendir(const char* path) {
  Disks* const disks = disks_of(path);
  return disks != nullptr ? disks->open_folder(path) : __real_opendir(path);
}

// Who runs on simulated disks lists no other folder.
dirent* __wrap_readdir(DIR* folder) {
  return Disks::current() != nullptr ? Disks::next_name(folder) : __real_readdir(folder);
}

int __wrap_closedir(DIR* folder) {
  return Disks::current() != nullptr ? Disks::close_folder(folder) : __real_closedir(folder);
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,cert-dcl50-cpp)
