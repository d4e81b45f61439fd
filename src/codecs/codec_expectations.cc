// A row of expectations for each codec: what the conformance tests hold it to.
#include <bit>
#include <cctype>
#include <cmath>
#include <stdexcept>

#include "codecs/codec_testing.h"

namespace deltawire::testing {

namespace {

double nothing(const EncodedValue&) {
  return 0;
}

// 8 bits of mantissa, rounded to nearest; the last term is half a step where bf16 is subnormal.
double bf16_error(const EncodedValue& value) {
  return std::fabs(value.x()) / 256 + 0x1p-134;
}

// Values in {-m, 0, m}; the scalar is m.
double threelc_error(const EncodedValue& value) {
  return std::bit_cast<float>(value.scalar) / 2;
}

// Truncation drops less than the lowest bit that it keeps; what lies below the normal numbers is flushed.
double gcomp_error(const EncodedValue& value) {
  const std::string spec = value.codec.spec();
  const std::size_t at = spec.find("cut=") + 4;
  const int bits = std::isdigit(static_cast<unsigned char>(spec[at])) != 0 ? std::stoi(spec.substr(at)) : 0;
  const double cut = bits == 0 ? 0 : std::ldexp(std::fabs(value.x()), bits - 23);
  return std::fabs(value.x()) < 0x1p-126 && !value.codec.info().lossless ? 0x1p-126 : cut;
}

}  // namespace

std::span<const Expectation> expectations() {
  static const Expectation kRows[] = {
      {.id = 1,
       .name = "fp32",
       .default_pattern = "direct",
       .error_bound = nothing,
       .conservation_bound = nothing},
      {.id = 2,
       .name = "bf16",
       .default_pattern = "direct",
       .error_bound = bf16_error,
       .conservation_bound = nothing},
      {.id = 3,
       .name = "3lc",
       .default_pattern = "direct",
       .error_bound = threelc_error,
       .conservation_bound = nothing,
       .specs = {"3lc:s=1.75", "3lc:mode=paper", "3lc:runs=off", "3lc:s=1.9999,mode=auto"},
       .hostile_specs = {"3lc:runs=off"}},
      {.id = 5,
       .name = "gcomp",
       .default_pattern = "ring",
       .error_bound = gcomp_error,
       .conservation_bound = nothing,
       .tiny_signs = {0, 0, 0, 0},
       .specs = {"gcomp:cut=0", "gcomp:cut=6", "gcomp:cut=12", "gcomp:cut=18", "gcomp:lossless=on"},
       .hostile_specs = {"gcomp:cut=12", "gcomp:lossless=on"}},
  };
  return kRows;
}

const Expectation& expectation_of(std::string_view name) {
  for (const Expectation& row : expectations()) {
    if (row.name == name) return row;
  }
  throw std::runtime_error("no row in expectations() for the codec " + std::string(name));
}

std::vector<std::string> conformance_specs() {
  std::vector<std::string> specs;
  for (const CodecInfo* info : registered_codecs()) {
    specs.emplace_back(info->name);
    for (const std::string& spec : expectation_of(info->name).specs) specs.push_back(spec);
  }
  return specs;
}

std::vector<std::string> hostile_specs() {
  std::vector<std::string> specs;
  for (const CodecInfo* info : registered_codecs()) {
    specs.emplace_back(info->name);
    for (const std::string& spec : expectation_of(info->name).hostile_specs) specs.push_back(spec);
  }
  return specs;
}

std::string test_name(std::string_view spec) {
  std::string name;
  for (const char c : spec) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

}  // namespace deltawire::testing
