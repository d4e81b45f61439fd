// The snapshots of a parameter server's job in a simulation: the library's code writes and reads them on
// simulated disks, and what it promises of them is checked at each call and between two starts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "deltawire/snapshot.h"
#include "simulation/disks.h"
#include "simulation/job.h"
#include "simulation/served_plan.h"

namespace deltawire::simulation {

class ServedSnapshots {
 public:
  explicit ServedSnapshots(const ServedPlan& plan);

  // A start of the job; while it runs, its ranks' calls take time.
  void begin(std::size_t start);
  Disks::Use use(Job& job);
  // It is over: machines that have lost their power begin anew. Returns what promise was broken, or nothing.
  std::string end(const Job& job);

  // For a rank. Each returns what promise it broke, or nothing. `is_first`: without it no server begins.
  std::string write(Job& job, int rank, std::uint64_t step, std::vector<std::byte> state, bool is_first);
  std::string read(Job& job, int rank, std::uint64_t step, std::vector<std::byte>& state);
  std::string drop_after(Job& job, int rank, std::uint64_t step);

  // After end(). Whether the rank has a snapshot of the step.
  bool has(int rank, std::uint64_t step) const;
  // The step from which all go on (docs/guides/parameter-server.md, "Snapshots"); none: they refuse.
  std::optional<std::uint64_t> newest_common_step() const;
  // How many of the last steps at which all servers were to have a snapshot, of those up to `made`, some
  // server had no room for; and whether a disk has lost what it said it had flushed.
  std::uint64_t missed_until(std::uint64_t made) const;
  bool has_lied() const noexcept { return has_lied_; }

 private:
  // By step; where one is written again, any of them may be there.
  using States = std::multimap<std::uint64_t, std::vector<std::byte>>;
  struct Own {
    States tried;                          // what has been written, or begun
    std::set<std::uint64_t> acknowledged;  // what must be there
    std::set<std::uint64_t> found;         // what is there, as far as it knows
    std::optional<std::uint64_t> common;   // from which this start has gone on
    std::uint64_t taken = 0;               // in this start, but the first
  };

  Own& of(int rank) noexcept { return own_[static_cast<std::size_t>(rank)]; }
  const Own& of(int rank) const noexcept { return own_[static_cast<std::size_t>(rank)]; }
  SnapshotPlace place(int rank) const;
  // What is there of these once another one was written.
  static std::set<std::uint64_t> kept_of(std::set<std::uint64_t> steps, const Own& own);
  const DiskFault* fault_of(int rank) const;
  std::string look_at(int rank);
  std::string check_full(int rank, std::uint64_t step, const Error& error,
                         const std::vector<std::string>& names) const;

  const ServedPlan& plan_;
  Dice dice_;
  Disks disks_;
  std::vector<Own> own_;
  std::size_t start_ = 0;
  std::set<std::uint64_t> missed_;  // steps of this start
  bool has_lied_ = false;
};

}  // namespace deltawire::simulation
