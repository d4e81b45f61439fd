#include "cli/plan/sites.h"

#include <cmath>
#include <optional>
#include <utility>

#include "base/spec_text.h"
#include "cli/number_text.h"

namespace deltawire::cli {
namespace {

constexpr double kLeastRate = 1e3;  // bytes a second
constexpr double kMostRate = 1e12;
constexpr double kRateStep = 3.1622776601683795;  // two a decade
constexpr int kMostRanks = 65536;
constexpr double kLatency = 1e-4;  // of a local network, where nobody says otherwise

struct Unit {
  std::string_view name;
  double value;
};
constexpr Unit kRates[] = {{"kbit", 125}, {"mbit", 125e3}, {"gbit", 125e6}};
constexpr Unit kTimes[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};  // "s" last: the others end with it

// "100mbit" by the units: a number and nothing else before one.
template <std::size_t Count>
std::optional<double> parse_quantity(std::string_view text, const Unit (&units)[Count]) {
  for (const auto& [name, value] : units) {
    if (!text.ends_with(name)) continue;
    const std::string_view digits = text.substr(0, text.size() - name.size());
    const auto number = parse_number<double>(digits);
    if (!number || !std::isfinite(*number)) return std::nullopt;
    return *number * value;
  }
  return std::nullopt;
}

std::optional<double> parse_rate(std::string_view text) {
  const auto rate = parse_quantity(text, kRates);
  if (!rate || *rate < kLeastRate || *rate > kMostRate) return std::nullopt;
  return rate;
}

// "a..b" as "a" and "b"; "a" alone as itself twice.
std::pair<std::string_view, std::string_view> ends_of(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return {text, text};
  return {text.substr(0, dots), text.substr(dots + 2)};
}

Failure bad_link(const std::string& text) {
  return misused("--link \"" + text +
                 "\": write a rate and, if you know it, the latency one way: 100mbit; 100mbit,20ms; down/up: "
                 "100mbit/20mbit; a range: 10mbit..10gbit,1ms (8kbit to 8000gbit)");
}

std::optional<int> ranks_of(std::string_view text) {
  const auto count = count_of(text);
  if (!count || *count < 2 || *count > kMostRanks) return std::nullopt;
  return static_cast<int>(*count);
}

// "100/20 Mbit/s" needs one unit for both.
std::pair<double, const char*> unit_of(double bytes_per_second) {
  const double bits = 8 * bytes_per_second;
  if (bits >= 0.9995e9) return {1e9, "Gbit/s"};
  if (bits >= 0.9995e6) return {1e6, "Mbit/s"};
  return {1e3, "kbit/s"};
}

}  // namespace

std::vector<int> parse_ranks(const std::string& text) {
  std::vector<int> ranks;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    const auto [from, to] = ends_of(rest.substr(0, comma));
    const auto first = ranks_of(from);
    const auto last = ranks_of(to);
    if (!first || !last || *first > *last) {
      throw misused("--ranks \"" + text + "\": write 4; 4,8,64; or 4..1024 (2 to " + grouped(kMostRanks) +
                    ")");
    }
    for (int count = *first; count < *last; count *= 2) ranks.push_back(count);
    ranks.push_back(*last);
    if (comma == std::string_view::npos) return ranks;
    rest = rest.substr(comma + 1);
  }
}

std::vector<LinkRates> parse_links(const std::string& text) {
  const std::string_view whole = text;
  const std::size_t comma = whole.find(',');
  LinkRates link;
  link.latency_seconds = kLatency;
  if (comma != std::string_view::npos) {
    const auto latency = parse_quantity(whole.substr(comma + 1), kTimes);
    if (!latency || *latency < 0 || *latency > 60) throw bad_link(text);
    link.latency_seconds = *latency;
  }
  const std::string_view rates = whole.substr(0, comma);
  const std::size_t slash = rates.find('/');
  if (slash != std::string_view::npos) {
    const auto down = parse_rate(rates.substr(0, slash));
    const auto up = parse_rate(rates.substr(slash + 1));
    if (!down || !up) throw bad_link(text);
    link.down_bytes_per_second = *down;
    link.up_bytes_per_second = *up;
    return std::vector<LinkRates>{link};
  }
  const auto [from, to] = ends_of(rates);
  const auto slowest = parse_rate(from);
  const auto fastest = parse_rate(to);
  if (!slowest || !fastest || *slowest > *fastest) throw bad_link(text);
  std::vector<LinkRates> links;
  const auto add = [&](double rate) {
    link.up_bytes_per_second = link.down_bytes_per_second = rate;
    links.push_back(link);
  };
  // By whole steps, so that a decade further is a round number again.
  for (int step = 0;; ++step) {
    const double rate = *slowest * std::pow(10, step / 2) * (step % 2 == 0 ? 1 : kRateStep);
    if (rate > *fastest * 0.999) break;
    add(rate);
  }
  add(*fastest);
  return links;
}

std::string rate_name(double bytes_per_second) {
  const auto [unit, name] = unit_of(bytes_per_second);
  return significant(8 * bytes_per_second / unit) + " " + name;
}

std::string link_name(const LinkRates& link) {
  const auto [unit, name] = unit_of(link.down_bytes_per_second);
  std::string text = significant(8 * link.down_bytes_per_second / unit);
  if (link.up_bytes_per_second != link.down_bytes_per_second) {
    text += "/" + significant(8 * link.up_bytes_per_second / unit);
  }
  return text + " " + name + ", " + significant(1e3 * link.latency_seconds) + " ms";
}

}  // namespace deltawire::cli
