#include "coding/inputs.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numbers>
#include <stdexcept>

#include "base/random.h"

namespace deltawire::bench {

namespace {

constexpr std::size_t kLayer = 300000;  // elements that share a scale

// Keys of a key-value tensor: of all elements each is one with this probability, and one distance in a
// hundred is 20 times as long, as words and clicks have it.
constexpr double kDensity = 0.01;
constexpr double kLongShare = 0.01;
constexpr double kLongFactor = 20;

double normal(CounterRng& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.next_uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.next_uniform());
}

double laplace(CounterRng& random) {
  const double u = random.next_uniform() - 0.5;
  return (u < 0 ? 1 : -1) * std::log(1 - 2 * std::fabs(u));
}

float layered(CounterRng& random, std::size_t i) {
  const std::size_t layer = i / kLayer;
  const double scale = std::pow(10.0, -2.0 - static_cast<double>(layer * 7 % 4));
  return static_cast<float>(scale * (layer % 2 == 0 ? normal(random) : laplace(random)));
}

float random_bits(CounterRng& random) {
  const auto bits = static_cast<std::uint32_t>(random.next() >> 32);
  return std::bit_cast<float>(bits & 0xBFFFFFFF);  // exponents below 2^0: no NaN, no Inf
}

std::vector<float> recorded(const std::string& path, std::size_t count) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < sizeof(float)) {
    throw std::invalid_argument("'" + path +
                                "' is not an input: give normal, laplace, clicks, uniform, layers, zeros, " +
                                "random, weights, or a file of little-endian float32");
  }
  std::vector<float> values(count);
  const std::size_t held = bytes.size() / sizeof(float);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(&values[i], bytes.data() + i % held * sizeof(float), sizeof(float));
  }
  return values;
}

}  // namespace

Input make_input(const std::string& name, std::size_t count) {
  CounterRng random(1);
  Input input{name, {}, {}};
  const auto fill = [&](const auto& value_at) {
    input.values.resize(count);
    for (std::size_t i = 0; i < count; ++i) input.values[i] = static_cast<float>(value_at(i));
  };
  if (name == "normal" || name == "weights") {
    fill([&](std::size_t) { return 1e-3 * normal(random); });
  } else if (name == "laplace") {
    fill([&](std::size_t) { return 1e-3 * laplace(random); });
  } else if (name == "clicks") {
    fill([&](std::size_t) { return 1e-2 * laplace(random) * std::exp(normal(random)); });
  } else if (name == "uniform") {
    fill([&](std::size_t) { return 2 * random.next_uniform() - 1; });
  } else if (name == "layers") {
    fill([&](std::size_t i) { return layered(random, i); });
  } else if (name == "zeros") {
    fill([&](std::size_t i) { return random.next() % 2 == 0 ? 0.0F : layered(random, i); });
  } else if (name == "random") {
    fill([&](std::size_t) { return random_bits(random); });
  } else {
    input.values = recorded(name, count);
  }
  if (name == "weights") {
    input.significance.resize(count);
    for (float& each : input.significance) each = static_cast<float>(0.05 * normal(random) / 0.01);
  }
  return input;
}

std::vector<std::uint32_t> keys_for(std::size_t pairs) {
  CounterRng random(2);
  std::vector<std::uint32_t> keys(pairs);
  double key = 0;
  for (std::uint32_t& each : keys) {
    const double gap = std::floor(std::log(1 - random.next_uniform()) / std::log(1 - kDensity));
    key += random.next_uniform() < kLongShare ? gap * kLongFactor : gap;
    each = static_cast<std::uint32_t>(key);
    key += 1;
  }
  return keys;
}

}  // namespace deltawire::bench
