// The disks of a simulation: a folder on each machine, in memory, with what a power failure takes of it, what
// there is no room for, and what the disk only says it has flushed. In a program that is linked with
// system_calls.cc the system's calls on files come here, so that the code of snapshots runs as it is.
//
// Thread rule: one thread, from beginning to end.
#pragma once

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/types.h>

#include "deltawire/tensor.h"
#include "simulation/dice.h"

namespace deltawire::simulation {

// As a call of the system that fails.
inline int fail_with(int error) noexcept {
  errno = error;
  return -1;
}

// Where a disk without room says so. What is written before stays.
enum class NoRoom : std::uint8_t { kNowhere, kWrite, kFlush, kClose };

class Disks {
 public:
  static constexpr int kFirstDescriptor = 1 << 28;

  Disks(std::uint64_t seed, int machines) : dice_(seed, 12), disks_(static_cast<std::size_t>(machines)) {}

  Disks(const Disks&) = delete;
  Disks& operator=(const Disks&) = delete;

  // Those to which the calls go; nullptr: there are none.
  static Disks* current() noexcept { return current_; }
  static bool owns(int fd) noexcept { return fd >= kFirstDescriptor; }
  static bool owns(std::string_view path) noexcept { return path.starts_with(kRoot); }
  static std::string folder(int machine) { return std::string(kRoot) + std::to_string(machine); }

  // While it exists, the calls go to these disks. `pass` is called before each call has an effect, and says
  // whether the machine's process still lives: of a dead one no call has any.
  class Use {
   public:
    using Pass = std::function<bool(int machine)>;
    Use(Disks& disks, Pass pass) : disks_(disks) {
      disks_.pass_ = std::move(pass);
      current_ = &disks_;
    }
    ~Use() {
      current_ = nullptr;
      disks_.pass_ = {};
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Disks& disks_;
  };

  void set_room(int machine, NoRoom place) noexcept { at(machine).no_room = place; }
  // From now on the disk says that it flushes, and does not.
  void lie(int machine) noexcept { at(machine).lies = true; }
  bool lies(int machine) const noexcept { return disks_[static_cast<std::size_t>(machine)].lies; }
  // What was not flushed is there, or not, or in part: no order between changes of a folder is promised.
  // Afterwards the disk is in order.
  void lose_power(int machine) {
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

  // The disk has flushed all that it said, and is in order.
  void come_true(int machine) {
    Disk& disk = at(machine);
    if (!disk.lies) return;
    for (const Change& change : std::exchange(disk.changes, {})) apply(disk.flushed, change);
    for (const auto& [name, file] : disk.flushed) file->flushed = file->bytes.size();
    disk.lies = false;
  }

  // The files in a machine's folder.
  std::vector<std::string> names(int machine) const {
    std::vector<std::string> all;
    for (const auto& [name, file] : disks_[static_cast<std::size_t>(machine)].names) all.push_back(name);
    return all;
  }

  // Descriptors that are not closed.
  std::size_t open_count() const noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(open_, &Open::is_open));
  }

  // As the system's calls: -1 or nullptr with errno set where they fail.
  int open(std::string_view path, int flags) {
    const int machine = machine_of(path);
    if (!passes(machine)) return -1;
    if ((flags & O_DIRECTORY) != 0) return add({machine, nullptr});
    const auto found = at(machine).names.find(name_of(path));
    return found == at(machine).names.end() ? fail_with(ENOENT) : add({machine, found->second});
  }

  // mkostemp
  int create(char* pattern) {
    const int machine = machine_of(pattern);
    if (!passes(machine)) return -1;
    Disk& disk = at(machine);
    if (disk.no_room == NoRoom::kWrite && dice_.one_in(4)) return fail_with(ENOSPC);
    for (char* letter = pattern + std::strlen(pattern) - 6; *letter != '\0'; ++letter) {
      *letter = static_cast<char>('a' + dice_.below(26));
    }
    auto file = std::make_shared<File>();
    change(disk, {std::string(name_of(pattern)), file, {}});
    return add({machine, std::move(file)});
  }

  int duplicate(int fd) {
    if (!passes(of(fd).machine)) return -1;
    Open copy = of(fd);
    copy.is_duplicate = true;
    return add(std::move(copy));
  }

  // A process that dies closes all that it has.
  int close(int fd) {
    assert(of(fd).is_open);
    Open& open = of(fd);
    open.is_open = false;
    if (!passes(open.machine)) return -1;
    return open.is_duplicate && at(open.machine).no_room == NoRoom::kClose ? fail_with(EDQUOT) : 0;
  }

  ssize_t write(int fd, Bytes bytes) {
    Open& open = of(fd);
    if (!passes(open.machine)) return -1;
    std::size_t count = bytes.size();
    if (at(open.machine).no_room == NoRoom::kWrite) {
      if (count == 0 || dice_.one_in(2)) return fail_with(ENOSPC);
      count = dice_.below(count);
      if (count == 0) return fail_with(ENOSPC);
    }
    open.file->bytes.insert(open.file->bytes.end(), bytes.begin(),
                            bytes.begin() + static_cast<std::ptrdiff_t>(count));
    return static_cast<ssize_t>(count);
  }

  ssize_t read(int fd, MutBytes into, std::uint64_t offset) {
    const Open& open = of(fd);
    if (!passes(open.machine)) return -1;
    const std::vector<std::byte>& bytes = open.file->bytes;
    const std::size_t first = std::min<std::size_t>(offset, bytes.size());
    const std::size_t count = std::min(into.size(), bytes.size() - first);
    if (count > 0) std::memcpy(into.data(), bytes.data() + first, count);
    return static_cast<ssize_t>(count);
  }

  off_t size(int fd) const noexcept {
    const Open& open = of(fd);
    return open.file == nullptr ? 0 : static_cast<off_t>(open.file->bytes.size());
  }

  int flush(int fd) {
    const Open& open = of(fd);
    if (!passes(open.machine)) return -1;
    Disk& disk = at(open.machine);
    if (open.file != nullptr && disk.no_room == NoRoom::kFlush) return fail_with(ENOSPC);
    if (disk.lies) return 0;
    if (open.file != nullptr) {
      open.file->flushed = open.file->bytes.size();
    } else {
      for (const Change& change : std::exchange(disk.changes, {})) apply(disk.flushed, change);
    }
    return 0;
  }

  int rename(std::string_view from, std::string_view to) {
    const int machine = machine_of(from);
    if (!passes(machine)) return -1;
    Disk& disk = at(machine);
    const auto found = disk.names.find(name_of(from));
    if (found == disk.names.end()) return fail_with(ENOENT);
    change(disk, {std::string(name_of(to)), found->second, found->first});
    return 0;
  }

  int unlink(std::string_view path) {
    const int machine = machine_of(path);
    if (!passes(machine)) return -1;
    Disk& disk = at(machine);
    if (!disk.names.contains(name_of(path))) return fail_with(ENOENT);
    change(disk, {std::string(name_of(path)), nullptr, {}});
    return 0;
  }

  DIR* open_folder(std::string_view path) {
    const int machine = machine_of(path);
    if (!passes(machine)) return nullptr;
    return reinterpret_cast<DIR*>(new Listing{names(machine)});
  }

  static dirent* next_name(DIR* folder) noexcept {
    assert(folder != nullptr);
    auto& listing = *reinterpret_cast<Listing*>(folder);
    if (listing.next == listing.names.size()) return nullptr;
    const std::string& name = listing.names[listing.next++];
    name.copy(listing.entry.d_name, sizeof listing.entry.d_name - 1);
    listing.entry.d_name[name.size()] = '\0';
    return &listing.entry;
  }

  static int close_folder(DIR* folder) noexcept {
    delete reinterpret_cast<Listing*>(folder);
    return 0;
  }

 private:
  static std::string_view name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

  static constexpr std::string_view kRoot = "/simulated-disks/";

  struct File {
    std::vector<std::byte> bytes;  // only appended to
    std::size_t flushed = 0;       // of them
  };
  using Names = std::map<std::string, std::shared_ptr<File>, std::less<>>;
  // Of a folder: `name` gets this file, or none, and `removed` goes, if it isn't empty.
  struct Change {
    std::string name;
    std::shared_ptr<File> file;
    std::string removed;
  };
  struct Disk {
    Names names;                  // as its machine sees them
    Names flushed;                // as a power failure leaves them, without the changes below
    std::vector<Change> changes;  // that are not flushed
    NoRoom no_room = NoRoom::kNowhere;
    bool lies = false;
  };
  struct Open {
    int machine = 0;
    std::shared_ptr<File> file;  // null: the folder
    bool is_open = true;
    bool is_duplicate = false;
  };
  // What opendir() returns.
  struct Listing {
    std::vector<std::string> names;
    std::size_t next = 0;
    dirent entry{};
  };

  Disk& at(int machine) noexcept { return disks_[static_cast<std::size_t>(machine)]; }
  Open& of(int fd) noexcept { return open_[static_cast<std::size_t>(fd - kFirstDescriptor)]; }
  const Open& of(int fd) const noexcept { return open_[static_cast<std::size_t>(fd - kFirstDescriptor)]; }
  static int machine_of(std::string_view path) {
    int machine = 0;
    (void)std::from_chars(path.data() + kRoot.size(), path.data() + path.size(), machine);
    return machine;
  }

  bool passes(int machine) {
    if (!pass_ || pass_(machine)) return true;
    errno = EIO;
    return false;
  }

  void change(Disk& disk, Change made) {
    apply(disk.names, made);
    disk.changes.push_back(std::move(made));
  }

  static void apply(Names& names, const Change& change) {
    if (!change.removed.empty()) names.erase(change.removed);
    if (change.file == nullptr) {
      names.erase(change.name);
    } else {
      names[change.name] = change.file;
    }
  }

  // A file may be longer than what was written of it: then the rest is anything.
  void tear(File& file) {
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

  int add(Open open) {
    open_.push_back(std::move(open));
    return kFirstDescriptor + static_cast<int>(open_.size()) - 1;
  }

  static inline constinit Disks* current_ = nullptr;

  Dice dice_;
  std::vector<Disk> disks_;
  std::deque<Open> open_;  // a call that waits keeps its place
  Use::Pass pass_;
};

}  // namespace deltawire::simulation
