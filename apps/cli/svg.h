// What figures are drawn with: SVG as text. The same calls give the same bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace deltawire::cli {

// "<svg ...>" with the styles `grid` (lines) and `label` (texts on a white ground), and a white sheet.
std::string svg_head(double width, double height);

// Of the demo's plots: people with colour blindness can tell them apart. They begin again after the ninth,
// with dashes: dashes_of is the stroke-dasharray of the numbered line, "none" for the first nine.
const char* colour_of(std::size_t number);
const char* dashes_of(std::size_t number);

// At most 511 characters.
[[gnu::format(printf, 2, 3)]] void append(std::string& svg, const char* format, ...);

// `attributes` begin with a space; `text` is escaped.
void write_text(std::string& svg, double x, double y, const char* attributes, std::string_view text);

// As text or an attribute's value of SVG and HTML. Control characters but for line feeds become spaces.
std::string escaped(std::string_view text);

struct Pixels {
  double from = 0;
  double to = 0;
};

// An axis with a tick at each multiple of `step`.
struct LinearAxis {
  double low = 0, high = 0;  // multiples of it
  double step = 1;           // 1, 2 or 5 times a power of ten
  Pixels pixels;

  double place(double value) const;
};

// Five steps or fewer round both values, which need not differ. REQUIRES: low <= high, both finite.
LinearAxis linear_axis(double low, double high, const Pixels& pixels);

// Lines and numbers, as draw_decades_across and draw_decades_up place them.
void draw_ticks_across(std::string& svg, const LinearAxis& axis, const Pixels& y, double name_y);
void draw_ticks_up(std::string& svg, const LinearAxis& axis, const Pixels& x);

// A log axis.
struct Axis {
  double low = 0, high = 0;  // exponents of ten
  Pixels pixels;

  double place(double value) const;
};

// All values, with a little air at both ends, and at least half a decade. REQUIRES: a value, all above 0.
Axis axis_round(const std::vector<double>& values, const Pixels& pixels);

// A line and a name for each power of ten, where there are fewer than three for its doubles and fives, too:
// of a horizontal axis, lines in the span `y` and names' feet at `name_y`; of a vertical one, lines in the
// span `x` and names to their left.
void draw_decades_across(std::string& svg, const Axis& axis, const Pixels& y, double name_y);
void draw_decades_up(std::string& svg, const Axis& axis, const Pixels& x);

// What a vertical axis shows, read from below.
void write_upwards(std::string& svg, const Pixels& y, const char* text);

}  // namespace deltawire::cli
