#include <algorithm>

#include "deltawire/planner.h"

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

}  // namespace deltawire
