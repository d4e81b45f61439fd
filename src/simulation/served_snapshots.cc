#include <algorithm>
#include <utility>

#include "simulation/served_run.h"

namespace deltawire::simulation {
namespace {

using namespace std::chrono_literals;

// Of the disk, for a snapshot.
constexpr int kCalls = 12;

// What a full disk says; the program goes on after it, and after nothing else.
bool tells_no_room(const Error& error) {
  return error.code == ErrorCode::kIo && (error.message.ends_with("No space left on device") ||
                                          error.message.ends_with("Disk quota exceeded"));
}

}  // namespace

ServedSnapshots::ServedSnapshots(const ServedPlan& plan)
    : plan_(plan),
      dice_(plan.job.seed, 15),
      disks_(plan.job.seed, plan.job.world),
      own_(static_cast<std::size_t>(plan.job.world)) {}

SnapshotPlace ServedSnapshots::place(int rank) const {
  return {
      .folder = Disks::folder(rank), .rank = rank, .settings = plan_.options.push, .common = of(rank).common};
}

std::set<std::uint64_t> ServedSnapshots::kept_of(std::set<std::uint64_t> steps, const Own& own) {
  const bool has_common = own.common && steps.contains(*own.common);
  while (steps.size() > static_cast<std::size_t>(SnapshotPlace{}.kept)) steps.erase(steps.begin());
  if (has_common) steps.insert(*own.common);
  return steps;
}

void ServedSnapshots::begin(std::size_t start) {
  start_ = start;
  missed_.clear();
  for (Own& own : own_) {
    own.taken = 0;
    own.common.reset();
  }
}

Disks::Use ServedSnapshots::use(Job& job) {
  return {disks_, [this, &job](int rank) {
            job.scheduler().sleep(dice_.time_between(1us, plan_.writing / kCalls));
            return !job.log(rank).is_dead;
          }};
}

const DiskFault* ServedSnapshots::fault_of(int rank) const {
  const DiskFault& fault = plan_.disk_faults[start_];
  const std::uint64_t number = of(rank).taken;
  const bool is_due = fault.rank == rank && number >= fault.from && number - fault.from < fault.count;
  return is_due ? &fault : nullptr;
}

std::string ServedSnapshots::write(Job& job, int rank, std::uint64_t step, std::vector<std::byte> state,
                                   bool is_first) {
  Own& own = of(rank);
  const DiskFault* const fault = is_first ? nullptr : fault_of(rank);
  if (!is_first) ++own.taken;
  const NoRoom no_room = fault != nullptr ? fault->no_room : NoRoom::kNowhere;
  disks_.set_room(rank, no_room);
  if (fault != nullptr && no_room == NoRoom::kNowhere) disks_.lie(rank);
  const std::vector<std::string> before = disks_.names(rank);
  const auto tried = own.tried.emplace(step, state);
  const Status written = write_snapshot(place(rank), step, state);
  std::set<std::uint64_t> kept = own.found;
  kept.insert(step);
  kept = kept_of(std::move(kept), own);
  if (job.log(rank).is_dead) {
    // It may have been in place, and the oldest gone.
    std::erase_if(own.acknowledged, [&](std::uint64_t each) { return !kept.contains(each); });
    return {};
  }
  if (!written && no_room != NoRoom::kNowhere) {
    job.note("rank " + std::to_string(rank) + " goes on: " + written.error().message);
    own.tried.erase(tried);
    if (rank < plan_.options.servers) missed_.insert(step);
    return check_full(rank, step, written.error(), before);
  }
  if (!written) return "a snapshot is not written: " + written.error().message;
  if (no_room != NoRoom::kNowhere) return "a snapshot is said to be on a disk that has no room for it";
  // One that the disk only says to have replaced may come back.
  if (!disks_.lies(rank)) own.tried.erase(own.tried.lower_bound(step), tried);
  own.acknowledged.insert(step);
  own.found = std::move(kept);
  std::erase_if(own.acknowledged, [&](std::uint64_t each) { return !own.found.contains(each); });
  const std::size_t most = static_cast<std::size_t>(SnapshotPlace{}.kept) + (own.common ? 1 : 0);
  if (disks_.names(rank).size() > most) return "more files are left than the snapshots that are kept";
  return {};
}

// What is there is what was there.
std::string ServedSnapshots::check_full(int rank, std::uint64_t step, const Error& error,
                                        const std::vector<std::string>& names) const {
  const std::string file =
      Disks::folder(rank) + "/rank-" + std::to_string(rank) + ".step-" + std::to_string(step) + ".snapshot";
  if (!tells_no_room(error) || !error.message.starts_with(file)) {
    return "a full disk is told as '" + error.message + "'";
  }
  return disks_.names(rank) == names ? "" : "a snapshot without room has changed what is on the disk";
}

std::string ServedSnapshots::read(Job& job, int rank, std::uint64_t step, std::vector<std::byte>& state) {
  auto read = read_snapshot(place(rank), step);
  if (job.log(rank).is_dead) return {};
  if (!read) return "a snapshot that was found is not read: " + read.error().message;
  state = *std::move(read);
  return {};
}

std::string ServedSnapshots::drop_after(Job& job, int rank, std::uint64_t step) {
  Own& own = of(rank);
  for (std::set<std::uint64_t>* const steps : {&own.acknowledged, &own.found}) {
    steps->erase(steps->upper_bound(step), steps->end());
  }
  const Status dropped = drop_snapshots_after(place(rank), step);
  if (job.log(rank).is_dead) return {};
  if (!dropped) return "later snapshots are not dropped: " + dropped.error().message;
  own.tried.erase(own.tried.upper_bound(step), own.tried.end());
  own.common = step;
  return {};
}

std::string ServedSnapshots::end(const Job& job) {
  if (disks_.open_count() > 0) return std::to_string(disks_.open_count()) + " files are still open";
  for (int rank = 0; rank < plan_.job.world; ++rank) {
    if (job.logs()[static_cast<std::size_t>(rank)].has_lost_power) {
      has_lied_ = has_lied_ || (disks_.lies(rank) && rank < plan_.options.servers);
      if (disks_.lies(rank)) of(rank).acknowledged.clear();
      disks_.lose_power(rank);
    }
    disks_.come_true(rank);
  }
  const Disks::Use at_once(disks_, {});
  for (int rank = 0; rank < plan_.job.world; ++rank) {
    if (std::string broken = look_at(rank); !broken.empty())
      return RankNames::plain().of(rank) + ": " + broken;
  }
  return {};
}

// What is acknowledged is there, and what is there is what was written.
std::string ServedSnapshots::look_at(int rank) {
  Own& own = of(rank);
  const auto found = find_snapshots(place(rank));
  if (!found) return "its snapshots are not found: " + found.error().message;
  own.found = {found->begin(), found->end()};
  for (const std::uint64_t step : own.acknowledged) {
    if (!own.found.contains(step)) return "the snapshot of step " + std::to_string(step) + " is lost";
  }
  for (const std::uint64_t step : own.found) {
    const auto state = read_snapshot(place(rank), step);
    const auto [first, end] = own.tried.equal_range(step);
    if (!state || std::none_of(first, end, [&](const auto& tried) { return tried.second == *state; })) {
      return "the snapshot of step " + std::to_string(step) + " is not what was written";
    }
  }
  return {};
}

bool ServedSnapshots::has(int rank, std::uint64_t step) const {
  return of(rank).found.contains(step);
}

std::optional<std::uint64_t> ServedSnapshots::newest_common_step() const {
  std::optional<std::uint64_t> newest;
  bool has_any = false;
  for (int server = 0; server < plan_.options.servers; ++server) {
    for (const std::uint64_t step : of(server).found) {
      has_any = has_any || step > 0;
      bool all_have = true;
      for (int other = 0; other < plan_.options.servers; ++other) all_have = all_have && has(other, step);
      if (all_have) newest = std::max(newest.value_or(0), step);
    }
  }
  return newest || has_any ? newest : 0;
}

std::uint64_t ServedSnapshots::missed_until(std::uint64_t made) const {
  std::uint64_t missed = 0;
  for (std::uint64_t step = made - made % plan_.every; step > 0; step -= plan_.every) {
    if (missed_.contains(step)) {
      ++missed;
    } else if (step != made) {
      break;
    }
  }
  return missed;
}

}  // namespace deltawire::simulation
