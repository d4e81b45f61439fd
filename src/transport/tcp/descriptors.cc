#include "transport/tcp/descriptors.h"

#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include <dirent.h>
#include <sys/resource.h>

#include "base/os_error.h"

namespace deltawire {
namespace {

// Beyond two connections with every other rank: what wakes the transport's thread, and a few for callers that
// wait to be let in.
constexpr std::uint64_t kBesides = 8;

std::uint64_t needed_for(int world_size) noexcept {
  return 2 * static_cast<std::uint64_t>(world_size - 1) + kBesides;
}

std::optional<std::uint64_t> limit() noexcept {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0 || descriptors.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return descriptors.rlim_cur;
}

// Nothing where there is no /proc.
std::optional<std::uint64_t> open_now() noexcept {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  if (!folder) return std::nullopt;
  std::uint64_t entries = 0;
  while (::readdir(folder.get()) != nullptr) ++entries;
  return entries - 3;  // ".", ".." and the folder itself
}

std::string needs(int self, int world_size) {
  return "rank " + std::to_string(self) + " needs " + std::to_string(needed_for(world_size)) +
         " file descriptors to connect " + std::to_string(world_size) + " ranks (2 for each other rank, " +
         std::to_string(kBesides) + " besides)";
}

std::string allowed() {
  const auto most = limit();
  const auto now = open_now();
  return (now ? ", has " + std::to_string(*now) + " open" : "") + " and may have " +
         (most ? std::to_string(*most) : "any number") + " (ulimit -n)";
}

std::string advice(int world_size) {
  // Room for what the program itself opens meanwhile, in a number that is easy to type.
  const std::uint64_t enough = (needed_for(world_size) + open_now().value_or(0) + 127) / 64 * 64;
  return "; raise it before the start: ulimit -n " + std::to_string(enough);
}

}  // namespace

Status check_descriptors(int self, int world_size) {
  const auto most = limit();
  errno = 0;
  const auto now = open_now();
  if (!now && is_descriptor_shortage(errno)) {  // not even one to look with
    return tl::unexpected<Error>(descriptor_shortage(self, world_size, errno));
  }
  if (!most || now.value_or(0) + needed_for(world_size) <= *most) return {};
  return fail(ErrorCode::kSystem, needs(self, world_size) + allowed() + advice(world_size), self);
}

bool is_descriptor_shortage(int error_number) noexcept {
  return error_number == EMFILE || error_number == ENFILE;
}

Error descriptor_shortage(int self, int world_size, int error_number) {
  const std::string what = error_number == EMFILE
                               ? allowed() + advice(world_size)
                               : ", but the machine has none left for anybody; see /proc/sys/fs/file-max";
  return {ErrorCode::kSystem, needs(self, world_size) + what + " (" + os_error_text(error_number) + ")",
          self};
}

}  // namespace deltawire
