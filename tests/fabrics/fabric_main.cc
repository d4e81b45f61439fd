// usage: deltawire_fabrics_test --fabric=mpi             under mpirun
//        deltawire_fabrics_test --fabric=gloo --ranks=N  forks the ranks itself
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deltawire/connect_gloo.h"
#include "deltawire/connect_mpi.h"
#include "fabric_world.h"

namespace deltawire {
namespace {

std::unique_ptr<FabricWorld> the_world;

class MpiWorld final : public FabricWorld {
 public:
  Result<std::unique_ptr<Transport>> connect(const std::string& settings) override {
    MpiOptions options;
    options.settings = settings;
    options.connect_timeout = std::chrono::seconds(30);
    return connect_mpi(options);
  }
};

class GlooWorld final : public FabricWorld {
 public:
  GlooWorld(int rank, int world_size, const std::string& folder) {
    options_.rank = rank;
    options_.world_size = world_size;
    options_.rendezvous_folder = folder;
    options_.host = "127.0.0.1";
    options_.connect_timeout = std::chrono::seconds(30);
  }
  Result<std::unique_ptr<Transport>> connect(const std::string& settings) override {
    options_.job = "mesh-" + std::to_string(++meshes_);
    options_.settings = settings;
    return connect_gloo(options_);
  }

 private:
  GlooOptions options_;
  int meshes_ = 0;
};

// Rank 0 prints as usual; of the other ranks only failures are worth a line.
class FailurePrinter final : public ::testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}

 private:
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank_, result.file_name(), result.line_number(),
                 result.message());
  }
  int rank_;
};

int run_as(int rank) {
  if (rank != 0) {
    ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(rank));
  }
  return RUN_ALL_TESTS();
}

int run_under_mpirun() {
  the_world = std::make_unique<MpiWorld>();
  return run_as(connect_world()->rank());
}

int fork_gloo_ranks(int world_size) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("deltawire-fabrics-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::vector<pid_t> children;
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    the_world = std::make_unique<GlooWorld>(rank, world_size, folder.string());
    const int status = run_as(rank);
    std::fflush(nullptr);
    std::exit(status);  // with the checks for leaks that sanitizers make then
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128);
  }
  std::filesystem::remove_all(folder);
  return worst;
}

}  // namespace

FabricWorld& fabric_world() {
  return *the_world;
}

std::unique_ptr<Transport> connect_world(const std::string& settings) {
  auto transport = fabric_world().connect(settings);
  if (transport) return std::move(*transport);
  std::fprintf(stderr, "can't connect: %s\n", transport.error().text().c_str());
  std::_Exit(3);
}

}  // namespace deltawire

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::string fabric;
  int ranks = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--fabric=")) fabric = argument.substr(9);
    if (argument.starts_with("--ranks=")) ranks = std::atoi(argv[i] + 8);
  }
  if (fabric == "mpi") return deltawire::run_under_mpirun();
  if (fabric == "gloo" && ranks > 0) return deltawire::fork_gloo_ranks(ranks);
  std::fprintf(stderr, "usage: %s --fabric=mpi | --fabric=gloo --ranks=N\n", argv[0]);
  return 2;
}
