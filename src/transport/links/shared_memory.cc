#include "transport/links/shared_memory.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace deltawire {
namespace {

constexpr std::size_t kOwnRingsMax = std::size_t{32} << 20;
// Both states, and what is left of their page.
constexpr std::size_t kStatesBytes = 4096;
static_assert(2 * sizeof(RingState) <= kStatesBytes);
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

constexpr std::size_t file_bytes(std::size_t ring_bytes) noexcept {
  return kStatesBytes + 2 * ring_bytes;
}

int open_file() noexcept {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
#ifdef MFD_NOEXEC_SEAL
  // Kernels that know it complain of files without it.
  if (const int file = ::memfd_create("deltawire", kFlags | MFD_NOEXEC_SEAL); file >= 0 || errno != EINVAL)
    return file;
#endif
  return ::memfd_create("deltawire", kFlags);
}

bool is_ring(std::size_t bytes) noexcept {
  return std::has_single_bit(bytes) && bytes >= SharedMemory::kRingBytesMin &&
         bytes <= SharedMemory::kRingBytesMax;
}

// A control message with room for one descriptor.
union Ancillary {
  cmsghdr header;
  std::byte bytes[CMSG_SPACE(sizeof(int))];
};

// Keeps the first descriptor of a message, and closes others, which nobody of this version sends.
int descriptor_of(msghdr& message) noexcept {
  int kept = -1;
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(at) + i * sizeof file, sizeof file);
      if (kept < 0) {
        kept = file;
      } else {
        ::close(file);
      }
    }
  }
  return kept;
}

}  // namespace

std::size_t SharedMemory::ring_bytes_for(std::size_t others) noexcept {
  if (others == 0) return 0;
  const std::size_t fair = std::bit_floor(kOwnRingsMax / 2 / others);
  return fair < kRingBytesMin ? 0 : std::min(fair, kRingBytesMax);
}

SharedMemory::SharedMemory(GuardedFd file, std::size_t ring_bytes) noexcept
    : file_(std::move(file)), ring_bytes_(ring_bytes), generation_(fork_generation()) {
  void* const at =
      ::mmap(nullptr, file_bytes(ring_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (at == MAP_FAILED) return;
  at_ = static_cast<std::byte*>(at);
  // A forked child would otherwise hold the memory for as long as it lives.
  (void)::madvise(at, file_bytes(ring_bytes), MADV_DONTFORK);
}

SharedMemory::~SharedMemory() {
  if (at_ != nullptr && generation_ == fork_generation()) ::munmap(at_, file_bytes(ring_bytes_));
}

SharedMemory SharedMemory::make(std::size_t ring_bytes) noexcept {
  GuardedFd file = GuardedFd::open(open_file);
  const auto bytes = static_cast<off_t>(file_bytes(ring_bytes));
  if (!file || ::ftruncate(file.get(), bytes) != 0 || ::fallocate(file.get(), 0, 0, bytes) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return {};
  }
  SharedMemory made(std::move(file), ring_bytes);
  if (!made) return {};
  for (const Side side : {Side::kMaker, Side::kTaker}) {
    // Nobody reads yet: whoever writes first rings.
    (new (&made.state(side)) RingState{})->reader_sleeps = 1;
  }
  return made;
}

SharedMemory SharedMemory::take(GuardedFd file) noexcept {
  struct stat found{};
  if (!file || ::fstat(file.get(), &found) != 0) return {};
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  const std::size_t ring_bytes = (static_cast<std::size_t>(found.st_size) - kStatesBytes) / 2;
  if (seals < 0 || (seals & kSeals) != kSeals || !is_ring(ring_bytes) ||
      static_cast<std::size_t>(found.st_size) != file_bytes(ring_bytes)) {
    return {};
  }
  SharedMemory taken(std::move(file), ring_bytes);
  taken.file_.reset();
  return taken;
}

RingState& SharedMemory::state(Side writer) const noexcept {
  auto* const states = reinterpret_cast<RingState*>(at_);
  return states[writer == Side::kMaker ? 0 : 1];
}

MutBytes SharedMemory::bytes(Side writer) const noexcept {
  return {at_ + kStatesBytes + (writer == Side::kMaker ? 0 : ring_bytes_), ring_bytes_};
}

IoResult send_with_file(int socket, std::byte byte, const GuardedFd& file) noexcept {
  iovec piece{&byte, 1};
  Ancillary ancillary{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = &ancillary;
  message.msg_controllen = sizeof ancillary;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int descriptor = file.get();
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) return IoResult::moved(static_cast<std::size_t>(sent));
  if (errno == EAGAIN || errno == EINTR) return IoResult::would_block();
  return {IoResult::Kind::kError, 0, errno, kNever};
}

IoResult receive_with_file(int socket, std::byte& byte, GuardedFd& file) {
  iovec piece{&byte, 1};
  Ancillary ancillary{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = &ancillary;
  message.msg_controllen = sizeof ancillary;
  ssize_t got = -1;
  file = GuardedFd::open([&] {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    return got > 0 ? descriptor_of(message) : -1;
  });
  if (got > 0) return IoResult::moved(1);
  return got == 0 ? IoResult::closed() : IoResult::would_block();
}

}  // namespace deltawire
