#include "linear/generate_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <numbers>

#include "base/random.h"

namespace deltawire::linear {
namespace {

constexpr std::array kClickFields{Field{"display URL", 26'273},
                                  Field{"ad", 641'707},
                                  Field{"advertiser", 14'847},
                                  Field{"depth and position", 6},
                                  Field{"query", 24'122'076},
                                  Field{"keyword", 1'188'089},
                                  Field{"title", 3'735'796},
                                  Field{"description", 2'934'101},
                                  Field{"user", 22'023'547},
                                  Field{"gender", 3},
                                  Field{"age", 7}};

constexpr std::array kShapes{
    DataShape{"url", 2'396'130, 3'231'961, 115.63, 0.15, true, false, 0.33, {}},
    DataShape{"kdd10", 19'264'097, 29'890'095, 29.40, 0.3, true, false, 0.86, {}},
    DataShape{"kdd12", 149'639'105, 54'686'452, 11, 0, false, false, 0.045, kClickFields},
    DataShape{"webspam", 350'000, 16'609'143, 3727.7, 0.8, false, true, 0.61, {}},
};

// Streams of random numbers; each row has one of those that follow.
enum Stream : std::uint64_t { kWeights, kPlaces, kFirstRow };

constexpr double kTrialFeatures = 1e6;
constexpr std::uint64_t kFirstTrialRow = std::uint64_t{1} << 62;  // far beyond the rows that are written
constexpr int kValueDigits = 4;

double uniform_of(std::uint64_t random) noexcept {
  return (static_cast<double>(random >> 11) + 0.5) * 0x1p-53;
}

// A normal random number, by Box and Muller.
double normal_of(std::uint64_t a, std::uint64_t b) noexcept {
  return std::sqrt(-2 * std::log(uniform_of(a))) * std::cos(2 * std::numbers::pi * uniform_of(b));
}

// A permutation of [0, count): four Feistel rounds on numbers of that many bits, repeated until the result is
// below `count`.
std::uint64_t shuffled(std::uint64_t number, std::uint64_t count, const CounterRng& random) noexcept {
  const int half = std::max(1, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = number >> half;
    std::uint64_t right = number & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      left ^= random.at(right << 2 | round) & mask;
      std::swap(left, right);
    }
    number = left << half | right;
  } while (number >= count);
  return number;
}

template <class... Format>
void append_number(std::string& text, Format... number) {
  char digits[32];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, number...).ptr);
}

}  // namespace

std::optional<DataShape> find_shape(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(kShapes, name, &DataShape::name);
  if (found == kShapes.end()) return std::nullopt;
  return *found;
}

std::span<const DataShape> all_shapes() noexcept {
  return kShapes;
}

RowGenerator::RowGenerator(const DataShape& shape, const GenerateSettings& settings)
    : shape_(shape), settings_(settings) {
  const Field all{"all", shape.features};
  const std::span<const Field> fields = shape.fields.empty() ? std::span(&all, 1) : shape.fields;
  // Fields shrink in proportion, but small fields keep their values while there is room.
  std::vector<std::uint64_t> counts;
  const double scale = static_cast<double>(settings.features) / static_cast<double>(shape.features);
  const std::uint64_t least = settings.features / (8 * fields.size());
  std::uint64_t sum = 0;
  for (const Field& field : fields) {
    const auto scaled = static_cast<std::uint64_t>(scale * static_cast<double>(field.features));
    counts.push_back(
        std::max<std::uint64_t>({1, scaled, std::min({field.features, least, std::uint64_t{16}})}));
    sum += counts.back();
  }
  for (; sum > settings.features; --sum) --*std::ranges::max_element(counts);
  *std::ranges::max_element(counts) += settings.features - sum;
  std::uint64_t first = 0;
  for (const std::uint64_t count : counts) {
    ranges_.push_back({first, count, std::pow(static_cast<double>(count) + 1, 1 - kSkew) - 1});
    first += count;
  }
  std::vector<double> margins;
  const auto trials =
      static_cast<std::size_t>(std::clamp(kTrialFeatures / shape.features_a_row, 256.0, 4096.0));
  for (std::size_t i = 0; i < trials; ++i) {
    draw(kFirstTrialRow + i);
    margins.push_back(margin());
  }
  const auto border =
      margins.begin() + static_cast<std::ptrdiff_t>((1 - shape.positives) * static_cast<double>(trials));
  std::ranges::nth_element(margins, border);
  threshold_ = *border;
}

float RowGenerator::weight_of(std::uint64_t index) const noexcept {
  const CounterRng random(settings_.seed, kWeights);
  return static_cast<float>(normal_of(random.at(2 * index), random.at(2 * index + 1)));
}

// The inverse of a continuous distribution with Zipf's density.
std::uint32_t RowGenerator::draw_index(const Range& range, std::uint64_t random) const noexcept {
  const double at = std::pow(1 + uniform_of(random) * range.reach, 1 / (1 - kSkew));
  std::uint64_t place = std::min(static_cast<std::uint64_t>(at) - 1, range.features - 1);
  if (!shape_.popular_first) place = shuffled(place, range.features, CounterRng(settings_.seed, kPlaces));
  return static_cast<std::uint32_t>(range.first + place + 1);
}

void RowGenerator::draw(std::uint64_t row) {
  CounterRng random(settings_.seed, kFirstRow + row);
  random.next();  // numbers 0 and 1 belong to the label
  random.next();
  features_.clear();
  if (ranges_.size() > 1) {
    for (const Range& range : ranges_) features_.push_back({draw_index(range, random.next()), 1});
    return;
  }
  const double a = normal_of(random.next(), random.next());
  const double wanted = shape_.features_a_row * std::exp(shape_.spread * (a - shape_.spread / 2));
  // Drawing most of the features would take long.
  const auto count = static_cast<std::size_t>(
      std::clamp(std::round(wanted), 1.0, std::max(1.0, static_cast<double>(settings_.features) / 8)));
  while (features_.size() < count) {
    for (std::size_t i = features_.size(); i < count; ++i) {
      features_.push_back({draw_index(ranges_.front(), random.next()), 1});
    }
    std::ranges::sort(features_, {}, &Feature::index);
    const auto repeated = std::ranges::unique(features_, {}, &Feature::index);
    features_.erase(repeated.begin(), repeated.end());
  }
  if (shape_.unit_length) scale_to_length(row);
}

// Values are counts, mostly 1 and a few large (P(count >= c) = 1 / c), scaled, and rounded when they are
// written.
void RowGenerator::scale_to_length(std::uint64_t row) {
  const CounterRng random(settings_.seed ^ 0x5ca1e, kFirstRow + row);
  double squares = 0;
  for (std::size_t i = 0; i < features_.size(); ++i) {
    features_[i].value = static_cast<float>(std::min(100.0, std::floor(1 / uniform_of(random.at(i)))));
    squares += static_cast<double>(features_[i].value) * static_cast<double>(features_[i].value);
  }
  for (Feature& feature : features_) {
    feature.value = static_cast<float>(static_cast<double>(feature.value) / std::sqrt(squares));
  }
}

double RowGenerator::margin() const noexcept {
  double sum = 0;
  for (const Feature& feature : features_) {
    sum += static_cast<double>(weight_of(feature.index)) * static_cast<double>(feature.value);
  }
  return sum;
}

void RowGenerator::append(std::uint64_t row, std::string& text) {
  draw(row);
  CounterRng random(settings_.seed, kFirstRow + row);
  const double lot = random.next_uniform();
  const double drawn = random.next_uniform();
  const bool positive = lot < settings_.noise ? drawn < shape_.positives : margin() > threshold_;
  text += positive ? "1" : "-1";
  for (const Feature& feature : features_) {
    text += ' ';
    append_number(text, feature.index);
    text += ':';
    if (shape_.unit_length) {
      append_number(text, feature.value, std::chars_format::general, kValueDigits);
    } else {
      text += '1';
    }
  }
  text += '\n';
}

}  // namespace deltawire::linear
