// Predicts a step's time: replays the exchange in each order that is worth trying, takes the fastest, and
// applies lower bounds.
//
// Orders are fixed beforehand. A simulation of the real thread, which handles whatever has arrived, could be
// slower on a faster link (Graham's anomaly), and then break-even would not be a single point.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "base/errors.h"
#include "base/spec_text.h"
#include "deltawire/planner.h"
#include "planner/exchange_models.h"

namespace deltawire {

namespace {

constexpr std::uint64_t kFirstBucketBytes = std::uint64_t{1} << 20;  // torch's kDefaultFirstBucketBytes
constexpr double kForwardShare = 1.0 / 3;

}  // namespace

std::uint64_t Workload::elements() const noexcept {
  std::uint64_t sum = 0;
  for (const PlanBucket& bucket : buckets) {
    for (const PlanTensor& tensor : bucket.tensors) sum += tensor.elements;
  }
  return sum;
}

CodingTime CodingTime::through(const Message& small, const Message& large) noexcept {
  const double least = std::max(0.0, small.seconds);
  const double most = std::max(0.0, large.seconds);
  const double whole = most / large.values;
  if (large.values <= small.values || most <= least) return {0, whole};
  const double each = std::min(whole, (most - least) / (large.values - small.values));
  return {std::max(0.0, least - each * small.values), each};
}

Workload ddp_workload(const std::vector<PlanTensor>& model, double compute_seconds,
                      std::uint64_t bucket_bytes) {
  Workload workload;
  workload.compute_seconds = compute_seconds;
  std::uint64_t bytes = 0;  // of the last bucket
  std::uint64_t limit = 0;
  double done = 0;  // tensors
  for (auto tensor = model.rbegin(); tensor != model.rend(); ++tensor) {
    if (bytes >= limit) {
      limit = workload.buckets.empty() ? std::min(kFirstBucketBytes, bucket_bytes) : bucket_bytes;
      workload.buckets.emplace_back();
      bytes = 0;
    }
    PlanBucket& bucket = workload.buckets.back();
    bucket.tensors.push_back(*tensor);
    bytes += 4 * tensor->elements;
    done += 1;
    const double backward = done / static_cast<double>(model.size());
    bucket.ready_seconds = compute_seconds * (kForwardShare + (1 - kForwardShare) * backward);
  }
  return workload;
}

namespace {

constexpr int kMostRanks = 1 << 16;
constexpr std::uint64_t kMostValues = std::uint64_t{1} << 40;  // beyond there is no memory to replay them

bool above_zero(double number) {
  return std::isfinite(number) && number > 0;
}

bool not_negative(double number) {
  return std::isfinite(number) && number >= 0;
}

struct Claim {
  bool holds;
  const char* what;
  double value;
  const char* range;
};

Claim duration(const char* what, double seconds) {
  return {not_negative(seconds), what, seconds, "0 seconds or more"};
}

Status check_all(const std::string& whose, std::span<const Claim> claims) {
  const auto broken = std::ranges::find(claims, false, &Claim::holds);
  if (broken == claims.end()) return {};
  return invalid(whose + broken->what + " is " + shortest_text(broken->value) + "; it must be " +
                 broken->range);
}

Status check_site(const Site& site) {
  const Machine& machine = site.machine;
  const Claim claims[] = {
      {site.ranks >= 2 && site.ranks <= kMostRanks, "ranks", static_cast<double>(site.ranks), "2 to 65,536"},
      {above_zero(site.link.up_bytes_per_second), "the link's rate up", site.link.up_bytes_per_second,
       "above 0 bytes a second"},
      {above_zero(site.link.down_bytes_per_second), "the link's rate down", site.link.down_bytes_per_second,
       "above 0 bytes a second"},
      duration("the link's latency", site.link.latency_seconds),
      {above_zero(machine.cores), "a rank's cores", machine.cores, "above 0"},
      {machine.coding_threads >= 1, "coding threads", static_cast<double>(machine.coding_threads),
       "1 or more"},
      duration("a message's time", machine.message_seconds),
      duration("a byte's time", machine.byte_seconds),
      duration("a byte's time from a device", machine.load_byte_seconds),
      duration("a byte's time to a device", machine.store_byte_seconds),
  };
  return check_all("", claims);
}

Status check_workload(const Workload& workload) {
  if (workload.elements() == 0) return invalid("the workload has no values");
  if (workload.elements() > kMostValues) {
    return invalid("the workload has more than 2^40 values");
  }
  const Claim computing[] = {duration("the time of computing", workload.compute_seconds)};
  if (Status held = check_all("", computing); !held) return held;
  double before = 0;
  for (std::size_t i = 0; i < workload.buckets.size(); ++i) {
    const double ready = workload.buckets[i].ready_seconds;
    const int bytes = workload.buckets[i].value_bytes;
    const Claim claims[] = {
        {not_negative(ready) && ready >= before, "readiness", ready,
         "0 seconds or more, and no earlier than the bucket's before it"},
        {bytes >= 1 && bytes <= 8, "bytes a value", static_cast<double>(bytes), "1 to 8"},
    };
    if (Status held = check_all("bucket " + std::to_string(i) + "'s ", claims); !held) return held;
    before = ready;
  }
  return {};
}

Status check_figures(const CodecFigures& figures) {
  const Claim claims[] = {
      {above_zero(figures.bits_per_value), "bits a value", figures.bits_per_value, "above 0"},
      duration("encoding's time a message", figures.encode.message_seconds),
      duration("encoding's time a value", figures.encode.value_seconds),
      duration("decoding's time a message", figures.decode.message_seconds),
      duration("decoding's time a value", figures.decode.value_seconds),
  };
  return check_all("\"" + figures.spec + "\": ", claims);
}

// Copies buckets from a device, one after another: each is ready when it has arrived. Returns how long the
// last one's means take back; those of the others return while it is exchanged.
double stage(std::vector<planner::BucketLoad>& loads, const Machine& machine) {
  assert(!loads.empty());
  double arrived = 0;
  for (planner::BucketLoad& load : loads) {
    arrived = std::max(arrived, load.ready) + load.total * load.value_bytes * machine.load_byte_seconds;
    load.ready = arrived;
  }
  return loads.back().total * loads.back().value_bytes * machine.store_byte_seconds;
}

Prediction prediction_of(const planner::Replayed& replayed, const Workload& workload, const Site& site,
                         double after_seconds) {
  const double cores = site.machine.cores;
  const double computed = workload.compute_seconds * std::min(1.0, cores);  // processor time
  const double worked = computed + replayed.coding_seconds + replayed.moving_seconds;
  Prediction made;
  made.step_seconds = std::max({workload.compute_seconds, replayed.end + after_seconds, worked / cores});
  made.exposed_seconds = made.step_seconds - workload.compute_seconds;
  made.wire_seconds = std::max(replayed.bytes_sent / site.link.up_bytes_per_second,
                               replayed.bytes_received / site.link.down_bytes_per_second);
  made.coding_seconds = replayed.coding_seconds;
  made.bytes_sent = replayed.bytes_sent;
  return made;
}

Result<planner::CodecOfBucket> chosen_of(const Workload& workload, const std::vector<CodecFigures>& codecs,
                                         const std::vector<std::size_t>& of_bucket) {
  if (of_bucket.size() != workload.buckets.size()) {
    return invalid(std::to_string(of_bucket.size()) + " choices for " +
                   std::to_string(workload.buckets.size()) + " buckets");
  }
  planner::CodecOfBucket chosen;
  for (const std::size_t index : of_bucket) {
    if (index >= codecs.size()) {
      return invalid("a bucket's choice is " + std::to_string(index) + "; there are " +
                     std::to_string(codecs.size()) + " codecs");
    }
    if (codecs[index].pattern != codecs[of_bucket.front()].pattern) {
      return invalid("buckets of one step have different patterns; they must have one");
    }
    chosen.push_back(&codecs[index]);
  }
  return chosen;
}

Status check_place(const Workload& workload, const Site& site) {
  return check_site(site).and_then([&] { return check_workload(workload); });
}

}  // namespace

Result<Prediction> predict(const Workload& workload, const Site& site, const CodecFigures& figures) {
  return predict_by_bucket(workload, site, {figures}, std::vector<std::size_t>(workload.buckets.size(), 0));
}

Result<Prediction> predict_by_bucket(const Workload& workload, const Site& site,
                                     const std::vector<CodecFigures>& codecs,
                                     const std::vector<std::size_t>& of_bucket) {
  RETURN_IF_ERROR(check_place(workload, site));
  for (const CodecFigures& figures : codecs) {
    RETURN_IF_ERROR(check_figures(figures));
  }
  ASSIGN_OR_RETURN(const auto chosen, chosen_of(workload, codecs, of_bucket));
  assert(chosen.size() == workload.buckets.size() && !chosen.empty());
  const Pattern pattern = chosen.front()->pattern;
  auto loads = planner::bucket_loads(workload, site.ranks, planner::most_part_of(pattern), chosen);
  const double stored = stage(loads, site.machine);
  planner::Replayed best{.end = std::numeric_limits<double>::infinity()};
  for (const planner::Order& order : planner::orders_of(loads, site, pattern)) {
    const auto trial = planner::replay(loads, site, pattern, order);
    if (trial.end < best.end) best = trial;
  }
  // The vote: every rank tells every other that everything has arrived.
  const double share = std::min(1.0, site.machine.cores);
  const double votes = 2.0 * (site.ranks - 1) * site.machine.message_seconds / share;
  return prediction_of(best, workload, site, site.link.latency_seconds + votes + stored);
}

Result<Prediction> predict_plain(const Workload& workload, const Site& site) {
  RETURN_IF_ERROR(check_place(workload, site));
  const auto loads = planner::bucket_loads(workload, site.ranks, planner::most_part_of(Pattern::kRing), {});
  return prediction_of(planner::replay_plain(loads, site, {loads.size()}), workload, site, 0);
}

}  // namespace deltawire
