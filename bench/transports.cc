// How long one round takes over TCP, Gloo and MPI: every rank sends a message to every other rank and
// receives one from each. All transports of a run live in the same processes and take turns, so that they
// meet the same machine. What arrives is checked before anything is timed.
//
// usage: transports [RANKS]     4 ranks on this machine, if not told otherwise; under mpirun where there is
// MPI
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deltawire/connect.h"
#include "deltawire/connect_gloo.h"
#include "deltawire/connect_mpi.h"

namespace deltawire {
namespace {

constexpr int kBlocks = 10;
constexpr std::chrono::seconds kPatience{60};

struct Workload {
  const char* name;
  std::size_t message_bytes;
  int rounds;  // per block
};
constexpr Workload kWorkloads[] = {
    {"1 KB", 1024, 100}, {"512 KB", 512 << 10, 10}, {"8 MB", std::size_t{8} << 20, 2}};

struct Contender {
  const char* name;
  std::unique_ptr<Transport> transport;
  std::vector<double> seconds;  // of each round
  double cpu_seconds = 0;
};

[[noreturn]] void give_up(const std::string& message) {
  std::fprintf(stderr, "transports: %s\n", message.c_str());
  std::exit(1);
}

std::unique_ptr<Transport> taken(Result<std::unique_ptr<Transport>> connected) {
  if (!connected) give_up(connected.error().message);
  return std::move(*connected);
}

// Ports are told in files of the folder that the ranks share.
std::unique_ptr<Transport> connect_tcp_ranks(int rank, int world_size, const std::filesystem::path& folder) {
  auto listener = listen_tcp("127.0.0.1");
  if (!listener) give_up(listener.error().message);
  const auto port_file = [&folder](int of) { return folder / ("port-" + std::to_string(of)); };
  const std::filesystem::path written = port_file(rank).string() + ".new";
  std::ofstream(written) << (*listener)->endpoint().port;
  std::filesystem::rename(written, port_file(rank));
  MeshOptions options;
  options.rank = rank;
  options.world_size = world_size;
  for (int peer = 0; peer < world_size; ++peer) {
    while (!std::filesystem::exists(port_file(peer))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::uint16_t port = 0;
    std::ifstream(port_file(peer)) >> port;
    options.endpoints.push_back({"127.0.0.1", port});
  }
  return taken(connect_tcp(std::move(*listener), options));
}

std::unique_ptr<Transport> connect_gloo_ranks(int rank, int world_size, const std::filesystem::path& folder) {
  GlooOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.rendezvous_folder = folder.string();
  options.job = "bench";
  options.host = "127.0.0.1";
  return taken(connect_gloo(options));
}

std::byte fill_of(int from, int to, std::size_t i) {
  return static_cast<std::byte>(static_cast<std::size_t>(from) * 31 + static_cast<std::size_t>(to) * 7 + i);
}

// The buffers of one rank for one workload.
struct Buffers {
  Buffers(const Transport& self, std::size_t bytes)
      : sent(static_cast<std::size_t>(self.world_size())), got(sent.size()) {
    for (int peer = 0; peer < self.world_size(); ++peer) {
      const auto at = static_cast<std::size_t>(peer);
      got[at].resize(bytes);
      sent[at].resize(bytes);
      for (std::size_t i = 0; i < bytes; ++i) sent[at][i] = fill_of(self.rank(), peer, i);
    }
  }
  bool right(const Transport& self) const {
    for (int peer = 0; peer < self.world_size(); ++peer) {
      const auto& bytes = got[static_cast<std::size_t>(peer)];
      for (std::size_t i = 0; peer != self.rank() && i < bytes.size(); ++i) {
        if (bytes[i] != fill_of(peer, self.rank(), i)) return false;
      }
    }
    return true;
  }
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::vector<std::byte>> got;
};

void play_round(Transport& self, Buffers& buffers) {
  std::vector<Handle> handles;
  for (int step = 1; step < self.world_size(); ++step) {
    const int from = (self.rank() + self.world_size() - step) % self.world_size();
    handles.push_back(self.post_recv(from, 1, buffers.got[static_cast<std::size_t>(from)]));
  }
  for (int step = 1; step < self.world_size(); ++step) {
    const int to = (self.rank() + step) % self.world_size();
    const Bytes piece(buffers.sent[static_cast<std::size_t>(to)]);
    handles.push_back(self.post_send(to, 1, {&piece, 1}));
  }
  for (const Handle handle : handles) {
    const auto moved = self.wait(handle, Clock::now() + kPatience);
    if (!moved) give_up(moved.error().message);
  }
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void measure_block(Contender& contender, const Workload& workload, Buffers& buffers) {
  play_round(*contender.transport, buffers);  // after the others' turn: all ranks meet, caches are warm
  const double cpu_before = cpu_seconds();
  for (int round = 0; round < workload.rounds; ++round) {
    const auto begin = Clock::now();
    play_round(*contender.transport, buffers);
    contender.seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  contender.cpu_seconds += cpu_seconds() - cpu_before;
}

void print_row(const Workload& workload, Contender& contender) {
  std::ranges::sort(contender.seconds);
  const std::size_t count = contender.seconds.size();
  const double median = contender.seconds[count / 2];
  const double sent = static_cast<double>(workload.message_bytes) * (contender.transport->world_size() - 1);
  std::printf("| %-6s | %-4s | %8.3f | %8.3f | %7.0f | %8.3f |\n", workload.name, contender.name,
              1e3 * median, 1e3 * contender.seconds[count * 9 / 10], 1e-6 * sent / median,
              1e3 * contender.cpu_seconds / static_cast<double>(count));
}

void compare(std::vector<Contender>& contenders) {
  const bool first = contenders.front().transport->rank() == 0;
  if (first) {
    std::printf("%d ranks; of rank 0; MB/s = sent to all other ranks / median\n",
                contenders.front().transport->world_size());
    std::printf(
        "| message | over | median ms | 90 %% ms | MB/s | CPU ms per round |\n|---|---|---|---|---|---|\n");
  }
  for (const Workload& workload : kWorkloads) {
    Buffers buffers(*contenders.front().transport, workload.message_bytes);
    for (Contender& contender : contenders) {
      for (auto& bytes : buffers.got) std::ranges::fill(bytes, std::byte{0});
      play_round(*contender.transport, buffers);
      if (!buffers.right(*contender.transport))
        give_up(std::string(contender.name) + " delivered other bytes");
      contender.seconds.clear();
      contender.cpu_seconds = 0;
    }
    for (int block = 0; block < kBlocks; ++block) {
      for (Contender& contender : contenders) measure_block(contender, workload, buffers);
    }
    for (Contender& contender : contenders) {
      if (first) print_row(workload, contender);
    }
  }
}

// `rank` and `world_size` are MPI's where the ranks are.
int run_rank(int rank, int world_size, const std::filesystem::path& folder, bool under_mpirun) {
  std::unique_ptr<Transport> mpi;
  if (under_mpirun) {
    mpi = taken(connect_mpi());
    rank = mpi->rank();
    world_size = mpi->world_size();
  }
  std::vector<Contender> contenders;
  contenders.push_back({"tcp", connect_tcp_ranks(rank, world_size, folder), {}});
  if (has_gloo()) contenders.push_back({"gloo", connect_gloo_ranks(rank, world_size, folder), {}});
  if (mpi) contenders.push_back({"mpi", std::move(mpi), {}});
  compare(contenders);
  return 0;
}

int fork_ranks(int world_size, const std::filesystem::path& folder) {
  for (int rank = 0; rank < world_size; ++rank) {
    if (::fork() == 0) std::exit(run_rank(rank, world_size, folder, false));
  }
  int worst = 0;
  for (int status = 0; ::wait(&status) > 0;) worst = std::max(worst, status == 0 ? 0 : 1);
  return worst;
}

int launch(int world_size, const std::string& self) {
  std::string folder = (std::filesystem::temp_directory_path() / "deltawire-bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) give_up("no temporary folder");
  const bool mpi = has_mpi() && std::system("command -v mpirun >/dev/null") == 0;
  if (!has_gloo()) std::printf("gloo: left out, built without it\n");
  if (!mpi) std::printf("mpi: left out, built without it or no mpirun\n");
  std::fflush(stdout);
  const int status = mpi ? std::system(("mpirun --oversubscribe --allow-run-as-root --bind-to none -n " +
                                        std::to_string(world_size) + " '" + self + "' --in '" + folder + "'")
                                           .c_str())
                         : fork_ranks(world_size, folder);
  std::filesystem::remove_all(folder);
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace deltawire

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--in") return deltawire::run_rank(0, 0, argv[2], true);
  const int world_size = argc > 1 ? std::atoi(argv[1]) : 4;
  if (argc > 2 || world_size < 2 || world_size > 64) {
    std::fprintf(stderr, "usage: %s [RANKS]     2 to 64\n", argv[0]);
    return 2;
  }
  return deltawire::launch(world_size, std::filesystem::canonical("/proc/self/exe").string());
}
