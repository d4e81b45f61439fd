#include "simulation/disks.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include <fcntl.h>

namespace deltawire::simulation {
namespace {

int disk_error(int error) noexcept {
  errno = error;
  return -1;
}

std::string_view name_of(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

// What opendir() returns.
struct Disks::Listing {
  std::vector<std::string> names;
  std::size_t next = 0;
  dirent entry{};
};

Disks::Disks(std::uint64_t seed, int machines)
    : dice_(seed, 12), disks_(static_cast<std::size_t>(machines)) {}

int Disks::machine_of(std::string_view path) {
  int machine = 0;
  (void)std::from_chars(path.data() + kRoot.size(), path.data() + path.size(), machine);
  return machine;
}

bool Disks::passes(int machine) {
  if (!pass_ || pass_(machine)) return true;
  errno = EIO;
  return false;
}

void Disks::apply(Names& names, const Change& change) {
  if (!change.removed.empty()) names.erase(change.removed);
  if (change.file == nullptr) {
    names.erase(change.name);
  } else {
    names[change.name] = change.file;
  }
}

void Disks::change(Disk& disk, Change made) {
  apply(disk.names, made);
  disk.changes.push_back(std::move(made));
}

// A file may be longer than what was written of it: then the rest is anything.
void Disks::tear(File& file) {
  assert(file.flushed <= file.bytes.size());
  const std::size_t loose = file.bytes.size() - file.flushed;
  const std::size_t kept = file.flushed + (loose == 0 || dice_.one_in(2) ? loose : dice_.below(loose));
  if (dice_.one_in(2)) {
    file.bytes.resize(kept);
  } else {
    std::fill(file.bytes.begin() + static_cast<std::ptrdiff_t>(kept), file.bytes.end(), std::byte{});
  }
  file.flushed = file.bytes.size();
}

// No order between changes of a folder is promised.
void Disks::lose_power(int machine) {
  Disk& disk = at(machine);
  for (const Change& change : disk.changes) {
    if (dice_.one_in(2)) apply(disk.flushed, change);
  }
  for (const auto& [name, file] : disk.flushed) tear(*file);
  disk.names = disk.flushed;
  disk.changes.clear();
  disk.no_room = NoRoom::kNowhere;
  disk.lies = false;
}

void Disks::come_true(int machine) {
  Disk& disk = at(machine);
  if (!disk.lies) return;
  for (const Change& change : std::exchange(disk.changes, {})) apply(disk.flushed, change);
  for (const auto& [name, file] : disk.flushed) file->flushed = file->bytes.size();
  disk.lies = false;
}

std::vector<std::string> Disks::names(int machine) const {
  std::vector<std::string> all;
  for (const auto& [name, file] : disks_[static_cast<std::size_t>(machine)].names) all.push_back(name);
  return all;
}

std::size_t Disks::open_count() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(open_, &Open::is_open));
}

int Disks::add(Open open) {
  open_.push_back(std::move(open));
  return kFirstDescriptor + static_cast<int>(open_.size()) - 1;
}

int Disks::open(std::string_view path, int flags) {
  const int machine = machine_of(path);
  if (!passes(machine)) return -1;
  if ((flags & O_DIRECTORY) != 0) return add({machine, nullptr});
  const auto found = at(machine).names.find(name_of(path));
  return found == at(machine).names.end() ? disk_error(ENOENT) : add({machine, found->second});
}

int Disks::create(char* pattern) {
  const int machine = machine_of(pattern);
  if (!passes(machine)) return -1;
  Disk& disk = at(machine);
  if (disk.no_room == NoRoom::kWrite && dice_.one_in(4)) return disk_error(ENOSPC);
  for (char* letter = pattern + std::strlen(pattern) - 6; *letter != '\0'; ++letter) {
    *letter = static_cast<char>('a' + dice_.below(26));
  }
  auto file = std::make_shared<File>();
  change(disk, {std::string(name_of(pattern)), file, {}});
  return add({machine, std::move(file)});
}

int Disks::duplicate(int fd) {
  if (!passes(of(fd).machine)) return -1;
  Open copy = of(fd);
  copy.is_duplicate = true;
  return add(std::move(copy));
}

// A process that dies closes all that it has.
int Disks::close(int fd) {
  assert(of(fd).is_open);
  Open& open = of(fd);
  open.is_open = false;
  if (!passes(open.machine)) return -1;
  return open.is_duplicate && at(open.machine).no_room == NoRoom::kClose ? disk_error(EDQUOT) : 0;
}

ssize_t Disks::write(int fd, Bytes bytes) {
  Open& open = of(fd);
  if (!passes(open.machine)) return -1;
  std::size_t count = bytes.size();
  if (at(open.machine).no_room == NoRoom::kWrite) {
    if (count == 0 || dice_.one_in(2)) return disk_error(ENOSPC);
    count = dice_.below(count);
    if (count == 0) return disk_error(ENOSPC);
  }
  open.file->bytes.insert(open.file->bytes.end(), bytes.begin(),
                          bytes.begin() + static_cast<std::ptrdiff_t>(count));
  return static_cast<ssize_t>(count);
}

ssize_t Disks::read(int fd, MutBytes into, std::uint64_t offset) {
  const Open& open = of(fd);
  if (!passes(open.machine)) return -1;
  const std::vector<std::byte>& bytes = open.file->bytes;
  const std::size_t first = std::min<std::size_t>(offset, bytes.size());
  const std::size_t count = std::min(into.size(), bytes.size() - first);
  if (count > 0) std::memcpy(into.data(), bytes.data() + first, count);
  return static_cast<ssize_t>(count);
}

off_t Disks::size(int fd) const noexcept {
  const Open& open = of(fd);
  return open.file == nullptr ? 0 : static_cast<off_t>(open.file->bytes.size());
}

int Disks::flush(int fd) {
  const Open& open = of(fd);
  if (!passes(open.machine)) return -1;
  Disk& disk = at(open.machine);
  if (open.file != nullptr && disk.no_room == NoRoom::kFlush) return disk_error(ENOSPC);
  if (disk.lies) return 0;
  if (open.file != nullptr) {
    open.file->flushed = open.file->bytes.size();
  } else {
    for (const Change& change : std::exchange(disk.changes, {})) apply(disk.flushed, change);
  }
  return 0;
}

int Disks::rename(std::string_view from, std::string_view to) {
  const int machine = machine_of(from);
  if (!passes(machine)) return -1;
  Disk& disk = at(machine);
  const auto found = disk.names.find(name_of(from));
  if (found == disk.names.end()) return disk_error(ENOENT);
  change(disk, {std::string(name_of(to)), found->second, found->first});
  return 0;
}

int Disks::unlink(std::string_view path) {
  const int machine = machine_of(path);
  if (!passes(machine)) return -1;
  Disk& disk = at(machine);
  if (!disk.names.contains(name_of(path))) return disk_error(ENOENT);
  change(disk, {std::string(name_of(path)), nullptr, {}});
  return 0;
}

DIR* Disks::open_folder(std::string_view path) {
  const int machine = machine_of(path);
  if (!passes(machine)) return nullptr;
  return reinterpret_cast<DIR*>(new Listing{names(machine)});
}

dirent* Disks::next_name(DIR* folder) noexcept {
  assert(folder != nullptr);
  auto& listing = *reinterpret_cast<Listing*>(folder);
  if (listing.next == listing.names.size()) return nullptr;
  const std::string& name = listing.names[listing.next++];
  name.copy(listing.entry.d_name, sizeof listing.entry.d_name - 1);
  listing.entry.d_name[name.size()] = '\0';
  return &listing.entry;
}

int Disks::close_folder(DIR* folder) noexcept {
  delete reinterpret_cast<Listing*>(folder);
  return 0;
}

}  // namespace deltawire::simulation
