// How many processors a control group's quota is worth: a container with --cpus=2 may use all of a machine's
// processors, but stops for the rest of each period once it has used two of them for that long.
#pragma once

#include <filesystem>
#include <limits>

namespace deltawire {

inline constexpr int kNoCpuQuota = std::numeric_limits<int>::max();

// The least quota among the process's groups and those above them, rounded up; kNoCpuQuota if none has one.
// `groups` is /proc/self/cgroup, `mount` is where the groups are mounted (versions 1 and 2).
int cpu_quota(const std::filesystem::path& groups = "/proc/self/cgroup",
              const std::filesystem::path& mount = "/sys/fs/cgroup");

}  // namespace deltawire
