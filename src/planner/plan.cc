// Chooses a codec, or none.
#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdio>

#include "base/errors.h"
#include "base/spec_text.h"
#include "deltawire/planner.h"

namespace deltawire {

namespace {

constexpr std::array<std::string_view, 3> kTiers = {"lossless", "near-lossless", "lossy"};
constexpr std::array<std::string_view, 3> kPatterns = {"direct", "ring", "gather"};

template <class Enum>
std::optional<Enum> find(const std::array<std::string_view, 3>& names, std::string_view name) noexcept {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view tier_name(Tier tier) noexcept {
  assert(static_cast<std::size_t>(tier) < kTiers.size());
  return kTiers[static_cast<std::size_t>(tier)];
}

std::optional<Tier> find_tier(std::string_view name) noexcept {
  return find<Tier>(kTiers, name);
}

std::string_view pattern_name(Pattern pattern) noexcept {
  assert(static_cast<std::size_t>(pattern) < kPatterns.size());
  return kPatterns[static_cast<std::size_t>(pattern)];
}

std::optional<Pattern> find_pattern(std::string_view name) noexcept {
  return find<Pattern>(kPatterns, name);
}

Tier tier_of(bool lossless, double relative_l2) noexcept {
  if (lossless) return Tier::kLossless;
  // A comparison with NaN is false: an unmeasured codec counts as lossy.
  return relative_l2 <= kNearLosslessError ? Tier::kNearLossless : Tier::kLossy;
}

namespace {

constexpr double kAlike =
    0.05;  // fraction of a step that predictions can't distinguish (docs/guides/planner.md)
constexpr int kScanSteps = 36;   // over nine decades of bandwidth
constexpr int kBisections = 30;  // of nine decades at most: eight digits

// The same connection with another rate, as asymmetric as it was.
Site with_rate(const Site& site, double up) {
  assert(up > 0 && site.link.up_bytes_per_second > 0);
  Site other = site;
  other.link.down_bytes_per_second = site.link.down_bytes_per_second / site.link.up_bytes_per_second * up;
  other.link.up_bytes_per_second = up;
  return other;
}

std::string formatted(const char* format, double number, const char* unit = "") {
  char text[32];
  std::snprintf(text, sizeof text, format, number, unit);
  return text;
}

// "3.2 Gbit/s".
std::string rate_text(double bytes_per_second) {
  const double bits = 8 * bytes_per_second;
  const struct {
    double unit;
    const char* name;
  } units[] = {{1e9, "Gbit/s"}, {1e6, "Mbit/s"}, {1e3, "kbit/s"}};
  const auto* fits = units;
  while (bits < 0.9995 * fits->unit && fits->unit > 1e3) ++fits;
  return formatted("%.3g %s", bits / fits->unit, fits->name);
}

std::string ms_text(double seconds) {
  return formatted(seconds < 0.1 ? "%.2f ms" : "%.1f ms", 1e3 * seconds);
}

std::string break_even_text(const BreakEven& point) {
  if (point.kind == BreakEven::Kind::kNever) return "it does not pay on slow links either";
  if (point.kind == BreakEven::Kind::kAlways) return "it pays at every rate";
  const bool is_above = point.kind == BreakEven::Kind::kAbove;
  return (is_above ? "it saves latency, not bytes, and pays above " : "it pays below ") +
         rate_text(point.up_bytes_per_second);
}

// Whether `a` is the better choice when both steps take about as long.
bool is_better(const PlanRow& a, const PlanRow& b) {
  if (a.figures.tier != b.figures.tier) return a.figures.tier < b.figures.tier;
  return a.prediction.bytes_sent < b.prediction.bytes_sent;
}

// The fastest codec that the tier allows, or a better one that is about as fast and takes at most `pays`
// seconds.
std::optional<std::size_t> best_of(const std::vector<PlanRow>& rows, double pays) {
  std::optional<std::size_t> fastest;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].allowed) continue;
    if (!fastest || rows[i].prediction.step_seconds < rows[*fastest].prediction.step_seconds) fastest = i;
  }
  if (!fastest) return fastest;
  std::size_t best = *fastest;
  const double least = rows[*fastest].prediction.step_seconds;
  const double alike_most = (1 + kAlike) * least;
  const double most = least <= pays ? std::min(alike_most, pays) : alike_most;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool alike = rows[i].allowed && rows[i].prediction.step_seconds <= most;
    if (alike && is_better(rows[i], rows[best])) best = i;
  }
  return best;
}

std::string reason_of(const Plan& plan, const std::optional<std::size_t>& best, const PlanOptions& options) {
  const std::string plain = ms_text(plan.plain.step_seconds);
  if (!best) {
    return "do not compress: no codec of those given is " + std::string(tier_name(options.tier));
  }
  const PlanRow& row = plan.rows[*best];
  const std::string step = ms_text(row.prediction.step_seconds);
  const std::string spec = printable_line(row.figures.spec);
  if (plan.chosen) {
    return spec + ": " + step + " a step instead of " + plain + ", " + formatted("%.3g", row.times_faster) +
           " times as fast; " + break_even_text(row.break_even);
  }
  const double gain = 1 - row.prediction.step_seconds / plan.plain.step_seconds;
  if (gain > 0) {
    return "do not compress: the best, " + spec + ", would save " + formatted("%.3g %%", 100 * gain) +
           " of " + plain + ", less than " + formatted("%.3g %%", 100 * options.least_gain) + "; " +
           break_even_text(row.break_even);
  }
  return "do not compress: it would lose; the best, " + spec + ", takes " + step + " a step and plain " +
         plain + "; " + break_even_text(row.break_even);
}

tl::unexpected<Error> bad_gain(double least_gain) {
  return invalid("least_gain is " + shortest_text(least_gain) + "; it must be 0 to 1, and less than 1");
}

}  // namespace

std::string rule_of_thumb() {
  return "Compression pays on links of up to " + rate_text(kPaysUpTo) + " a rank, rarely from " +
         rate_text(kRarelyPaysFrom) + " on; between, ask deltawire plan.";
}

Result<BreakEven> break_even(const Workload& workload, const Site& site, const CodecFigures& figures,
                             double least_gain) {
  if (!(least_gain >= 0 && least_gain < 1)) return bad_gain(least_gain);
  const double rate = site.link.up_bytes_per_second;
  // Below 0: the codec pays.
  const auto difference = [&](double up) -> Result<double> {
    const Site there = up == rate ? site : with_rate(site, up);
    ASSIGN_OR_RETURN(const Prediction coded, predict(workload, there, figures));
    ASSIGN_OR_RETURN(const Prediction plain, predict_plain(workload, there));
    return coded.step_seconds - (1 - least_gain) * plain.step_seconds;
  };
  // Between a rate at which it pays and one at which it doesn't: the latter, as near as can be.
  const auto found = [&](BreakEven::Kind kind, double pays, double loses) -> Result<BreakEven> {
    for (int step = 0; step < kBisections; ++step) {
      const double middle = std::sqrt(pays * loses);
      ASSIGN_OR_RETURN(const double there, difference(middle));
      (there < 0 ? pays : loses) = middle;
    }
    return BreakEven{kind, loses};
  };
  ASSIGN_OR_RETURN(const double here, difference(rate));
  double low = kSlowestLink;
  ASSIGN_OR_RETURN(const double slowest, difference(low));
  if (slowest >= 0) return here >= 0 ? BreakEven{} : found(BreakEven::Kind::kAbove, rate, low);
  const double ratio = std::pow(kFastestLink / kSlowestLink, 1.0 / kScanSteps);
  for (int i = 1; i <= kScanSteps; ++i) {
    const double high = i == kScanSteps ? kFastestLink : kSlowestLink * std::pow(ratio, i);
    ASSIGN_OR_RETURN(const double there, difference(high));
    if (there >= 0) return found(BreakEven::Kind::kAt, low, high);
    low = high;
  }
  return BreakEven{BreakEven::Kind::kAlways, kFastestLink};
}

Result<Plan> make_plan(const Workload& workload, const Site& site, const std::vector<CodecFigures>& codecs,
                       const PlanOptions& options) {
  if (!(options.least_gain >= 0 && options.least_gain < 1)) return bad_gain(options.least_gain);
  ASSIGN_OR_RETURN(const auto plain, predict_plain(workload, site));
  Plan plan;
  plan.plain = plain;
  for (const CodecFigures& figures : codecs) {
    ASSIGN_OR_RETURN(const auto prediction, predict(workload, site, figures));
    ASSIGN_OR_RETURN(const auto point, break_even(workload, site, figures, options.least_gain));
    plan.rows.push_back({figures, prediction, plain.step_seconds / prediction.step_seconds, point,
                         figures.tier <= options.tier});
  }
  const double pays = (1 - options.least_gain) * plain.step_seconds;
  const auto best = best_of(plan.rows, pays);
  if (best) {
    const double step = plan.rows[*best].prediction.step_seconds;
    if (step < plain.step_seconds && step <= pays) plan.chosen = best;
  }
  plan.reason = reason_of(plan, best, options);
  return plan;
}

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
      RETURN_IF_ERROR(take_if_faster(std::vector<std::size_t>(workload_.buckets.size(), codec)));
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
            RETURN_IF_ERROR(take_if_faster(std::move(changed)));
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
    ASSIGN_OR_RETURN(const auto made, predict_by_bucket(workload_, site_, codecs_, of_bucket));
    const double most = (1 - kNoticed) * best_.prediction.step_seconds;
    if (best_.of_bucket.empty() || made.step_seconds < most) best_ = {std::move(of_bucket), made};
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
    RETURN_IF_ERROR(search.one_for_all());
    const double alone = search.best().prediction.step_seconds;
    for_all = fastest ? std::min(for_all, alone) : alone;
    RETURN_IF_ERROR(search.improve());
    if (!fastest || search.best().prediction.step_seconds < fastest->prediction.step_seconds) {
      fastest = search.best();
    }
  }
  if (!fastest || fastest->prediction.step_seconds >= (1 - kTold) * for_all) return std::optional<Mix>{};
  return fastest;
}

}  // namespace deltawire
