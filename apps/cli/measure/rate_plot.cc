#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <string_view>
#include <vector>

#include "cli/measure/rows.h"
#include "cli/svg.h"

namespace deltawire::cli {
namespace {

constexpr double kWidth = 760;
constexpr double kPanelHeight = 560;
constexpr double kLeft = 84;
constexpr double kRight = kWidth - 20;
constexpr double kTop = 46;
constexpr double kBottom = kPanelHeight - 86;  // of the log axis
constexpr double kLossless = kBottom + 24;     // the line of what lost nothing
constexpr double kLetterWidth = 7.2;           // of the labels, at 12 pixels
constexpr double kLetterHeight = 13;
constexpr double kDotRadius = 4.5;

struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;

  bool overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

struct Dot {
  std::string label;
  std::string colour;
  double x = 0, y = 0;  // pixels
};

bool is_drawn(const Row& row) {
  return row.bits_per_value > 0 && std::isfinite(row.bits_per_value) && std::isfinite(row.relative_l2);
}

void draw_axes(std::string& svg, const Axis& bits, const Axis& error) {
  draw_decades_across(svg, bits, {kTop, kLossless}, kLossless + 20);
  draw_decades_up(svg, error, {kLeft, kRight});
  append(svg, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#777\" stroke-dasharray=\"4 3\"/>\n", kLeft, kLossless,
         kRight);
  write_text(svg, kLeft - 8, kLossless + 4, " text-anchor=\"end\"", "0");
  write_text(svg, (kLeft + kRight) / 2, kLossless + 42, " text-anchor=\"middle\"",
             "bits per value, whole messages (log scale)");
  write_upwards(svg, {kTop, kBottom}, "relative L2 error of one message (log scale)");
}

Box box_at(const Dot& dot, double angle, double distance) {
  const double width = kLetterWidth * static_cast<double>(dot.label.size());
  const double x = dot.x + distance * std::cos(angle);
  const double y = dot.y + distance * std::sin(angle);
  // To the left of a dot a label ends, to its right it begins.
  const double left = x - width * (1 - std::cos(angle)) / 2;
  return {left, y - kLetterHeight / 2, left + width, y + kLetterHeight / 2};
}

bool is_free(const Box& box, const std::vector<Box>& taken) {
  const Box panel{kLeft - 4, kTop - 14, kRight + 16, kLossless + 8};
  if (box.left < panel.left || box.right > panel.right || box.top < panel.top || box.bottom > panel.bottom) {
    return false;
  }
  return std::ranges::none_of(taken, [&](const Box& other) { return box.overlaps(other); });
}

// The nearest place that covers no dot and no other label; a line leads to it where it is far.
void draw_label(std::string& svg, const Dot& dot, std::vector<Box>& taken) {
  constexpr int kAngles = 16;
  Box box = box_at(dot, 0, 9);
  double found = 9;
  for (double distance = 9; distance < kWidth; distance += 6) {
    bool free = false;
    for (int i = 0; i < kAngles && !free; ++i) {
      const double angle = i * 2 * std::numbers::pi / kAngles;
      const Box candidate = box_at(dot, angle, distance);
      free = is_free(candidate, taken);
      if (free) box = candidate;
    }
    if (!free) continue;
    found = distance;
    break;
  }
  taken.push_back(box);
  if (found > 20) {
    append(svg, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\" stroke-width=\"0.6\"/>\n", dot.x, dot.y,
           std::clamp(dot.x, box.left, box.right), std::clamp(dot.y, box.top, box.bottom),
           dot.colour.c_str());
  }
  const std::string look = " class=\"label\" fill=\"" + dot.colour + "\"";
  write_text(svg, box.left, box.bottom - 3, look.c_str(), dot.label);
}

std::vector<Dot> dots_of(const std::vector<const Row*>& rows, const Axis& bits, const Axis& error) {
  std::vector<Dot> dots;
  std::vector<std::string> codecs;  // in the order of their colours
  for (const Row* row : rows) {
    const std::string codec = row->method.spec.substr(0, row->method.spec.find(':'));
    auto known = std::ranges::find(codecs, codec);
    if (known == codecs.end()) known = codecs.insert(codecs.end(), codec);
    const auto number = static_cast<std::size_t>(known - codecs.begin());
    dots.push_back({row->method.spec, colour_of(number), bits.place(row->bits_per_value),
                    row->relative_l2 > 0 ? error.place(row->relative_l2) : kLossless});
  }
  return dots;
}

void draw_panel(std::string& svg, const std::string& input, const std::vector<const Row*>& rows) {
  std::vector<double> rates;
  std::vector<double> errors;
  for (const Row* row : rows) {
    rates.push_back(row->bits_per_value);
    if (row->relative_l2 > 0) errors.push_back(row->relative_l2);
  }
  if (rates.empty()) rates = {1, 10};
  if (errors.empty()) errors = {0.1, 1};
  const Axis bits = axis_round(rates, {kLeft, kRight});
  const Axis error = axis_round(errors, {kBottom, kTop});
  write_text(svg, kLeft - 50, 24, " font-size=\"15\" font-weight=\"bold\"", "Rate and distortion: " + input);
  draw_axes(svg, bits, error);
  const std::vector<Dot> dots = dots_of(rows, bits, error);
  std::vector<Box> taken;
  for (const Dot& dot : dots) {
    append(svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", dot.x, dot.y, kDotRadius,
           dot.colour.c_str());
    taken.push_back({dot.x - kDotRadius, dot.y - kDotRadius, dot.x + kDotRadius, dot.y + kDotRadius});
  }
  for (const Dot& dot : dots) draw_label(svg, dot, taken);
}

}  // namespace

std::string rate_plot(std::span<const Row> rows) {
  std::vector<std::string> inputs;
  for (const Row& row : rows) {
    if (std::ranges::find(inputs, row.input) == inputs.end()) inputs.push_back(row.input);
  }
  const double height = kPanelHeight * static_cast<double>(std::max<std::size_t>(1, inputs.size()));
  std::string svg;
  svg += svg_head(kWidth, height);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    append(svg, "<g transform=\"translate(0 %.0f)\">\n", kPanelHeight * static_cast<double>(i));
    std::vector<const Row*> drawn;
    for (const Row& row : rows) {
      if (row.input == inputs[i] && is_drawn(row)) drawn.push_back(&row);
    }
    draw_panel(svg, inputs[i], drawn);
    svg += "</g>\n";
  }
  return svg + "</svg>\n";
}

}  // namespace deltawire::cli
