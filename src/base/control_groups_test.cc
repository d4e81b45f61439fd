#include "base/control_groups.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "base/temporary_folder_testing.h"

namespace deltawire::control_groups_test {
namespace {

// A machine's groups, in a folder.
struct Groups {
  testing::TemporaryFolder folder;

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder.path(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  int quota() const { return cpu_quota(folder.path("groups"), folder.path("mount")); }
};

TEST(CpuQuota, OfVersion2IsRoundedUp) {
  const Groups groups;
  groups.write("groups", "0::/\n");
  EXPECT_EQ(groups.quota(), kNoCpuQuota);
  for (const auto& [most, quota] :
       {std::pair("max", kNoCpuQuota), {"200000", 2}, {"250000", 3}, {"10000", 1}}) {
    groups.write("mount/cpu.max", std::string(most) + " 100000\n");
    EXPECT_EQ(groups.quota(), quota);
  }
}

TEST(CpuQuota, IsTheLeastOfAllGroupsAbove) {
  const Groups groups;
  groups.write("groups", "0::/jobs/mine\n");
  groups.write("mount/jobs/cpu.max", "400000 100000\n");
  groups.write("mount/jobs/mine/cpu.max", "max 100000\n");
  EXPECT_EQ(groups.quota(), 4);
  groups.write("mount/jobs/mine/cpu.max", "150000 50000\n");
  EXPECT_EQ(groups.quota(), 3);
}

TEST(CpuQuota, OfVersion1) {
  const Groups groups;
  groups.write("groups", "5:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n3:cpuset:/docker/1\n");
  groups.write("mount/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  groups.write("mount/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(groups.quota(), kNoCpuQuota);
  groups.write("mount/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");  // the path above is the host's
  EXPECT_EQ(groups.quota(), 2);
}

TEST(CpuQuota, NoneWhereNothingCanBeRead) {
  const Groups groups;
  EXPECT_EQ(groups.quota(), kNoCpuQuota);
  groups.write("groups", "what is this\n0:\n");
  EXPECT_EQ(groups.quota(), kNoCpuQuota);
  groups.write("groups", "0::/\n");
  groups.write("mount/cpu.max", "many\n");
  EXPECT_EQ(groups.quota(), kNoCpuQuota);
}

TEST(MemoryLimit, IsTheLeastOfAllGroupsAbove) {
  const Groups groups;
  groups.write("groups", "5:memory:/docker/1\n0::/jobs/mine\n");
  const auto limit = [&] { return memory_limit(groups.folder.path("groups"), groups.folder.path("mount")); };
  EXPECT_EQ(limit(), kNoMemoryLimit);
  groups.write("mount/jobs/memory.max", "max\n");
  EXPECT_EQ(limit(), kNoMemoryLimit);
  groups.write("mount/jobs/memory.max", "3000000\n");
  groups.write("mount/jobs/mine/memory.max", "4000000\n");
  EXPECT_EQ(limit(), 3000000u);
  groups.write("mount/memory/docker/memory.limit_in_bytes", "2000000\n");
  EXPECT_EQ(limit(), 2000000u);
}

}  // namespace
}  // namespace deltawire::control_groups_test
