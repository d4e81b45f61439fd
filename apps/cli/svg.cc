#include "cli/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <initializer_list>

namespace deltawire::cli {
namespace {

constexpr std::array kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#222222",
                                 "#e69f00", "#56b4e9", "#8c564b", "#8c8c8c"};

std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", number);
  return text;
}

// A line of the grid and its name; of an axis that goes across, and of one that goes up.
void draw_tick_across(std::string& svg, double at, const Pixels& y, double name_y, double number) {
  append(svg, "<path d=\"M%.1f %.1fV%.1f\" class=\"grid\"/>\n", at, y.from, y.to);
  write_text(svg, at, name_y, " text-anchor=\"middle\"", number_text(number));
}

void draw_tick_up(std::string& svg, double at, const Pixels& x, double number) {
  append(svg, "<path d=\"M%.1f %.1fH%.1f\" class=\"grid\"/>\n", x.from, at, x.to);
  write_text(svg, x.from - 8, at + 4, " text-anchor=\"end\"", number_text(number));
}

// Powers of ten on the axis; with their doubles and fives where they alone would be fewer than three.
std::vector<double> ticks_of(const Axis& axis) {
  const auto multiples = [&](std::initializer_list<double> digits) {
    std::vector<double> ticks;
    for (double power = std::floor(axis.low); power <= axis.high; ++power) {
      for (const double digit : digits) {
        const double tick = digit * std::pow(10, power);
        if (std::log10(tick) >= axis.low && std::log10(tick) <= axis.high) ticks.push_back(tick);
      }
    }
    return ticks;
  };
  auto ticks = multiples({1});
  return ticks.size() < 3 ? multiples({1, 2, 5}) : ticks;
}

}  // namespace

std::string svg_head(double width, double height) {
  std::string svg;
  append(svg,
         "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-size=\"12\" "
         "font-family=\"DejaVu Sans,sans-serif\">\n",
         width, height);
  return svg +
         "<style>.grid{stroke:#e4e4e4}.label{paint-order:stroke;stroke:#fff;stroke-width:3px}</style>\n<rect "
         "width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
}

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char character : text) {
    switch (character) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      case '\n': safe += character; break;
      default: safe += static_cast<unsigned char>(character) < 0x20 ? ' ' : character;
    }
  }
  return safe;
}

const char* colour_of(std::size_t number) {
  return kColours[number % kColours.size()];
}

const char* dashes_of(std::size_t number) {
  static constexpr std::array kDashes = {"none", "2 3", "8 3 2 3"};
  return kDashes[number / kColours.size() % kDashes.size()];
}

void append(std::string& svg, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  svg += text;
}

void write_text(std::string& svg, double x, double y, const char* attributes, std::string_view text) {
  append(svg, "<text x=\"%.1f\" y=\"%.1f\"%s>", x, y, attributes);
  svg += escaped(text) + "</text>\n";
}

double Axis::place(double value) const {
  return pixels.from + (std::log10(value) - low) / (high - low) * (pixels.to - pixels.from);
}

Axis axis_round(const std::vector<double>& values, const Pixels& pixels) {
  const auto [low, high] = std::ranges::minmax(values);
  constexpr double kAir = 0.06;
  constexpr double kLeast = 0.5;
  const double middle = (std::log10(low) + std::log10(high)) / 2;
  const double half = std::max(kLeast, std::log10(high) - std::log10(low) + 2 * kAir) / 2;
  return {middle - half, middle + half, pixels};
}

void draw_decades_across(std::string& svg, const Axis& axis, const Pixels& y, double name_y) {
  for (const double number : ticks_of(axis)) draw_tick_across(svg, axis.place(number), y, name_y, number);
}

void draw_decades_up(std::string& svg, const Axis& axis, const Pixels& x) {
  for (const double number : ticks_of(axis)) draw_tick_up(svg, axis.place(number), x, number);
}

double LinearAxis::place(double value) const {
  return pixels.from + (value - low) / (high - low) * (pixels.to - pixels.from);
}

LinearAxis linear_axis(double low, double high, const Pixels& pixels) {
  constexpr double kStepsMax = 5;
  if (low == high) high = low + (low == 0 ? 1 : std::fabs(low));
  double step = std::pow(10, std::floor(std::log10((high - low) / kStepsMax)));
  for (const double factor : {2.0, 2.5, 2.0}) {  // 1, 2, 5, 10
    if (std::ceil(high / step) - std::floor(low / step) <= kStepsMax) break;
    step *= factor;
  }
  return {step * std::floor(low / step), step * std::ceil(high / step), step, pixels};
}

void draw_ticks_across(std::string& svg, const LinearAxis& axis, const Pixels& y, double name_y) {
  for (double tick = std::round(axis.low / axis.step); tick * axis.step < axis.high + axis.step / 2; ++tick) {
    draw_tick_across(svg, axis.place(tick * axis.step), y, name_y, tick * axis.step);
  }
}

void draw_ticks_up(std::string& svg, const LinearAxis& axis, const Pixels& x) {
  for (double tick = std::round(axis.low / axis.step); tick * axis.step < axis.high + axis.step / 2; ++tick) {
    draw_tick_up(svg, axis.place(tick * axis.step), x, tick * axis.step);
  }
}

void write_upwards(std::string& svg, const Pixels& y, const char* text) {
  append(svg, "<text transform=\"translate(16 %.1f) rotate(-90)\" text-anchor=\"middle\">",
         (y.from + y.to) / 2);
  svg += std::string(text) + "</text>\n";
}

}  // namespace deltawire::cli
