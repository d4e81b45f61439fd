#include "linear/launcher.h"

#include <map>

#include <gtest/gtest.h>

namespace deltawire::linear {
namespace {

std::optional<Launched> found_in(const std::map<std::string, std::string>& variables) {
  return find_launcher([&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

TEST(Launcher, EachIsKnownByItsVariables) {
  for (const auto& [by, rank, world] : {std::array{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                        std::array{"mpirun", "PMI_RANK", "PMI_SIZE"},
                                        std::array{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}}) {
    const auto launched = found_in({{rank, "3"}, {world, "8"}});
    ASSERT_TRUE(launched.has_value());
    EXPECT_EQ(launched->by, by);
    EXPECT_EQ(launched->rank, 3);
    EXPECT_EQ(launched->world, 8);
    EXPECT_FALSE(found_in({{rank, "3"}}).has_value());
    EXPECT_FALSE(found_in({{world, "8"}}).has_value());
  }
}

TEST(Launcher, MpirunWithinAJobOfSlurmIsTheNearerOne) {
  const auto launched = found_in({{"SLURM_PROCID", "0"},
                                  {"SLURM_STEP_NUM_TASKS", "2"},
                                  {"OMPI_COMM_WORLD_RANK", "5"},
                                  {"OMPI_COMM_WORLD_SIZE", "6"}});
  ASSERT_TRUE(launched.has_value());
  EXPECT_EQ(launched->rank, 5);
}

TEST(Launcher, ABatchScriptIsNotATask) {
  EXPECT_FALSE(found_in({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}}).has_value());
}

TEST(Launcher, InvalidRanksAreIgnored) {
  for (const char* rank : {"", "x", "3x", "-1", "8", "99999999999"}) {
    EXPECT_FALSE(found_in({{"PMI_RANK", rank}, {"PMI_SIZE", "8"}}).has_value()) << rank;
  }
}

}  // namespace
}  // namespace deltawire::linear
