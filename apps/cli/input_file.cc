#include "cli/input_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

#include <sys/stat.h>

namespace deltawire::cli {
namespace {

constexpr std::size_t kFirstRead = std::size_t{1} << 16;

struct Closer {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

// Bytes to make room for: one more than a regular file has, so that its end is seen without another read.
std::size_t expected_bytes(std::FILE* file) {
  struct stat info{};
  if (fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode)) return kFirstRead;
  return static_cast<std::size_t>(info.st_size) + 1;
}

Outcome<std::vector<std::byte>> read_all(std::FILE* file, const std::string& name) {
  std::vector<std::byte> bytes(expected_bytes(file));
  std::size_t used = 0;
  while (true) {
    const std::size_t wanted = bytes.size() - used;
    const std::size_t got = std::fread(bytes.data() + used, 1, wanted, file);
    used += got;
    if (got < wanted) break;
    bytes.resize(bytes.size() * 2);
  }
  if (std::ferror(file) != 0) return failed_system_call(name, "cannot be read", errno);
  bytes.resize(used);
  return bytes;
}

}  // namespace

Outcome<std::vector<std::byte>> read_input(const std::string& path) {
  const std::string name = input_name(path);
  if (path == "-") return read_all(stdin, name);
  const std::unique_ptr<std::FILE, Closer> file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) {
    if (errno == ENOENT) return failed(name + ": no such file; check the path");
    return failed_system_call(name, "cannot be opened", errno);
  }
  return read_all(file.get(), name);
}

}  // namespace deltawire::cli
