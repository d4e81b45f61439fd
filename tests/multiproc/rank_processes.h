// Ranks as forked processes that meet over TCP on 127.0.0.1 and leave what happened in shared memory.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "deltawire/connect.h"
#include "deltawire/reducer.h"

namespace deltawire {

inline constexpr int kMaxRanks = 8;

// One rank's traces. Plain data: it lies in memory that the processes share.
struct RankRecord {
  std::atomic<std::uint32_t> port;
  std::atomic<std::uint32_t> steps_done;
  std::atomic<std::uint64_t> digest;
  std::atomic<int> failed;
  std::atomic<int> code;
  std::atomic<int> suspect;
  std::atomic<std::uint64_t> last_committed_step;
  std::atomic<std::int64_t> failed_at_ms;  // on the steady clock, which all processes of a machine share
  std::array<char, 512> message;
};

struct Arena {
  std::array<RankRecord, kMaxRanks> ranks;
};

inline std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
}

struct RankContext {
  int rank;
  int world_size;
  Arena& arena;

  RankRecord& own() const { return arena.ranks[static_cast<std::size_t>(rank)]; }
  void record(const Error& error) const;
};

class RankProcesses {
 public:
  using Body = std::function<void(const RankContext&)>;

  // Forks the ranks; each runs `body` and exits.
  RankProcesses(int world_size, const Body& body);
  ~RankProcesses();  // kills and reaps what is left
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  RankRecord& record(int rank) { return arena_->ranks[static_cast<std::size_t>(rank)]; }
  void send_signal(int rank, int signal) const;
  // Waits until the rank has done `steps` steps; false after 30 s.
  bool wait_steps(int rank, std::uint32_t steps);
  // Waits until the rank's process has ended; false after `timeout`.
  bool wait_exit(int rank, std::chrono::seconds timeout);

 private:
  int world_size_;
  Arena* arena_;
  std::vector<pid_t> pids_;
};

// Listens, tells the others the port, connects.
Result<std::unique_ptr<Transport>> meet(const RankContext& context, const std::string& settings,
                                        const LinkOptions& link = {});

}  // namespace deltawire
