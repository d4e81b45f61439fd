// Properties that hold for any step, link and codec.
#include <algorithm>
#include <cmath>

#include "base/property_testing.h"
#include "planner/planner_testing.h"

namespace deltawire::planner {
namespace {

using deltawire::testing::drawn;

// From `low` to `high`, evenly on a log scale.
double drawn_between(double low, double high) {
  return low * std::pow(high / low, static_cast<double>(drawn(0, 1001)) / 1000);
}

Site drawn_site() {
  Site site;
  site.ranks = static_cast<int>(drawn(2, 40));
  site.link = {drawn_between(1e3, 1e10), drawn_between(1e3, 1e10), drawn_between(1e-6, 1)};
  site.machine.cores = drawn_between(0.25, 8);
  site.machine.coding_threads = static_cast<int>(drawn(1, 4));
  site.machine.load_byte_seconds = drawn_between(1e-13, 1e-8);
  site.machine.store_byte_seconds = drawn_between(1e-13, 1e-8);
  return site;
}

Workload drawn_workload() {
  Workload workload;
  double ready = 0;
  for (std::uint64_t i = 0, buckets = drawn(1, 6); i < buckets; ++i) {
    ready += drawn_between(1e-4, 0.3);
    PlanBucket bucket{{}, ready};
    for (std::uint64_t k = 0, tensors = drawn(1, 4); k < tensors; ++k) {
      bucket.tensors.push_back({std::to_string(i) + "." + std::to_string(k), drawn(1, 2'000'000)});
    }
    workload.buckets.push_back(bucket);
  }
  workload.compute_seconds = ready;
  return workload;
}

CodecFigures drawn_codec() {
  CodecFigures figures;
  figures.spec = "drawn";
  figures.pattern = static_cast<Pattern>(drawn(0, 3));
  figures.bits_per_value = drawn_between(0.01, 64);
  figures.encode = {drawn_between(1e-7, 1e-4), drawn_between(1e-11, 1e-7)};
  figures.decode = {drawn_between(1e-7, 1e-4), drawn_between(1e-11, 1e-7)};
  figures.shares_parts = drawn(0, 2) == 1;
  return figures;
}

Prediction made(const Result<Prediction>& result) {
  HOLDS(result);
  return *result;
}

PROPERTY(Predictions, AFasterLinkIsNeverSlower) {
  const Workload workload = drawn_workload();
  const CodecFigures codec = drawn_codec();
  const Site site = drawn_site();
  Site faster = site;
  faster.link.up_bytes_per_second *= drawn_between(1, 100);
  faster.link.down_bytes_per_second *= drawn_between(1, 100);
  faster.link.latency_seconds /= drawn_between(1, 100);
  const double before = made(predict(workload, site, codec)).step_seconds;
  HOLDS(made(predict(workload, faster, codec)).step_seconds <= before * (1 + 1e-9));
  const double plain = made(predict_plain(workload, site)).step_seconds;
  HOLDS(made(predict_plain(workload, faster)).step_seconds <= plain * (1 + 1e-9));
}

PROPERTY(Predictions, NeverBelowAnyBound) {
  const Workload workload = drawn_workload();
  const CodecFigures codec = drawn_codec();
  const Site site = drawn_site();
  for (const Prediction& step : {made(predict(workload, site, codec)), made(predict_plain(workload, site))}) {
    const double least = step.step_seconds * (1 + 1e-9);
    HOLDS(least >= workload.compute_seconds);
    HOLDS(least >= workload.buckets.front().ready_seconds + step.wire_seconds);
    HOLDS(least >= workload.buckets.back().ready_seconds + site.link.latency_seconds);
    HOLDS(least * site.machine.cores >=
          workload.compute_seconds * std::min(1.0, site.machine.cores) + step.coding_seconds);
    HOLDS(std::abs(step.step_seconds - workload.compute_seconds - step.exposed_seconds) <= 1e-9 * least);
    HOLDS(step.wire_seconds * site.link.up_bytes_per_second >= step.bytes_sent * (1 - 1e-9));
  }
}

PROPERTY(Predictions, FasterCodingAndFewerBitsAreNeverSlower) {
  const Workload workload = drawn_workload();
  const Site site = drawn_site();
  const CodecFigures codec = drawn_codec();
  CodecFigures better = codec;
  better.encode.value_seconds /= drawn_between(1, 10);
  better.decode.message_seconds /= drawn_between(1, 10);
  // Fewer bits may open more rounds at once, which only adds orders to choose from.
  better.bits_per_value /= drawn_between(1, 10);
  const double before = made(predict(workload, site, codec)).step_seconds;
  HOLDS(made(predict(workload, site, better)).step_seconds <= before * (1 + 1e-9));
}

PROPERTY(Mixes, AreNeverSlowerThanOneForAllAndOfOnePattern) {
  const Workload workload = drawn_workload();
  const Site site = drawn_site();
  std::vector<CodecFigures> codecs;
  for (std::uint64_t i = 0, count = drawn(2, 5); i < count; ++i) codecs.push_back(drawn_codec());
  const auto mix = make_mix(workload, site, codecs);
  HOLDS(mix);
  if (!*mix) return;
  const auto again = predict_by_bucket(workload, site, codecs, (*mix)->of_bucket);
  HOLDS(made(again).step_seconds == (*mix)->prediction.step_seconds);
  for (const CodecFigures& codec : codecs) {
    HOLDS((*mix)->prediction.step_seconds < made(predict(workload, site, codec)).step_seconds);
  }
}

PROPERTY(BreakEvens, AreWhereTheSignChanges) {
  const Workload workload = drawn_workload();
  const CodecFigures codec = drawn_codec();
  Site site = drawn_site();
  const double least_gain = static_cast<double>(drawn(0, 20)) / 100;
  const auto point = break_even(workload, site, codec, least_gain);
  HOLDS(point);
  const double down_by_up = site.link.down_bytes_per_second / site.link.up_bytes_per_second;
  const double rate = site.link.up_bytes_per_second;
  const auto gains_at = [&](double up) {
    site.link.up_bytes_per_second = up;
    site.link.down_bytes_per_second = up * down_by_up;
    return made(predict(workload, site, codec)).step_seconds <
           (1 - least_gain) * made(predict_plain(workload, site)).step_seconds;
  };
  const bool gains_here = gains_at(rate);
  const bool above = point->kind == BreakEven::Kind::kAbove;
  HOLDS(gains_at(kSlowestLink) == (point->kind != BreakEven::Kind::kNever && !above));
  HOLDS(above || point->kind != BreakEven::Kind::kNever || !gains_here);
  if (above) {
    HOLDS(gains_here && gains_at(point->up_bytes_per_second * (1 + 1e-9)));
    HOLDS(!gains_at(point->up_bytes_per_second));
  }
  if (point->kind == BreakEven::Kind::kAlways) HOLDS(gains_at(kFastestLink));
  if (point->kind == BreakEven::Kind::kAt) {
    HOLDS(gains_at(point->up_bytes_per_second * (1 - 1e-9)));
    HOLDS(!gains_at(point->up_bytes_per_second));
  }
}

}  // namespace
}  // namespace deltawire::planner
