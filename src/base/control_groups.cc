#include "base/control_groups.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace deltawire {
namespace {

namespace fs = std::filesystem;

int whole(double quota, double period) {
  if (!(quota > 0 && period > 0)) return kNoCpuQuota;  // -1: none
  return static_cast<int>(std::clamp(std::ceil(quota / period), 1.0, 1e6));
}

// "max 100000" or "150000 100000", in microseconds.
int quota_of_version_2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  double quota = 0;
  double period = 0;
  return file >> quota >> period ? whole(quota, period) : kNoCpuQuota;
}

int quota_of_version_1(const fs::path& group) {
  std::ifstream quota_file(group / "cpu.cfs_quota_us");
  std::ifstream period_file(group / "cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  return quota_file >> quota && period_file >> period ? whole(quota, period) : kNoCpuQuota;
}

// "max" or a number of bytes.
std::uint64_t bytes_in(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t bytes = 0;
  return file >> bytes ? bytes : kNoMemoryLimit;
}

// Of the group and those above it. In a container the path may be the host's, and its mount the group's own.
auto least_up_from(const fs::path& mount, const std::string& group, const auto& limit_of) {
  auto least = limit_of(mount);
  fs::path at = mount;
  for (const fs::path& name : fs::path(group).relative_path()) least = std::min(least, limit_of(at /= name));
  return least;
}

// What a controller of version 1, and the groups of version 2, limit the process to.
auto least_of(const fs::path& groups, const fs::path& mount, const std::string& controller,
              const auto& limit_of_2, const auto& limit_of_1) {
  auto least = std::numeric_limits<decltype(limit_of_2(mount))>::max();
  std::ifstream lines(groups);
  for (std::string line; std::getline(lines, line);) {  // "0::/a/b", or "4:cpu,cpuacct:/a/b"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      least = std::min(least, least_up_from(mount, group, limit_of_2));
    } else if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {
      for (const std::string& name : {controllers, controller}) {
        least = std::min(least, least_up_from(mount / name, group, limit_of_1));
      }
    }
  }
  return least;
}

}  // namespace

int cpu_quota(const fs::path& groups, const fs::path& mount) {
  return least_of(groups, mount, "cpu", quota_of_version_2, quota_of_version_1);
}

std::uint64_t memory_limit(const fs::path& groups, const fs::path& mount) {
  return least_of(
      groups, mount, "memory", [](const fs::path& group) { return bytes_in(group / "memory.max"); },
      [](const fs::path& group) { return bytes_in(group / "memory.limit_in_bytes"); });
}

}  // namespace deltawire
