#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "cli/plan/report.h"
#include "cli/plan/sites.h"
#include "cli/svg.h"

namespace deltawire::cli {
namespace {

constexpr double kSheetWidth = 760;
constexpr double kSheetHeight = 480;
constexpr double kSheetLeft = 84;
constexpr double kSheetRight = kSheetWidth - 190;  // names stand to the right of the lines' ends
constexpr double kSheetTop = 46;
constexpr double kSheetBottom = kSheetHeight - 60;
constexpr double kNameHeight = 14;

struct Curve {
  std::string name;
  std::string look;  // of its line
  const char* colour;
  std::vector<double> ms;
  double label_y = 0;
};

double place_of(const SitePlan& at, PlotAxis axis) {
  return axis == PlotAxis::kRanks ? at.site.ranks : 8e-6 * at.site.link.up_bytes_per_second;
}

std::vector<Curve> curves_of(std::span<const SitePlan> plans) {
  std::vector<Curve> curves{{"plain", " stroke-dasharray=\"12 5\"", "#555555", {}}};
  for (const SitePlan& at : plans) curves.front().ms.push_back(1e3 * at.plan.plain.step_seconds);
  const std::vector<PlanRow>& codecs = plans.front().plan.rows;
  for (std::size_t i = 0; i < codecs.size(); ++i) {
    if (!codecs[i].allowed) continue;
    const std::size_t number = curves.size() - 1;
    const std::string look = std::string(" stroke-dasharray=\"") + dashes_of(number) + "\"";
    Curve& curve = curves.emplace_back(Curve{codecs[i].figures.spec, look, colour_of(number), {}});
    for (const SitePlan& at : plans) {
      curve.ms.push_back(1e3 * at.plan.rows[i].prediction.step_seconds);
    }
  }
  return curves;
}

// Names stand by the lines' ends, as near to them as they can without covering each other: a group of names
// that touch is centred on its lines' ends.
void place_labels(std::vector<Curve>& curves, const Axis& ms) {
  struct Group {
    double ends = 0;  // the sum of its lines' ends
    std::size_t count = 0;

    double height() const { return kNameHeight * static_cast<double>(count); }
    double top() const {
      const double centred = ends / static_cast<double>(count) - height() / 2;
      return std::max(kSheetTop, std::min(centred, kSheetBottom - height()));
    }
  };
  std::vector<Curve*> order;
  order.reserve(curves.size());
  for (Curve& curve : curves) order.push_back(&curve);
  // Not stable_sort: with libstdc++ 12 it calls a function that Clang 19 reports as deprecated.
  std::ranges::sort(order, {},
                    [&](const Curve* curve) { return std::pair(ms.place(curve->ms.back()), curve); });
  std::vector<Group> groups;
  for (const Curve* curve : order) {
    groups.push_back({ms.place(curve->ms.back()), 1});
    while (groups.size() > 1) {
      Group& above = groups[groups.size() - 2];
      if (above.top() + above.height() <= groups.back().top()) break;
      above.ends += groups.back().ends;
      above.count += groups.back().count;
      groups.pop_back();
    }
  }
  auto curve = order.begin();
  for (const Group& group : groups) {
    for (std::size_t i = 0; i < group.count; ++i, ++curve) {
      (*curve)->label_y = group.top() + kNameHeight * (static_cast<double>(i) + 0.5);
    }
  }
}

void draw_curve(std::string& svg, const Curve& curve, const std::vector<double>& places, const Axis& ms) {
  std::string path;
  for (std::size_t i = 0; i < places.size(); ++i) {
    append(path, "%c%.1f %.1f", i == 0 ? 'M' : 'L', places[i], ms.place(curve.ms[i]));
  }
  svg += "<path d=\"" + path + "\" fill=\"none\" stroke-width=\"2\" stroke=\"" + curve.colour + "\"" +
         curve.look + "/>\n";
  append(svg, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\" stroke-width=\"0.6\"/>\n", kSheetRight + 2,
         ms.place(curve.ms.back()), kSheetRight + 14, curve.label_y, curve.colour);
  const std::string look = std::string(" fill=\"") + curve.colour + "\"";
  write_text(svg, kSheetRight + 18, curve.label_y + 4, look.c_str(), curve.name);
}

std::string title_of(const Site& site, PlotAxis axis) {
  return axis == PlotAxis::kRanks ? "Predicted step, links of " + link_name(site.link)
                                  : "Predicted step, " + std::to_string(site.ranks) + " ranks";
}

}  // namespace

std::string plan_plot(std::span<const SitePlan> plans, PlotAxis axis) {
  std::vector<Curve> curves = curves_of(plans);
  std::vector<double> values;
  values.reserve(plans.size());
  for (const SitePlan& at : plans) values.push_back(place_of(at, axis));
  const Axis x = axis_round(values, {kSheetLeft, kSheetRight});
  std::vector<double> all;
  for (const Curve& curve : curves) all.insert(all.end(), curve.ms.begin(), curve.ms.end());
  const Axis ms = axis_round(all, {kSheetBottom, kSheetTop});
  place_labels(curves, ms);
  std::vector<double> places;
  places.reserve(values.size());
  for (const double value : values) places.push_back(x.place(value));
  std::string svg = svg_head(kSheetWidth, kSheetHeight);
  write_text(svg, kSheetLeft - 50, 24, " font-size=\"15\" font-weight=\"bold\"",
             title_of(plans.front().site, axis));
  draw_decades_across(svg, x, {kSheetTop, kSheetBottom}, kSheetBottom + 18);
  draw_decades_up(svg, ms, {kSheetLeft, kSheetRight});
  for (const Curve& curve : curves) draw_curve(svg, curve, places, ms);
  write_text(svg, (kSheetLeft + kSheetRight) / 2, kSheetBottom + 40, " text-anchor=\"middle\"",
             axis == PlotAxis::kRanks ? "ranks (log scale)" : "Mbit/s of a rank's link (log scale)");
  write_upwards(svg, {kSheetTop, kSheetBottom}, "milliseconds a step (log scale)");
  return svg + "</svg>\n";
}

}  // namespace deltawire::cli
