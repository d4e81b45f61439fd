#include "transport/links/shared_areas.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"

namespace deltawire {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

int open_file() noexcept {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
#ifdef MFD_NOEXEC_SEAL
  // Kernels that know it complain of files without it.
  if (const int file = ::memfd_create("deltawire", kFlags | MFD_NOEXEC_SEAL); file >= 0 || errno != EINVAL)
    return file;
#endif
  return ::memfd_create("deltawire", kFlags);
}

// After the maker has mapped it.
bool seal(const GuardedFd& file, SharedFile::Writers writers) noexcept {
#ifdef F_SEAL_FUTURE_WRITE
  // Linux before 5.1 doesn't know it, and who takes the file doesn't write all the same.
  if (writers == SharedFile::Writers::kMaker &&
      ::fcntl(file.get(), F_ADD_SEALS, kSeals | F_SEAL_FUTURE_WRITE) == 0) {
    return true;
  }
#endif
  (void)writers;
  return ::fcntl(file.get(), F_ADD_SEALS, kSeals) == 0;
}

// A control message with room for the descriptors.
union Ancillary {
  cmsghdr header;
  std::byte bytes[CMSG_SPACE(kPassedFilesMax * sizeof(int))];
};

// The descriptors of a message; closes more, which nobody of this version sends.
std::array<int, kPassedFilesMax> descriptors_of(msghdr& message) noexcept {
  std::array<int, kPassedFilesMax> kept;
  kept.fill(-1);
  std::size_t found = 0;
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(at) + i * sizeof file, sizeof file);
      if (found < kept.size()) {
        kept[found++] = file;
      } else {
        ::close(file);
      }
    }
  }
  return kept;
}

}  // namespace

SharedFile::SharedFile(GuardedFd file, std::size_t bytes, int access) noexcept
    : file_(std::move(file)), bytes_(bytes), generation_(fork_generation()) {
  void* const at = ::mmap(nullptr, bytes, access, MAP_SHARED, file_.get(), 0);
  if (at == MAP_FAILED) return;
  at_ = static_cast<std::byte*>(at);
  // A forked child would otherwise hold the memory for as long as it lives.
  (void)::madvise(at, bytes, MADV_DONTFORK);
}

SharedFile::~SharedFile() {
  if (at_ != nullptr && generation_ == fork_generation()) ::munmap(at_, bytes_);
}

SharedFile SharedFile::make(std::size_t bytes, Writers writers) noexcept {
  // Where files may not be as long, the system says so by a signal.
  rlimit most{};
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < bytes) {
    errno = EFBIG;
    return {};
  }
  GuardedFd file = GuardedFd::open(open_file);
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return {};
  SharedFile made(std::move(file), bytes, PROT_READ | PROT_WRITE);
  if (!made || (writers == Writers::kAll && !made.allocate(0, bytes)) || !seal(made.file_, writers))
    return {};
  return made;
}

SharedFile SharedFile::take(GuardedFd file, Writers writers) noexcept {
  struct stat found{};
  if (!file || ::fstat(file.get(), &found) != 0) return {};
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || found.st_size <= 0) return {};
  const int access = writers == Writers::kAll ? PROT_READ | PROT_WRITE : PROT_READ;
  SharedFile taken(std::move(file), static_cast<std::size_t>(found.st_size), access);
  taken.file_.reset();
  return taken;
}

bool SharedFile::allocate(std::size_t begin, std::size_t bytes) const noexcept {
  return ::fallocate(file_.get(), 0, static_cast<off_t>(begin), static_cast<off_t>(bytes)) == 0;
}

IoResult send_with_files(int socket, std::byte byte, std::span<const GuardedFd* const> files) noexcept {
  assert(!files.empty() && files.size() <= kPassedFilesMax);
  iovec piece{&byte, 1};
  Ancillary ancillary{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = &ancillary;
  message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
  for (std::size_t i = 0; i < files.size(); ++i) {
    const int descriptor = files[i]->get();
    std::memcpy(CMSG_DATA(header) + i * sizeof descriptor, &descriptor, sizeof descriptor);
  }
  const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) return IoResult::moved(static_cast<std::size_t>(sent));
  if (errno == EAGAIN || errno == EINTR) return IoResult::would_block();
  return {IoResult::Kind::kError, 0, errno, kNever};
}

IoResult receive_with_files(int socket, std::byte& byte, std::span<GuardedFd, kPassedFilesMax> files) {
  iovec piece{&byte, 1};
  Ancillary ancillary{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = &ancillary;
  message.msg_controllen = sizeof ancillary;
  ssize_t got = -1;
  std::array<int, kPassedFilesMax> came{};
  files[0] = GuardedFd::open([&] {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    came.fill(-1);
    if (got > 0) came = descriptors_of(message);
    return came[0];
  });
  files[1] = GuardedFd::open([&] { return came[1]; });
  if (got > 0) return IoResult::moved(1);
  return got == 0 ? IoResult::closed() : IoResult::would_block();
}

namespace {

// Lots begin with a page.
constexpr std::size_t kPage = 4096;

}  // namespace

// The smallest free lot that is large enough, without what is left of it.
MutBytes OwnArea::take(std::size_t bytes, Use use) {
  if (!file_ || bytes == 0 || bytes > kBytes) return {};
  const std::size_t size = (bytes + kPage - 1) / kPage * kPage;
  lots_.reserve(lots_.size() + 2);
  join_free(use);
  auto best = lots_.end();
  for (auto lot = lots_.begin(); lot != lots_.end(); ++lot) {
    if (!is_free(*lot, use) || lot->bytes < size) continue;
    if (best == lots_.end() || lot->bytes < best->bytes) best = lot;
  }
  if (best == lots_.end()) {
    if (size > kBytes - end_ || !file_.allocate(end_, size)) return {};
    lots_.push_back({end_, size, use});
    best = lots_.end() - 1;
    end_ += size;
  } else if (best->bytes > size) {
    Lot rest = *best;
    rest.begin += size;
    rest.bytes -= size;
    best->bytes = size;
    best = lots_.insert(best + 1, rest) - 1;
  }
  best->is_taken = true;
  best->votes = votes_;
  return file_.bytes().subspan(best->begin, bytes);
}

void OwnArea::join_free(Use use) {
  auto kept = lots_.begin();
  for (auto lot = lots_.begin(); lot != lots_.end(); ++lot) {
    if (kept != lots_.begin() && is_free(*lot, use) && is_free(*(kept - 1), use)) {
      (kept - 1)->bytes += lot->bytes;
    } else {
      *kept++ = *lot;
    }
  }
  lots_.erase(kept, lots_.end());
}

void OwnArea::give_back(MutBytes memory) noexcept {
  if (memory.empty()) return;
  const std::size_t begin = place_of(memory);
  const auto lot = std::ranges::lower_bound(lots_, begin, {}, &Lot::begin);
  assert(lot != lots_.end() && lot->begin == begin && lot->is_taken);
  lot->is_taken = false;
}

PeerArea PeerArea::take(GuardedFd file) noexcept {
  PeerArea taken(SharedFile::take(std::move(file), SharedFile::Writers::kMaker));
  if (taken.file_.bytes().size() != OwnArea::kBytes) return {};
  return taken;
}

Bytes PeerArea::at(std::uint64_t place, std::uint64_t bytes) const noexcept {
  const std::size_t all = file_.bytes().size();
  if (!range_fits(place, bytes, all)) return {};
  return Bytes(file_.bytes()).subspan(static_cast<std::size_t>(place), static_cast<std::size_t>(bytes));
}

}  // namespace deltawire
