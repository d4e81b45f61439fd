#include "rank_processes.h"

#include <cstring>
#include <new>
#include <thread>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace deltawire {
namespace {

void sleep_briefly() {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace

void RankContext::record(const Error& error) const {
  RankRecord& mine = own();
  mine.failed_at_ms = now_ms();
  mine.code = static_cast<int>(error.code);
  mine.suspect = error.suspect;
  mine.last_committed_step = error.last_committed_step;
  std::strncpy(mine.message.data(), error.message.c_str(), mine.message.size() - 1);
  mine.failed = 1;
}

RankProcesses::RankProcesses(int world_size, const Body& body) : world_size_(world_size) {
  void* shared = mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  arena_ = new (shared) Arena{};
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      body(RankContext{rank, world_size_, *arena_});
      _exit(0);
    }
    pids_.push_back(pid);
  }
}

RankProcesses::~RankProcesses() {
  for (const pid_t pid : pids_) {
    if (pid <= 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  munmap(arena_, sizeof(Arena));
}

void RankProcesses::send_signal(int rank, int signal) const {
  kill(pids_[static_cast<std::size_t>(rank)], signal);
}

bool RankProcesses::wait_steps(int rank, std::uint32_t steps) {
  const Deadline end = Clock::now() + std::chrono::seconds(30);
  while (record(rank).steps_done < steps) {
    if (Clock::now() > end) return false;
    sleep_briefly();
  }
  return true;
}

bool RankProcesses::wait_exit(int rank, std::chrono::seconds timeout) {
  pid_t& pid = pids_[static_cast<std::size_t>(rank)];
  const Deadline end = Clock::now() + timeout;
  while (pid > 0) {
    if (waitpid(pid, nullptr, WNOHANG) == pid) {
      pid = 0;
    } else if (Clock::now() > end) {
      return false;
    } else {
      sleep_briefly();
    }
  }
  return true;
}

Result<std::unique_ptr<Transport>> meet(const RankContext& context, const std::string& settings,
                                        const LinkOptions& link) {
  auto listener = listen_tcp("127.0.0.1");
  if (!listener) return tl::unexpected<Error>(listener.error());
  MeshOptions options;
  options.rank = context.rank;
  options.world_size = context.world_size;
  options.settings = settings;
  options.connect_timeout = std::chrono::seconds(20);
  options.link = link;
  options.token.fill(std::byte{0x5A});
  context.own().port = (*listener)->endpoint().port;
  for (int rank = 0; rank < context.world_size; ++rank) {
    std::atomic<std::uint32_t>& port = context.arena.ranks[static_cast<std::size_t>(rank)].port;
    while (port == 0) sleep_briefly();
    options.endpoints.push_back({"127.0.0.1", static_cast<std::uint16_t>(port)});
  }
  return connect_tcp(std::move(*listener), options);
}

}  // namespace deltawire
