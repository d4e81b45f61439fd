#include "transport/tcp/descriptors.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include <dirent.h>
#include <sys/resource.h>

#include "base/errors.h"
#include "transport/tcp/long_line.h"

namespace deltawire {
namespace {

// Needed besides two connections with every other rank: for waking the transport's thread, and a few for
// pending connections.
constexpr std::uint64_t kBesides = 8;
constexpr std::uint64_t kForTheTransport = 2;

constexpr std::uint64_t kStrangers = 1024;
constexpr std::uint64_t kFewStrangers = 64;

constexpr std::chrono::milliseconds kShortageMax{2000};
// Longer than the pause between two attempts of any caller that lacks a descriptor.
constexpr std::chrono::milliseconds kShortageGap{1000};

std::uint64_t needed_for(int world_size) noexcept {
  return 2 * static_cast<std::uint64_t>(world_size - 1) + kBesides;
}

std::optional<std::uint64_t> limit() noexcept {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0 || descriptors.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return descriptors.rlim_cur;
}

// How many descriptors are open; nothing without /proc.
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

Error out_of_descriptors(int self, int world_size, int error_number) {
  const std::string what = error_number == EMFILE
                               ? allowed() + advice(world_size)
                               : ", but the whole machine has none left; see /proc/sys/fs/file-max";
  return {ErrorCode::kSystem, needs(self, world_size) + what + " (" + os_error_text(error_number) + ")",
          self};
}

}  // namespace

Status check_descriptors(int self, int world_size) {
  const auto most = limit();
  errno = 0;
  const auto now = open_now();
  if (!now && is_descriptor_shortage(errno)) {  // not even one to look with
    return tl::unexpected<Error>(out_of_descriptors(self, world_size, errno));
  }
  if (!most || now.value_or(0) + needed_for(world_size) <= *most) return {};
  return fail(ErrorCode::kSystem, needs(self, world_size) + allowed() + advice(world_size), self);
}

bool is_descriptor_shortage(int error_number) noexcept {
  return error_number == EMFILE || error_number == ENFILE;
}

std::size_t places_for_strangers(int world_size) noexcept {
  const auto most = limit();
  const std::uint64_t taken = open_now().value_or(0) + needed_for(world_size) - kBesides + kForTheTransport;
  // All other ranks may connect at once, on both streams.
  const std::uint64_t ranks = 2 * static_cast<std::uint64_t>(world_size);
  if (!most) return kStrangers + ranks;
  const std::uint64_t left = *most > taken ? *most - taken : 0;
  const std::uint64_t few = std::min(left, kFewStrangers + ranks);
  return std::max<std::size_t>({1, few, std::min(left / 2, kStrangers + ranks)});
}

int streams_that_fit(int world_size) noexcept {
  const auto most = limit();
  const std::uint64_t taken = open_now().value_or(0);
  if (!most || world_size < 2) return kStreamsMax;
  const std::uint64_t left = *most > taken ? *most - taken : 0;
  const std::uint64_t more = left / 2 / static_cast<std::uint64_t>(world_size - 1);
  return 1 + static_cast<int>(std::min<std::uint64_t>(more, kStreamsMax - 1));
}

Status DescriptorShortage::note(Deadline now, int self, int world_size, int error_number) {
  if (now - last_ > kShortageGap) first_ = now;
  last_ = now;
  if (now - first_ < kShortageMax) return {};
  return tl::unexpected<Error>(out_of_descriptors(self, world_size, error_number));
}

}  // namespace deltawire
