// A codec for each bucket: buckets that backward hides need cheap encoding, the last ones few bytes.
#include <algorithm>
#include <cassert>

#include "deltawire/planner.h"

namespace deltawire {
namespace {

constexpr double kTold = 0.01;        // fraction of a step: predictions can't distinguish less
constexpr double kNoticed = 1e-6;     // fraction of a step: a smaller gain is rounding, and ends the search
constexpr std::size_t kMostRuns = 8;  // runs of neighbouring buckets that get the same codec
constexpr int kMostPasses = 3;

// The search for one pattern.
class Search {
 public:
  Search(const Workload& workload, const Site& site, const std::vector<CodecFigures>& codecs,
         std::vector<std::size_t> candidates)
      : workload_(workload), site_(site), codecs_(codecs), candidates_(std::move(candidates)) {}

  // The fastest codec for all buckets.
  Status one_for_all() {
    assert(!candidates_.empty());
    for (const std::size_t codec : candidates_) {
      std::vector<std::size_t> all(workload_.buckets.size(), codec);
      if (Status held = take_if_faster(std::move(all)); !held) return held;
    }
    return {};
  }

  // From there, gives runs of buckets, and all before them, another codec, while that is faster.
  Status improve() {
    assert(best_.of_bucket.size() == workload_.buckets.size());
    const std::size_t buckets = workload_.buckets.size();
    const std::size_t runs = std::min(buckets, kMostRuns);
    for (int pass = 0; pass < kMostPasses; ++pass) {
      const double before = best_.prediction.step_seconds;
      for (std::size_t run = 0; run < runs; ++run) {
        const std::size_t end = (run + 1) * buckets / runs;
        for (const std::size_t codec : candidates_) {
          for (const std::size_t begin : {run * buckets / runs, std::size_t{0}}) {
            std::vector<std::size_t> changed = best_.of_bucket;
            std::fill(changed.begin() + static_cast<std::ptrdiff_t>(begin),
                      changed.begin() + static_cast<std::ptrdiff_t>(end), codec);
            if (Status held = take_if_faster(std::move(changed)); !held) return held;
          }
        }
      }
      if (best_.prediction.step_seconds >= before) break;
    }
    return {};
  }

  const Mix& best() const noexcept { return best_; }

 private:
  Status take_if_faster(std::vector<std::size_t> of_bucket) {
    if (of_bucket == best_.of_bucket) return {};
    const auto made = predict_by_bucket(workload_, site_, codecs_, of_bucket);
    if (!made) return forward_error(made);
    const double most = (1 - kNoticed) * best_.prediction.step_seconds;
    if (best_.of_bucket.empty() || made->step_seconds < most) best_ = {std::move(of_bucket), *made};
    return {};
  }

  const Workload& workload_;
  const Site& site_;
  const std::vector<CodecFigures>& codecs_;
  std::vector<std::size_t> candidates_;
  Mix best_;
};

}  // namespace

Result<std::optional<Mix>> make_mix(const Workload& workload, const Site& site,
                                    const std::vector<CodecFigures>& codecs, Tier tier) {
  std::optional<Mix> fastest;
  double for_all = 0;
  for (const Pattern pattern : {Pattern::kDirect, Pattern::kRing, Pattern::kGather}) {
    std::vector<std::size_t> candidates;
    for (std::size_t i = 0; i < codecs.size(); ++i) {
      if (codecs[i].pattern == pattern && codecs[i].tier <= tier) candidates.push_back(i);
    }
    if (candidates.empty()) continue;
    Search search(workload, site, codecs, std::move(candidates));
    if (Status held = search.one_for_all(); !held) return forward_error(held);
    const double alone = search.best().prediction.step_seconds;
    for_all = fastest ? std::min(for_all, alone) : alone;
    if (Status held = search.improve(); !held) return forward_error(held);
    if (!fastest || search.best().prediction.step_seconds < fastest->prediction.step_seconds) {
      fastest = search.best();
    }
  }
  if (!fastest || fastest->prediction.step_seconds >= (1 - kTold) * for_all) return std::optional<Mix>{};
  return fastest;
}

}  // namespace deltawire
