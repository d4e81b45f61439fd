#include "cli/plan/report.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "cli/number_text.h"
#include "cli/plan/sites.h"

namespace deltawire::cli {
namespace {

using PlanJson = nlohmann::ordered_json;
using Cells = std::vector<std::string>;

std::string ms_of(double seconds) {
  return with_decimals(1e3 * seconds, seconds < 0.1 ? 2 : 1);
}

std::string break_even_name(const PlanRow& row) {
  const BreakEven& point = row.break_even;
  switch (point.kind) {
    case BreakEven::Kind::kNever: return "never";
    case BreakEven::Kind::kAlways: return "always";
    case BreakEven::Kind::kAbove: return "above " + rate_name(point.up_bytes_per_second);
    case BreakEven::Kind::kAt: break;
  }
  return rate_name(point.up_bytes_per_second);
}

// Columns as wide as their widest cell; the first `left` of them begin at the left.
std::string table_of(const std::vector<Cells>& lines, std::size_t left) {
  std::vector<std::size_t> widths(lines.front().size(), 0);
  for (const Cells& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const Cells& line : lines) {
    std::string row;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string space(widths[i] - line[i].size(), ' ');
      row += (i == 0 ? "" : "  ") + (i < left ? line[i] + space : space + line[i]);
    }
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string workload_text(const Workload& workload) {
  std::string text = grouped(workload.elements()) + " values in " + grouped(workload.buckets.size()) +
                     (workload.buckets.size() == 1 ? " bucket" : " buckets");
  if (workload.compute_seconds > 0) {
    text += ", forward and backward " + ms_of(workload.compute_seconds) + " ms";
  }
  return text;
}

std::string heading(const PlanReport& report) {
  std::string text = printable_line(report.input) + ": " + workload_text(report.workload) + "\n";
  return text + "codecs: " + printable_line(report.figures) + "; up to " +
         std::string(tier_name(report.options.tier)) + "\n";
}

Cells row_of(const PlanRow& row, const Site& site) {
  const CodecFigures& figures = row.figures;
  const double values = 1000;
  return {printable_line(figures.spec),
          std::string(pattern_name(figures.pattern)),
          std::string(tier_name(figures.tier)) + (row.allowed ? "" : " (not allowed)"),
          rounded(figures.bits_per_value),
          rounded(figures.encode.value_seconds * values * 1e6),
          rounded(figures.decode.value_seconds * values * 1e6),
          ms_of(row.prediction.step_seconds),
          ms_of(row.prediction.wire_seconds),
          ms_of(row.prediction.coding_seconds / std::min(1.0, site.machine.cores)),
          rounded(row.times_faster),
          break_even_name(row)};
}

// A codec that the tier forbids and that would be faster by more than the error of predictions.
std::string not_allowed_text(const Plan& plan) {
  constexpr double kClearly = 0.95;
  const double chosen =
      plan.chosen ? plan.rows[*plan.chosen].prediction.step_seconds : plan.plain.step_seconds;
  const PlanRow* fastest = nullptr;
  for (const PlanRow& row : plan.rows) {
    if (row.allowed || row.prediction.step_seconds > kClearly * chosen) continue;
    if (!fastest || row.prediction.step_seconds < fastest->prediction.step_seconds) fastest = &row;
  }
  if (!fastest) return "";
  return "not allowed: " + printable_line(fastest->figures.spec) + ", " +
         ms_of(fastest->prediction.step_seconds) + " ms a step; --tier " +
         std::string(tier_name(fastest->figures.tier)) + " allows it, if your training bears what it loses\n";
}

std::string one_plan(const SitePlan& at) {
  const Plan& plan = at.plan;
  std::vector<std::size_t> order(plan.rows.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {},
                    [&](std::size_t i) { return std::pair(plan.rows[i].prediction.step_seconds, i); });
  std::vector<Cells> lines{{"", "method", "pattern", "loses", "bits/value", "enc ns", "dec ns", "ms a step",
                            "wire ms", "coding ms", "x plain", "pays below"}};
  lines.push_back({plan.chosen ? "" : "*", "plain", "native ring", "lossless", "32", "0", "0",
                   ms_of(plan.plain.step_seconds), ms_of(plan.plain.wire_seconds), "0", "1", ""});
  for (const std::size_t i : order) {
    Cells line = row_of(plan.rows[i], at.site);
    line.insert(line.begin(), plan.chosen == i ? "*" : "");
    lines.push_back(std::move(line));
  }
  return std::to_string(at.site.ranks) + " ranks, " + link_name(at.site.link) + " latency\n\n" +
         table_of(lines, 4) + "\n" + plan.reason + "\n" + not_allowed_text(plan);
}

// The chosen codec, or the best one.
Cells choice_of(const SitePlan& at) {
  const Plan& plan = at.plan;
  Cells cells{grouped(static_cast<std::uint64_t>(at.site.ranks)), link_name(at.site.link),
              ms_of(plan.plain.step_seconds)};
  if (!plan.chosen) {
    cells.insert(cells.end(), {"do not compress", "-", "-", "-"});
    return cells;
  }
  const PlanRow& row = plan.rows[*plan.chosen];
  cells.insert(cells.end(), {printable_line(row.figures.spec), ms_of(row.prediction.step_seconds),
                             rounded(row.times_faster), break_even_name(row)});
  return cells;
}

std::string many_plans(const PlanReport& report) {
  std::vector<Cells> lines{{"ranks", "link", "plain ms", "chosen", "ms a step", "x plain", "pays below"}};
  for (const SitePlan& at : report.plans) lines.push_back(choice_of(at));
  return "\n" + table_of(lines, 2);
}

PlanJson break_even_json(const BreakEven& point) {
  if (point.kind == BreakEven::Kind::kAt) return 8 * point.up_bytes_per_second;
  return point.kind == BreakEven::Kind::kAlways ? "always" : "never";
}

PlanJson prediction_json(const Prediction& step) {
  return {{"ms_per_step", 1e3 * step.step_seconds},
          {"exposed_ms", 1e3 * step.exposed_seconds},
          {"wire_ms", 1e3 * step.wire_seconds},
          {"coding_ms", 1e3 * step.coding_seconds},
          {"bytes_sent", step.bytes_sent}};
}

PlanJson site_json(const SitePlan& at) {
  PlanJson rows = PlanJson::array();
  for (const PlanRow& row : at.plan.rows) {
    PlanJson json{{"codec", row.figures.spec}};
    json.update(prediction_json(row.prediction));
    json["times_faster"] = row.times_faster;
    json["break_even_bits_per_second"] = break_even_json(row.break_even);
    json["allowed"] = row.allowed;
    rows.push_back(std::move(json));
  }
  const auto chosen = at.plan.chosen;
  return {{"ranks", at.site.ranks},
          {"up_bits_per_second", 8 * at.site.link.up_bytes_per_second},
          {"down_bits_per_second", 8 * at.site.link.down_bytes_per_second},
          {"latency_ms", 1e3 * at.site.link.latency_seconds},
          {"plain", prediction_json(at.plan.plain)},
          {"rows", std::move(rows)},
          {"chosen", chosen ? PlanJson(at.plan.rows[*chosen].figures.spec) : PlanJson()},
          {"reason", at.plan.reason}};
}

PlanJson figures_json(const CodecFigures& figures) {
  return {{"codec", figures.spec},
          {"pattern", pattern_name(figures.pattern)},
          {"tier", tier_name(figures.tier)},
          {"bits_per_value", figures.bits_per_value},
          {"encode_us_per_message", 1e6 * figures.encode.message_seconds},
          {"encode_ns_per_value", 1e9 * figures.encode.value_seconds},
          {"decode_us_per_message", 1e6 * figures.decode.message_seconds},
          {"decode_ns_per_value", 1e9 * figures.decode.value_seconds},
          {"shares_parts", figures.shares_parts}};
}

}  // namespace

std::string plan_text(const PlanReport& report) {
  std::string text = heading(report);
  for (const std::string& line : report.refused) text += "left out: " + printable_line(line) + "\n";
  return text + (report.plans.size() == 1 ? one_plan(report.plans.front()) : many_plans(report));
}

std::string assumptions_text(const PlanReport& report) {
  const Machine& machine = report.plans.front().site.machine;
  std::string text =
      "Assumed: all ranks and links alike, and nothing else on them; gradients that take as many bits as\n"
      "these, whatever the number of ranks; a rank with " +
      significant(machine.cores) + (machine.cores == 1 ? " core, " : " cores, ") +
      std::to_string(machine.coding_threads) + (machine.coding_threads == 1 ? " thread" : " threads") +
      " coding; " + significant(1e6 * machine.message_seconds) + " us for a message, out or in,\nand " +
      significant(1e9 * machine.byte_seconds) + " ns for a byte; ";
  text += report.workload.compute_seconds > 0
              ? "backward two thirds of --compute-ms, as long for each tensor, unless\n--ready-ms says more"
              : "no computation that could hide anything: give --compute-ms";
  return text + ". docs/guides/planner.md has the model, and how far it was off.\n";
}

std::string plan_json(const PlanReport& report) {
  PlanJson tensors = PlanJson::array();
  PlanJson buckets = PlanJson::array();
  for (const PlanBucket& bucket : report.workload.buckets) {
    PlanJson names = PlanJson::array();
    for (const PlanTensor& tensor : bucket.tensors) {
      PlanJson entry{{"name", tensor.name}, {"elements", tensor.elements}};
      tensors.insert(tensors.begin(), std::move(entry));  // buckets go through the model backwards
      names.push_back(tensor.name);
    }
    buckets.push_back({{"ready_ms", 1e3 * bucket.ready_seconds}, {"tensors", std::move(names)}});
  }
  PlanJson figures = PlanJson::array();
  PlanJson plans = PlanJson::array();
  for (const PlanRow& row : report.plans.front().plan.rows) figures.push_back(figures_json(row.figures));
  for (const SitePlan& at : report.plans) plans.push_back(site_json(at));
  const Machine& machine = report.plans.front().site.machine;
  const PlanJson json{{"input", report.input},
                      {"figures_from", report.figures},
                      {"tier", tier_name(report.options.tier)},
                      {"least_gain", report.options.least_gain},
                      {"compute_ms", 1e3 * report.workload.compute_seconds},
                      {"cores", machine.cores},
                      {"coding_threads", machine.coding_threads},
                      {"message_us", 1e6 * machine.message_seconds},
                      {"byte_ns", 1e9 * machine.byte_seconds},
                      {"left_out", report.refused},
                      {"tensors", std::move(tensors)},
                      {"buckets", std::move(buckets)},
                      {"figures", std::move(figures)},
                      {"plans", std::move(plans)}};
  // A path may be no UTF-8; JSON must be.
  return json.dump(2, ' ', false, PlanJson::error_handler_t::replace) + "\n";
}

}  // namespace deltawire::cli
