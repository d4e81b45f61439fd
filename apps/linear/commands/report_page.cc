#include <algorithm>
#include <cmath>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/number_text.h"
#include "cli/svg.h"
#include "linear/commands/train_report.h"

namespace deltawire::linear {
namespace {

// In 320 pixels of a phone a letter of 12 is as high as 11.
constexpr double kSheetWidth = 350;
constexpr double kSheetHeight = 270;
constexpr cli::Pixels kPlotX{58, 336};
constexpr cli::Pixels kPlotY{212, 44};

constexpr const char* kStyle = R"(
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #f4f5f7; color: #1d2430; font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 1000px; margin: 0 auto; padding: 24px 12px 48px; }
h1 { font-size: 25px; line-height: 1.25; margin: 0 0 .4em; }
h2 { font-size: 19px; margin: 1.8em 0 .5em; }
p { color: #5b6675; margin: 0 0 1em; }
.figures { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); }
figure, .wide { margin: 0; background: #fff; border: 1px solid #e1e5ea; border-radius: 8px; padding: 8px; }
figure svg { width: 100%; height: auto; display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 8px; text-align: right; white-space: nowrap; }
td { border-top: 1px solid #e1e5ea; }
th:first-child, td:first-child { text-align: left; white-space: normal; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .5em; }
.bar { display: flex; height: 24px; border-radius: 4px; overflow: hidden; margin: 4px 0 10px; background: #ddd; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font-size: 13px; }
)";

struct Curve {
  const char* name;
  double EpochReport::* loss;
  const char* colour;
};
constexpr std::array kCurves{Curve{"training", &EpochReport::train_loss, "#0072b2"},
                             Curve{"held out", &EpochReport::test_loss, "#d55e00"}};

// Losses over `x`; `x_name` says what of. Empty where nothing has moved along x.
std::string loss_figure(const std::vector<EpochReport>& epochs, const std::vector<double>& x,
                        const char* title, const char* x_name) {
  if (x.back() <= 0) return {};
  std::vector<double> losses;
  for (const EpochReport& epoch : epochs) {
    for (const Curve& curve : kCurves) {
      if (std::isfinite(epoch.*curve.loss)) losses.push_back(epoch.*curve.loss);
    }
  }
  const cli::LinearAxis across = cli::linear_axis(0, x.back(), kPlotX);
  const cli::LinearAxis up = cli::linear_axis(std::ranges::min(losses), std::ranges::max(losses), kPlotY);
  std::string svg = cli::svg_head(kSheetWidth, kSheetHeight);
  cli::write_text(svg, 8, 20, " font-size=\"14\" font-weight=\"bold\"", title);
  cli::draw_ticks_across(svg, across, kPlotY, kPlotY.from + 18);
  cli::draw_ticks_up(svg, up, kPlotX);
  double name_x = kPlotX.from;
  for (const Curve& curve : kCurves) {
    std::string path;
    for (std::size_t i = 0; i < epochs.size(); ++i) {
      if (!std::isfinite(epochs[i].*curve.loss)) continue;
      const double at_x = across.place(x[i]);
      const double at_y = up.place(epochs[i].*curve.loss);
      cli::append(path, "%c%.1f %.1f", path.empty() ? 'M' : 'L', at_x, at_y);
      cli::append(svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", at_x, at_y, curve.colour);
    }
    if (path.empty()) continue;
    svg += "<path d=\"" + path + "\" fill=\"none\" stroke-width=\"2\" stroke=\"" + curve.colour + "\"/>\n";
    cli::append(svg, "<rect x=\"%.1f\" y=\"252\" width=\"10\" height=\"10\" fill=\"%s\"/>\n", name_x,
                curve.colour);
    cli::write_text(svg, name_x + 15, 261, "", curve.name);
    name_x += 90;
  }
  cli::write_text(svg, (kPlotX.from + kPlotX.to) / 2, kPlotY.from + 34, " text-anchor=\"middle\"", x_name);
  cli::write_upwards(svg, kPlotY, "loss");
  return "<figure>" + svg + "</svg></figure>\n";
}

std::string figures_of(const std::vector<EpochReport>& epochs) {
  std::vector<double> seconds;
  std::vector<double> megabytes;
  for (const EpochReport& epoch : epochs) {
    seconds.push_back(epoch.seconds);
    megabytes.push_back(epoch.bytes_sent / 1e6);
  }
  const std::string bytes =
      loss_figure(epochs, megabytes, "Loss against bytes", "MB that a worker has sent (mean)");
  return "<div class=\"figures\">\n" +
         loss_figure(epochs, seconds, "Loss against time", "seconds of training") + bytes + "</div>\n" +
         (bytes.empty() ? "<p>One worker sends nothing: there is no loss against bytes.</p>\n" : "");
}

std::string time_section(const TrainedModel& model) {
  const double total = model.epochs.back().seconds;
  std::string bar = "<div class=\"bar\">";
  std::string rows;
  double rest = total;
  const auto add = [&](const char* label, const char* colour, double seconds) {
    const double percent = total > 0 ? 100 * seconds / total : 0;
    cli::append(bar, "<div style=\"width:%.3f%%;background:%s\"></div>", percent, colour);
    cli::append(rows, "<tr><td><span class=\"key\" style=\"background:%s\"></span>", colour);
    rows += label + std::string("</td><td>") + cli::rounded(seconds) + "</td>";
    cli::append(rows, "<td>%.1f %%</td></tr>\n", percent);
  };
  const auto parts = time_parts(model);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    add(parts[i].label, cli::colour_of(i), parts[i].seconds);
    rest -= parts[i].seconds;
  }
  add("the rest", "#dddddd", std::max(0.0, rest));
  rows += "<tr><td>all</td><td>" + cli::rounded(total) + "</td><td></td></tr>\n";
  return "<h2>Where the time went</h2>\n<p>Seconds of a worker (means), evaluations left out; the parts are "
         "those "
         "of table 4 of FastSGD's paper.</p>\n<div class=\"wide\">" +
         bar + "</div>\n<table><tr><th></th><th>seconds</th><th>share</th></tr>\n" + rows +
         "</table></div>\n";
}

std::string epochs_section(const std::vector<EpochReport>& epochs) {
  const auto cell = [](double value) {
    return "<td>" + (std::isfinite(value) ? cli::rounded(value) : std::string("")) + "</td>";
  };
  std::string rows;
  for (const EpochReport& epoch : epochs) {
    rows += "<tr><td>" + std::to_string(epoch.epoch) + "</td>" + cell(epoch.train_loss) +
            cell(epoch.test_loss) + cell(100 * epoch.accuracy) + cell(epoch.seconds) +
            cell(epoch.bytes_sent / 1e6) + cell(epoch.plain_ratio) + "</tr>\n";
  }
  return "<h2>Data epochs</h2>\n<div class=\"wide\"><table><tr><th>data epoch</th><th>loss</th><th>held-out "
         "loss</th><th>accuracy, %</th><th>seconds</th><th>MB sent</th><th>times smaller than plain "
         "pairs</th></tr>\n" +
         rows + "</table></div>\n";
}

}  // namespace

std::array<TimePart, 6> time_parts(const TrainedModel& model) {
  std::array<TimePart, 6> parts{
      TimePart{"compute_seconds", "computing gradients", &EpochReport::compute_seconds},
      TimePart{"encode_seconds", "encoding", &EpochReport::encode_seconds},
      TimePart{"exchange_seconds", "sending and waiting", &EpochReport::exchange_seconds},
      TimePart{"decode_seconds", "decoding", &EpochReport::decode_seconds},
      TimePart{"update_seconds", "updating the model", &EpochReport::update_seconds},
      TimePart{"checkpoint_seconds", "checkpoints", &EpochReport::checkpoint_seconds}};
  for (TimePart& part : parts) {
    for (const EpochReport& epoch : model.epochs) part.seconds += epoch.*part.of_epoch;
  }
  return parts;
}

std::string train_page(const nlohmann::ordered_json& settings, const TrainSettings& train,
                       const TrainedModel& model) {
  const EpochReport& last = model.epochs.back();
  const bool judged = std::isfinite(last.test_loss);
  std::string lead =
      std::to_string(last.epoch) + " data epochs in " + cli::rounded(last.seconds) + " seconds";
  if (std::isfinite(last.plain_ratio)) {
    lead += "; a worker sent " + cli::rounded(last.bytes_sent / 1e6) + " MB, " +
            cli::rounded(last.plain_ratio) +
            " times less than plain pairs of key and value in the last data epoch";
  }
  lead += "; " + ending_line(train, model) + ".";
  if (judged) {
    lead += " One guess for all rows has a held-out loss of " + cli::rounded(last.constant_loss);
    if (std::isfinite(last.constant_accuracy)) {
      lead += " and is right in " + cli::rounded(100 * last.constant_accuracy) + " % of them";
    }
    lead += ".";
  }
  const std::string headline =
      (judged ? "Held-out loss " + cli::rounded(last.test_loss) : "Loss " + cli::rounded(last.train_loss)) +
      (std::isfinite(last.accuracy) ? ", accuracy " + cli::rounded(100 * last.accuracy) + " %" : "");
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
         "content=\"width=device-width, initial-scale=1\"><title>deltawire train linear</title><style>" +
         std::string(kStyle) + "</style></head>\n<body><main>\n<h1>" + cli::escaped(headline) + "</h1>\n<p>" +
         cli::escaped(lead) + "</p>\n" + figures_of(model.epochs) + time_section(model) +
         epochs_section(model.epochs) + "<h2>Settings</h2>\n<div class=\"wide\"><pre>" +
         cli::escaped(settings.dump(2)) + "</pre></div>\n</main></body></html>\n";
}

}  // namespace deltawire::linear
