// For wheels alone: libarchive's one call that glibc has only since 2.36. With it here the program runs with
// glibc 2.34.

#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include <sys/random.h>

// Fills `size` bytes with random ones of the kernel's. As the real one it cannot fail: a kernel without them
// ends the program.
extern "C" void arc4random_buf(void* bytes, std::size_t size) {
  auto* next = static_cast<std::byte*>(bytes);
  while (size > 0) {
    const ssize_t got = getrandom(next, size, 0);
    if (got > 0) {
      next += got;
      size -= static_cast<std::size_t>(got);
    } else if (got == 0 || errno != EINTR) {
      std::abort();
    }
  }
}
