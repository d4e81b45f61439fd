// Drawing figures as SVG text. The same calls give the same bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace deltawire::cli {

// "<svg ...>" with the styles `grid` (lines) and `label` (text on white), and a white background.
std::string svg_head(double width, double height);

// The demo's colours, which people with colour blindness can tell apart. There are nine; further lines repeat
// them with dashes: dashes_of is the stroke-dasharray of a line, "none" for the first nine.
const char* colour_of(std::size_t number);
const char* dashes_of(std::size_t number);

// At most 511 characters.
[[gnu::format(printf, 2, 3)]] void append(std::string& svg, const char* format, ...);

// `attributes` begin with a space; `text` is escaped.
void write_text(std::string& svg, double x, double y, const char* attributes, std::string_view text);

// Escaped for text and attribute values of SVG and HTML. Control characters except line feeds become spaces.
std::string escaped(std::string_view text);

struct Pixels {
  double from = 0;
  double to = 0;
};

// An axis with a tick at each multiple of `step`.
struct LinearAxis {
  double low = 0, high = 0;  // multiples of `step`
  double step = 1;           // 1, 2 or 5 times a power of ten
  Pixels pixels;

  double place(double value) const;
};

// An axis with at most five steps that covers both values, which may be equal. REQUIRES: low <= high, both
// finite.
LinearAxis linear_axis(double low, double high, const Pixels& pixels);

// Grid lines and numbers, placed as by draw_decades_across and draw_decades_up.
void draw_ticks_across(std::string& svg, const LinearAxis& axis, const Pixels& y, double name_y);
void draw_ticks_up(std::string& svg, const LinearAxis& axis, const Pixels& x);

// A logarithmic axis.
struct Axis {
  double low = 0, high = 0;  // exponents of ten
  Pixels pixels;

  double place(double value) const;
};

// Covers all values with a margin at both ends, and at least half a decade. REQUIRES: at least one value, all
// above 0.
Axis axis_round(const std::vector<double>& values, const Pixels& pixels);

// A grid line and a label for each power of ten, and for twos and fives if there are fewer than three.
// Horizontal axis: lines across the span `y`, labels at the baseline `name_y`. Vertical axis: lines across
// the span `x`, labels to their left.
void draw_decades_across(std::string& svg, const Axis& axis, const Pixels& y, double name_y);
void draw_decades_up(std::string& svg, const Axis& axis, const Pixels& x);

// The title of a vertical axis, read upwards.
void write_upwards(std::string& svg, const Pixels& y, const char* text);

}  // namespace deltawire::cli
