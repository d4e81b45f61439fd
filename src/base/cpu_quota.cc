#include "base/cpu_quota.h"

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

// Of the group and those above it. In a container the path may be the host's, and its mount the group's own.
template <class Quota>
int least_up_from(const fs::path& mount, const std::string& group, const Quota& quota_of) {
  int least = quota_of(mount);
  fs::path at = mount;
  for (const fs::path& name : fs::path(group).relative_path()) least = std::min(least, quota_of(at /= name));
  return least;
}

bool lists_cpu(const std::string& controllers) {
  return ("," + controllers + ",").find(",cpu,") != std::string::npos;
}

}  // namespace

int cpu_quota(const fs::path& groups, const fs::path& mount) {
  int least = kNoCpuQuota;
  std::ifstream lines(groups);
  for (std::string line; std::getline(lines, line);) {  // "0::/a/b", or "4:cpu,cpuacct:/a/b"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      least = std::min(least, least_up_from(mount, group, quota_of_version_2));
    } else if (lists_cpu(controllers)) {
      for (const std::string& name : {controllers, std::string("cpu")}) {
        least = std::min(least, least_up_from(mount / name, group, quota_of_version_1));
      }
    }
  }
  return least;
}

}  // namespace deltawire
