#include <cmath>
#include <cstdint>
#include <random>
#include <utility>

#include "base/errors.h"
#include "base/spec_text.h"
#include "cli/measure/input.h"

namespace deltawire::cli {
namespace {

constexpr std::uint64_t kUsualCount = std::uint64_t{1} << 20;
constexpr std::uint64_t kSmallCount = std::uint64_t{1} << 16;
constexpr std::uint64_t kMostCount = std::uint64_t{1} << 30;
constexpr std::uint64_t kUsualSeed = 1;
constexpr double kScale = 0.01;  // as gradients are: 16-bit codes meet their small numbers

// The generator is the standard's, and so are its numbers; its distributions may differ from library to
// library, so they are not used.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : generator_(seed) {}

  // In (-1, 1), never 0.
  double symmetric() { return uniform() * 2 - 1; }

  // In (0, 1).
  double uniform() { return (static_cast<double>(generator_() >> 12U) + 0.5) * 0x1p-52; }

  // Marsaglia's polar method.
  double normal() {
    return polar([](double square) { return -2 * std::log(square); });
  }

  // Student's t: its fourth moment does not exist.
  double student(double degrees) {
    // Bailey's polar method (Mathematics of Computation 62, 1994).
    return polar([=](double square) { return degrees * (std::pow(square, -2 / degrees) - 1); });
  }

  double laplace() {
    const double x = symmetric();
    return std::copysign(-std::log(1 - std::abs(x)), x);
  }

 private:
  // A side of a point in the circle, scaled by what its squared distance decides.
  double polar(const auto& squared_length) {
    while (true) {
      const double x = symmetric();
      const double y = symmetric();
      const double square = x * x + y * y;
      if (square < 1) return x * std::sqrt(squared_length(square) / square);
    }
  }

  std::mt19937_64 generator_;
};

struct Distribution {
  std::string_view name;
  std::string_view about;
  double (*draw)(Draws& draws);
};

constexpr Distribution kDistributions[] = {
    {"normal", "normal, standard deviation 0.01", [](Draws& draws) { return draws.normal(); }},
    {"laplace", "Laplace, mean magnitude 0.01", [](Draws& draws) { return draws.laplace(); }},
    {"heavy-tail", "Student's t with 3 degrees of freedom, times 0.01: a few values are very large",
     [](Draws& draws) { return draws.student(3); }},
    {"uniform", "uniform between -0.01 and 0.01", [](Draws& draws) { return draws.symmetric(); }},
    {"sparse", "99 of 100 values are 0, the others normal",
     [](Draws& draws) { return draws.uniform() < 0.01 ? draws.normal() : 0.0; }},
    {"constant", "every value is 0.01", [](Draws&) { return 1.0; }},
    {"zeros", "every value is 0", [](Draws&) { return 0.0; }},
};

struct Settings {
  std::uint64_t count = kUsualCount;
  std::uint64_t seed = kUsualSeed;
};

bool take_setting(std::string_view text, Settings& settings) {
  const bool is_count = text.starts_with("n=");
  if (!is_count && !text.starts_with("seed=")) return false;
  const auto number = parse_number<std::uint64_t>(text.substr(text.find('=') + 1));
  (is_count ? settings.count : settings.seed) = number.value_or(0);
  return number && (!is_count || (*number >= 1 && *number <= kMostCount));
}

bool take_settings(std::string_view text, Settings& settings) {
  while (true) {
    const std::size_t end = text.find(',');
    if (!take_setting(text.substr(0, end), settings)) return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

Input synthetic_input(const std::string& text, bool small) {
  const std::string_view rest = std::string_view(text).substr(kSyntheticPrefix.size());
  const std::size_t colon = rest.find(':');
  const std::string_view name = rest.substr(0, colon);
  Settings settings;
  if (small) settings.count = kSmallCount;
  if (colon != std::string_view::npos && !take_settings(rest.substr(colon + 1), settings)) {
    throw misused("--input \"" + text +
                  "\": after the name comes n=COUNT, seed=NUMBER or both, with a comma; " +
                  "COUNT is 1 to 2^30");
  }
  for (const Distribution& each : kDistributions) {
    if (each.name != name) continue;
    Draws draws(settings.seed);
    InputTensor tensor;
    tensor.name = name;
    tensor.shape = {settings.count};
    tensor.values.resize(settings.count);
    for (float& value : tensor.values) value = static_cast<float>(kScale * each.draw(draws));
    Input input;
    input.about = std::string(each.about) + "; seed " + std::to_string(settings.seed);
    input.steps.emplace_back().tensors.push_back(std::move(tensor));
    return input;
  }
  throw misused("--input \"" + text + "\": no synthetic input has this name; give one of " +
                list_of(kDistributions, ", ", &Distribution::name));
}

std::string synthetic_names() {
  std::string text;
  for (const Distribution& each : kDistributions) {
    text += "  " + std::string(each.name) + std::string(12 - each.name.size(), ' ') +
            std::string(each.about) + "\n";
  }
  return text;
}

}  // namespace deltawire::cli
