// Memory in a file without a name, which one process makes and passes to others of its machine over their
// Unix sockets.
//
// The file is sealed: it can't shrink, so nobody can take pages away under another's feet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "deltawire/tensor.h"
#include "transport/links/link.h"
#include "transport/process/fork_guard.h"

namespace deltawire {

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

}  // namespace deltawire
