// The disks of a simulation: a folder on each machine, in memory, with what a power failure takes of it, what
// there is no room for, and what the disk only says it has flushed. In a program that is linked with
// system_calls.cc the system's calls on files come here, so that the code of snapshots runs as it is.
//
// Thread rule: one thread, from beginning to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <dirent.h>
#include <sys/types.h>

#include "deltawire/tensor.h"
#include "simulation/dice.h"

namespace deltawire::simulation {

// Where a disk without room says so. What is written before stays.
enum class NoRoom : std::uint8_t { kNowhere, kWrite, kFlush, kClose };

class Disks {
 public:
  static constexpr int kFirstDescriptor = 1 << 28;

  Disks(std::uint64_t seed, int machines);
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
  // What was not flushed is there, or not, or in part. Afterwards the disk is in order.
  void lose_power(int machine);
  // The disk has flushed all that it said, and is in order.
  void come_true(int machine);

  // The files in a machine's folder.
  std::vector<std::string> names(int machine) const;
  // Descriptors that are not closed.
  std::size_t open_count() const noexcept;

  // As the system's calls: -1 or nullptr with errno set where they fail.
  int open(std::string_view path, int flags);
  int create(char* pattern);  // mkostemp
  int duplicate(int fd);
  int close(int fd);
  ssize_t write(int fd, Bytes bytes);
  ssize_t read(int fd, MutBytes into, std::uint64_t offset);
  off_t size(int fd) const noexcept;
  int flush(int fd);
  int rename(std::string_view from, std::string_view to);
  int unlink(std::string_view path);
  DIR* open_folder(std::string_view path);
  static dirent* next_name(DIR* folder) noexcept;
  static int close_folder(DIR* folder) noexcept;

 private:
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
  struct Listing;

  Disk& at(int machine) noexcept { return disks_[static_cast<std::size_t>(machine)]; }
  Open& of(int fd) noexcept { return open_[static_cast<std::size_t>(fd - kFirstDescriptor)]; }
  const Open& of(int fd) const noexcept { return open_[static_cast<std::size_t>(fd - kFirstDescriptor)]; }
  static int machine_of(std::string_view path);
  bool passes(int machine);
  void change(Disk& disk, Change made);
  static void apply(Names& names, const Change& change);
  void tear(File& file);
  int add(Open open);

  static inline constinit Disks* current_ = nullptr;

  Dice dice_;
  std::vector<Disk> disks_;
  std::deque<Open> open_;  // a call that waits keeps its place
  Use::Pass pass_;
};

}  // namespace deltawire::simulation
