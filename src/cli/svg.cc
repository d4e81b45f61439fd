#include "cli/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace deltawire::cli {
namespace {

constexpr std::array kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#222222",
                                 "#e69f00", "#56b4e9", "#8c564b", "#8c8c8c"};

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char character : text) {
    switch (character) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe += static_cast<unsigned char>(character) < 0x20 ? ' ' : character;
    }
  }
  return safe;
}

// 10^power, as an axis names it.
std::string decade_text(double power) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", std::pow(10, power));
  return text;
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

const char* colour_of(std::size_t number) {
  return kColours[number % kColours.size()];
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
  Axis axis{std::floor(std::log10(low) - 0.05), std::ceil(std::log10(high) + 0.05), pixels};
  if (axis.high - axis.low < 1) axis.high = axis.low + 1;
  return axis;
}

void draw_decades_across(std::string& svg, const Axis& axis, const Pixels& y, double name_y) {
  for (double power = axis.low; power <= axis.high; ++power) {
    const double at = axis.place(std::pow(10, power));
    append(svg, "<path d=\"M%.1f %.1fV%.1f\" class=\"grid\"/>\n", at, y.from, y.to);
    write_text(svg, at, name_y, " text-anchor=\"middle\"", decade_text(power));
  }
}

void draw_decades_up(std::string& svg, const Axis& axis, const Pixels& x) {
  for (double power = axis.low; power <= axis.high; ++power) {
    const double at = axis.place(std::pow(10, power));
    append(svg, "<path d=\"M%.1f %.1fH%.1f\" class=\"grid\"/>\n", x.from, at, x.to);
    write_text(svg, x.from - 8, at + 4, " text-anchor=\"end\"", decade_text(power));
  }
}

void write_upwards(std::string& svg, const Pixels& y, const char* text) {
  append(svg, "<text transform=\"translate(18 %.1f) rotate(-90)\" text-anchor=\"middle\">",
         (y.from + y.to) / 2);
  svg += std::string(text) + "</text>\n";
}

}  // namespace deltawire::cli
