// How long one round takes over TCP, Gloo and MPI: every rank sends a message to every other rank and
// receives one from each. All contenders of a run live in the same processes and take turns, so that they
// meet the same machine. What arrives is checked before anything is timed.
//
// usage: transports [OPTION...]      4 ranks on this machine (under mpirun where there is MPI)
//   --ranks=N                        2 to 64
//   --over=NAME,...                  of tcp (within a machine shared memory), sockets (without that: Unix
//                                    sockets, and TCP with DELTAWIRE_LOCAL_SOCKETS=off), gloo (Gloo's own
//                                    sends and receives),
//                                    gloo-mesh (our engine over Gloo's packets), mpi-mesh; the first is what
//                                    others are compared with
//   --bytes=N,...                    of each message
//   --seconds=S                      about how long each contender and size takes
//   --rank=R --folder=F --host=H     this is one rank, listening on H; all ranks meet in folder F
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deltawire/connect_gloo.h"
#include "deltawire/connect_mpi.h"
#include "rounds.h"

namespace deltawire::bench {
namespace {

constexpr int kBlocks = 15;

struct Settings {
  Meeting meeting{-1, 4, {}, "127.0.0.1"};
  std::vector<std::string> over;
  std::vector<std::size_t> bytes{1024, 512 << 10, 2 << 20, 8 << 20};
  double seconds = 1.5;
};

struct Contender {
  std::string name;
  std::unique_ptr<Rounds> rounds;
  std::vector<double> seconds;        // of each round
  std::vector<double> block_medians;  // seconds
  double cpu_seconds = 0;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double timed(Rounds& rounds) {
  const auto begin = std::chrono::steady_clock::now();
  rounds.play();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void measure_block(Contender& contender, int rounds) {
  contender.rounds->play();  // after the others' turn: all ranks meet, caches are warm
  const double cpu_before = cpu_seconds();
  std::vector<double> block;
  for (int round = 0; round < rounds; ++round) block.push_back(timed(*contender.rounds));
  contender.cpu_seconds += cpu_seconds() - cpu_before;
  contender.block_medians.push_back(median(block));
  contender.seconds.insert(contender.seconds.end(), block.begin(), block.end());
}

void print_row(std::size_t bytes, Contender& contender, const Contender& first, int world_size) {
  std::ranges::sort(contender.seconds);
  const std::size_t count = contender.seconds.size();
  const double middle = contender.seconds[count / 2];
  std::vector<double> ratios;
  for (std::size_t i = 0; i < contender.block_medians.size(); ++i) {
    ratios.push_back(contender.block_medians[i] / first.block_medians[i]);
  }
  const double sent = static_cast<double>(bytes) * (world_size - 1);
  std::printf("| %9zu | %-9s | %8.3f | %8.3f | %8.3f | %6.2f | %6.0f | %8.3f |\n", bytes,
              contender.name.c_str(), 1e3 * contender.seconds.front(), 1e3 * middle,
              1e3 * contender.seconds[count * 9 / 10], median(ratios), 1e-6 * sent / middle,
              1e3 * contender.cpu_seconds / static_cast<double>(count));
}

// Rounds in a block: alike on all ranks, so from what is alike on all of them.
int rounds_of(std::size_t bytes, double seconds) {
  const double guess = 100e-6 + 10e-9 * static_cast<double>(bytes);
  return std::max(2, static_cast<int>(seconds / kBlocks / guess));
}

void compare(std::vector<Contender>& contenders, const Settings& settings) {
  const Meeting& meeting = settings.meeting;
  if (meeting.rank == 0) {
    std::printf(
        "%d ranks. Of rank 0; ratio = time of a round / time of one over %s, the median of %d blocks; "
        "MB/s = sent to all other ranks / median\n",
        meeting.world_size, contenders.front().name.c_str(), kBlocks);
    std::printf(
        "| message B | over      |  best ms |median ms |  90 %% ms |  ratio |   MB/s | CPU ms per "
        "round |\n|---|---|---|---|---|---|---|---|\n");
  }
  for (const std::size_t bytes : settings.bytes) {
    Messages messages(meeting.rank, meeting.world_size, bytes);
    for (Contender& contender : contenders) {
      messages.forget_arrived();
      contender.rounds->prepare(messages);
      contender.rounds->play();
      if (!messages.arrived()) give_up(contender.name + " delivered other bytes");
      contender.seconds.clear();
      contender.block_medians.clear();
      contender.cpu_seconds = 0;
    }
    for (int block = 0; block < kBlocks; ++block) {
      for (Contender& contender : contenders) measure_block(contender, rounds_of(bytes, settings.seconds));
    }
    for (Contender& contender : contenders) {
      if (meeting.rank == 0) print_row(bytes, contender, contenders.front(), meeting.world_size);
    }
    std::fflush(stdout);
  }
}

std::unique_ptr<Rounds> make_rounds(const std::string& name, const Meeting& meeting) {
  if (name == "tcp") return make_tcp_rounds(meeting, true);
  if (name == "sockets") return make_tcp_rounds(meeting, false);
  if (name == "gloo") return make_gloo_rounds(meeting);
  if (name == "gloo-mesh") return make_gloo_mesh_rounds(meeting);
  if (name == "mpi-mesh") return make_mpi_rounds();
  give_up("there is no \"" + name + "\"");
}

int run_rank(const Settings& settings) {
  std::vector<Contender> contenders;
  for (const std::string& name : settings.over) {
    contenders.push_back({name, make_rounds(name, settings.meeting), {}, {}, 0});
    if (!contenders.back().rounds) give_up(name + " is not in this build");
  }
  compare(contenders, settings);
  return 0;
}

int fork_ranks(Settings settings) {
  for (int rank = 0; rank < settings.meeting.world_size; ++rank) {
    settings.meeting.rank = rank;
    if (::fork() == 0) std::exit(run_rank(settings));
  }
  int worst = 0;
  for (int status = 0; ::wait(&status) > 0;) worst = std::max(worst, status == 0 ? 0 : 1);
  return worst;
}

std::string joined(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ",") + value;
  return text;
}

int run_under_mpirun(const Settings& settings) {
  std::ostringstream command;
  command << "mpirun --oversubscribe --allow-run-as-root --bind-to none -n " << settings.meeting.world_size
          << " '" << std::filesystem::canonical("/proc/self/exe").string() << "' --rank=mpi --folder='"
          << settings.meeting.folder.string() << "' --ranks=" << settings.meeting.world_size
          << " --seconds=" << settings.seconds << " --over=" << joined(settings.over) << " --bytes=";
  for (const std::size_t bytes : settings.bytes) command << bytes << ",";
  return std::system(command.str().c_str());
}

int launch(Settings settings) {
  std::string folder = (std::filesystem::temp_directory_path() / "deltawire-bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) give_up("no temporary folder");
  settings.meeting.folder = folder;
  const bool mpi = has_mpi() && std::system("command -v mpirun >/dev/null") == 0;
  if (settings.over.empty()) {
    settings.over = {"tcp"};
    if (has_gloo()) settings.over.insert(settings.over.end(), {"gloo", "gloo-mesh"});
    if (mpi) settings.over.emplace_back("mpi-mesh");
    if (!has_gloo()) std::printf("gloo: left out, built without it\n");
    if (!mpi) std::printf("mpi: left out, built without it or no mpirun\n");
    std::fflush(stdout);
  }
  const bool under_mpirun = std::ranges::count(settings.over, "mpi-mesh") > 0;
  const int status = under_mpirun ? run_under_mpirun(settings) : fork_ranks(settings);
  std::filesystem::remove_all(folder);
  return status == 0 ? 0 : 1;
}

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

// Under mpirun the rank's number is in what every MPI launcher of this kind tells its processes.
int rank_in_mpi() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr) give_up("mpirun told no rank (OMPI_COMM_WORLD_RANK)");
  return std::atoi(rank);
}

bool read_option(const std::string& name, const std::string& value, Settings& settings) {
  if (name == "--ranks") {
    settings.meeting.world_size = std::atoi(value.c_str());
  } else if (name == "--over") {
    settings.over = parts_of(value);
  } else if (name == "--bytes") {
    settings.bytes.clear();
    for (const std::string& part : parts_of(value)) {
      settings.bytes.push_back(std::strtoull(part.c_str(), nullptr, 10));
    }
  } else if (name == "--seconds") {
    settings.seconds = std::atof(value.c_str());
  } else if (name == "--rank") {
    settings.meeting.rank = value == "mpi" ? rank_in_mpi() : std::atoi(value.c_str());
  } else if (name == "--folder") {
    settings.meeting.folder = value;
  } else if (name == "--host") {
    settings.meeting.host = value;
  } else {
    return false;
  }
  return true;
}

}  // namespace

void give_up(const std::string& message) {
  std::fprintf(stderr, "transports: %s\n", message.c_str());
  std::exit(1);
}

Messages::Messages(int rank, int world_size, std::size_t bytes)
    : sent(static_cast<std::size_t>(world_size)), got(sent.size()), rank_(rank) {
  for (std::size_t peer = 0; peer < sent.size(); ++peer) {
    if (static_cast<int>(peer) == rank) continue;
    got[peer].resize(bytes);
    sent[peer].resize(bytes);
    for (std::size_t i = 0; i < bytes; ++i) sent[peer][i] = fill_of(static_cast<std::size_t>(rank), peer, i);
  }
}

std::byte Messages::fill_of(std::size_t from, std::size_t to, std::size_t i) {
  return static_cast<std::byte>(from * 31 + to * 7 + i);
}

bool Messages::arrived() const {
  for (std::size_t peer = 0; peer < got.size(); ++peer) {
    for (std::size_t i = 0; i < got[peer].size(); ++i) {
      if (got[peer][i] != fill_of(peer, static_cast<std::size_t>(rank_), i)) return false;
    }
  }
  return true;
}

void Messages::forget_arrived() {
  for (std::vector<std::byte>& bytes : got) std::ranges::fill(bytes, std::byte{0});
}

}  // namespace deltawire::bench

int main(int argc, char** argv) {
  using namespace deltawire::bench;
  Settings settings;
  bool understood = true;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t equals = std::min(argument.find('='), argument.size());
    const std::string value = equals < argument.size() ? argument.substr(equals + 1) : "";
    understood = understood && read_option(argument.substr(0, equals), value, settings);
  }
  const Meeting& meeting = settings.meeting;
  if (!understood || meeting.world_size < 2 || meeting.world_size > 64 || settings.bytes.empty()) {
    std::fprintf(stderr, "usage: %s [--ranks=N] [--over=NAME,...] [--bytes=N,...] [--seconds=S]\n", argv[0]);
    return 2;
  }
  return meeting.rank >= 0 ? run_rank(settings) : launch(settings);
}
