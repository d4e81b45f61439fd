// What the control groups of a process, and those above them, leave to it (versions 1 and 2). `groups` is
// /proc/self/cgroup, `mount` is where the groups are mounted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>

namespace deltawire {

inline constexpr int kNoCpuQuota = std::numeric_limits<int>::max();
inline constexpr std::uint64_t kNoMemoryLimit = std::numeric_limits<std::uint64_t>::max();

// How many processors the least quota is worth, rounded up; kNoCpuQuota if no group has one. A container with
// --cpus=2 may use all of a machine's processors, but stops for the rest of each period once it has used two
// of them for that long.
int cpu_quota(const std::filesystem::path& groups = "/proc/self/cgroup",
              const std::filesystem::path& mount = "/sys/fs/cgroup");

// The least limit of memory, in bytes; kNoMemoryLimit if no group has one.
std::uint64_t memory_limit(const std::filesystem::path& groups = "/proc/self/cgroup",
                           const std::filesystem::path& mount = "/sys/fs/cgroup");

}  // namespace deltawire
