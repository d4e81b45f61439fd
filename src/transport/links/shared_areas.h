// Memory that ranks of one machine read where it lies: each has an area that only it writes and all others
// map. What a rank gives to all is then copied into it once, and nowhere else on the way.
//
// Who reads what when, the ranks tell each other by messages; the memory itself has no state. An area is a
// file that ranks pass to each other when they meet. Its pages are taken as they are needed, so a full
// machine refuses here, not later by a signal, and the caller sends its bytes as any others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "deltawire/tensor.h"
#include "transport/links/link.h"
#include "transport/process/fork_guard.h"

namespace deltawire {

// Memory in a file without a name, which one process makes and passes to others of its machine over their
// Unix sockets.
//
// The file is sealed: it can't shrink, so nobody can take pages away under another's feet.
class SharedFile {
 public:
  enum class Writers : std::uint8_t {
    kAll,    // all of it is allocated at once: a full machine refuses it here and not later, by a signal
    kMaker,  // who takes it only reads; allocate() has to come first
  };

  SharedFile() noexcept = default;
  SharedFile(SharedFile&& other) noexcept { swap(other); }
  SharedFile& operator=(SharedFile&& other) noexcept {
    SharedFile taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~SharedFile();

  // Empty, with errno set, if the system refuses.
  static SharedFile make(std::size_t bytes, Writers writers) noexcept;
  // What make() made in another process, mapped and closed. Empty if it is anything else, or if the system
  // refuses.
  static SharedFile take(GuardedFd file, Writers writers) noexcept;

  explicit operator bool() const noexcept { return at_ != nullptr; }
  MutBytes bytes() const noexcept { return {at_, bytes_}; }
  // The maker's, to be passed on.
  GuardedFd& file() noexcept { return file_; }

  // Takes pages for these bytes. False, with errno set, if the system refuses.
  bool allocate(std::size_t begin, std::size_t bytes) const noexcept;

 private:
  SharedFile(GuardedFd file, std::size_t bytes, int access) noexcept;  // maps it
  void swap(SharedFile& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(at_, other.at_);
    std::swap(bytes_, other.bytes_);
    std::swap(generation_, other.generation_);
  }

  GuardedFd file_;
  std::byte* at_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t generation_ = 0;  // of the process that mapped it; its forked children don't have it
};

// How many files go with a byte, at most.
inline constexpr std::size_t kPassedFilesMax = 2;

// Sends one byte with descriptors. REQUIRES: a Unix socket; at most kPassedFilesMax.
IoResult send_with_files(int socket, std::byte byte, std::span<const GuardedFd* const> files) noexcept;
// Receives one byte, and the descriptors that came with it, if any did.
IoResult receive_with_files(int socket, std::byte& byte, std::span<GuardedFd, kPassedFilesMax> files);

// A rank's own area. Thread rule: one thread at a time.
class OwnArea {
 public:
  static constexpr std::size_t kBytes = std::size_t{256} << 20;

  // Until when others may read what was taken, after it is given back.
  enum class Use : std::uint8_t {
    kNow,        // nobody reads it any more
    kUntilVote,  // until all ranks have voted on the step: then they have copied it
  };

  OwnArea() noexcept = default;
  // Empty, with errno set, if the system refuses.
  static OwnArea make() noexcept { return OwnArea(SharedFile::make(kBytes, SharedFile::Writers::kMaker)); }
  explicit operator bool() const noexcept { return static_cast<bool>(file_); }
  GuardedFd& file() noexcept { return file_.file(); }

  // Empty if there is no room.
  MutBytes take(std::size_t bytes, Use use);
  void give_back(MutBytes memory) noexcept;
  // Where memory that was taken begins, as others count.
  std::uint64_t place_of(Bytes memory) const noexcept {
    return static_cast<std::uint64_t>(memory.data() - file_.bytes().data());
  }

  // All ranks have voted on a step.
  void note_vote() noexcept { ++votes_; }
  // The pages that it holds.
  std::size_t held_bytes() const noexcept { return end_; }

 private:
  // One after another they fill the area up to end_.
  struct Lot {
    std::size_t begin = 0;
    std::size_t bytes = 0;
    Use use = Use::kNow;
    bool is_taken = false;
    std::uint64_t votes = 0;  // when it was taken
  };

  explicit OwnArea(SharedFile file) noexcept : file_(std::move(file)) {}
  bool is_free(const Lot& lot, Use use) const noexcept {
    return !lot.is_taken && lot.use == use && (use == Use::kNow || lot.votes < votes_);
  }
  void join_free(Use use);

  SharedFile file_;
  std::size_t end_ = 0;
  std::uint64_t votes_ = 0;
  std::vector<Lot> lots_;
};

// Another rank's.
class PeerArea {
 public:
  PeerArea() noexcept = default;
  // Empty if it is none, or if the system refuses.
  static PeerArea take(GuardedFd file) noexcept;
  explicit operator bool() const noexcept { return static_cast<bool>(file_); }

  // Bytes that its rank says it has given; empty if they are not within the area. They are another process's
  // to change: nothing may depend on reading the same bytes twice.
  Bytes at(std::uint64_t place, std::uint64_t bytes) const noexcept;

 private:
  explicit PeerArea(SharedFile file) noexcept : file_(std::move(file)) {}

  SharedFile file_;
};

// Of a mesh whose ranks are all processes of one machine.
class SharedAreas final : public LinkHost {
 public:
  // `peers` by rank; this rank's entry is empty.
  SharedAreas(OwnArea own, std::vector<PeerArea> peers) noexcept
      : own_(std::move(own)), peers_(std::move(peers)) {}

  OwnArea& own() noexcept { return own_; }
  const PeerArea& of(int rank) const noexcept { return peers_[static_cast<std::size_t>(rank)]; }
  SharedAreas* shared_areas() noexcept override { return this; }

  // Bytes that lie here instead of being sent, once for each receiver, and of others' that were read.
  void note_sent(std::uint64_t bytes) noexcept { sent_.fetch_add(bytes, std::memory_order_relaxed); }
  void note_received(std::uint64_t bytes) noexcept { received_.fetch_add(bytes, std::memory_order_relaxed); }
  // Any thread may ask.
  Traffic traffic() const noexcept {
    return {sent_.load(std::memory_order_relaxed), received_.load(std::memory_order_relaxed)};
  }

 private:
  OwnArea own_;
  std::vector<PeerArea> peers_;
  std::atomic<std::uint64_t> sent_ = 0;
  std::atomic<std::uint64_t> received_ = 0;
};

}  // namespace deltawire
