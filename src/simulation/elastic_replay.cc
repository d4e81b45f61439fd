#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "simulation/elastic_run.h"
#include "transport/mesh/engine.h"

namespace deltawire::simulation {
namespace {

using namespace std::chrono_literals;

// The steps of an epoch, as its members have seen them.
class Epoch {
 public:
  Epoch(const ElasticRun& run, const ElasticCommit& first)
      : run_(run), members_(first.members), first_(first.step), last_(first.step), before_(first.before) {}

  void add(const ElasticCommit& commit) {
    seen_[{commit.step, commit.id}] = &commit;
    last_ = std::max(last_, commit.step);
    if (commit.step < first_) before_ = commit.before;
    first_ = std::min(first_, commit.step);
  }

  std::string compare() {
    if (!find_base()) return what() + " begins from what no process has seen";
    static Trace silent(false);
    Scheduler scheduler(0, {1us, 1us, 1}, silent);
    Network network(0, scheduler, silent);
    auto links = network.connect(world(), {20us, 2us, 1e9, true}, 1'000'000);
    for (int rank = 0; rank < world(); ++rank) {
      scheduler.start_on(rank, [this, rank, &links, &scheduler] {
        Engine transport({rank, 0}, std::move(links[static_cast<std::size_t>(rank)]), nullptr, GuardedFd());
        live(rank, transport, scheduler);
      });
    }
    const std::string stuck = scheduler.run(100'000'000);
    return broken_.empty() ? stuck : broken_;
  }

 private:
  int world() const { return static_cast<int>(members_.size()); }
  std::string what() const {
    std::string told = "the epoch of members";
    for (const int id : members_) told += " " + std::to_string(id);
    return told + ", from step " + std::to_string(first_) + " on,";
  }

  // Those who have seen the step before, whose residuals it begins with.
  bool find_base() {
    if (first_ == 0) return true;
    for (const ElasticCommit& each : run_.commits()) {
      if (each.step + 1 != first_ || each.after != before_) continue;
      base_ = each.members;
      held_[each.id] = &each.state;
    }
    const auto has_state = [this](int id) {
      return held_.contains(id) || std::ranges::find(base_, id) == base_.end();
    };
    return !base_.empty() && std::ranges::all_of(members_, has_state);
  }

  Status load(int rank, Reducer& reducer) {
    if (base_.empty()) return {};
    if (base_ == members_) return reducer.load(*held_[members_[static_cast<std::size_t>(rank)]]);
    std::vector<Bytes> states;
    for (const int id : base_) {
      const bool goes_on = std::ranges::find(members_, id) != members_.end();
      states.push_back(goes_on ? Bytes(*held_[id]) : Bytes{});
    }
    std::vector<int> continued;
    for (const int id : members_) {
      const auto found = std::ranges::find(base_, id);
      continued.push_back(found == base_.end() ? -1 : static_cast<int>(found - base_.begin()));
    }
    Gradient tensors = gradient(0, 0);
    const std::vector<Named> all = named(tensors);
    return reducer.load_resized(
        {.states = states, .tensors = all, .world = world(), .rank = rank, .continued = continued});
  }

  void live(int rank, Transport& transport, Scheduler& scheduler) {
    ReducerOptions options;
    options.threads = 1;
    const auto reducer = *make_reducer(run_.plan().spec, options);
    Status done = load(rank, *reducer);
    for (std::uint64_t number = first_; done && number <= last_; ++number) {
      done = step(rank, number, *reducer, transport, scheduler.now() + 30s);
    }
    if (!done) breaks("can't be repeated: " + done.error().text());
  }

  Status step(int rank, std::uint64_t number, Reducer& reducer, Transport& transport, Deadline deadline) {
    const int id = members_[static_cast<std::size_t>(rank)];
    Gradient tensors = gradient(id, number);
    const std::vector<Named> all = named(tensors);
    const std::size_t buckets = run_.plan().buckets;
    for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
      const std::size_t first = all.size() * bucket / buckets;
      const std::size_t end = all.size() * (bucket + 1) / buckets;
      const Step step{number, static_cast<std::uint32_t>(bucket), bucket + 1 == buckets};
      const auto report =
          reducer.all_reduce(std::span(all).subspan(first, end - first), step, transport, deadline);
      if (!report) return forward_error(report);
    }
    const auto seen = seen_.find({number, id});
    if (seen == seen_.end()) return {};
    const std::string of_step = " of step " + std::to_string(number) + " of member " + std::to_string(id);
    if (seen->second->means != hash_of(tensors)) breaks("had other means" + of_step);
    const auto state = reducer.save();
    if (!state) return forward_error(state);
    if (*state != seen->second->state) breaks("had other residuals" + of_step);
    return {};
  }

  void breaks(const std::string& text) {
    if (broken_.empty()) broken_ = what() + " " + text;
  }

  const ElasticRun& run_;
  const std::vector<int> members_;
  std::uint64_t first_;
  std::uint64_t last_;
  std::uint64_t before_;                                                // names the steps before it
  std::map<std::pair<std::uint64_t, int>, const ElasticCommit*> seen_;  // by step and id
  std::vector<int> base_;                                               // ids
  std::map<int, const std::vector<std::byte>*> held_;                   // by id
  std::string broken_;
};

}  // namespace

std::string differs_from_undisturbed(const ElasticRun& run) {
  std::map<std::pair<std::uint32_t, std::vector<int>>, Epoch> epochs;
  for (const ElasticCommit& each : run.commits()) {
    epochs.try_emplace({each.epoch, each.members}, run, each).first->second.add(each);
  }
  for (auto& [name, epoch] : epochs) {
    if (std::string broken = epoch.compare(); !broken.empty())
      return "epoch " + std::to_string(name.first) + ": " + broken;
  }
  return {};
}

}  // namespace deltawire::simulation
