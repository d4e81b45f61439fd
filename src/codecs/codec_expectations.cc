// A row of expectations for each codec: what the conformance tests hold it to.
#include <bit>
#include <cctype>
#include <cmath>
#include <stdexcept>

#include "codecs/codec_testing.h"

namespace deltawire::testing {

namespace {

float scalar_of(const EncodedValue& value) {
  return std::bit_cast<float>(value.scalar);
}

double nothing(const EncodedValue&) {
  return 0;
}

// 8 bits of mantissa, rounded to nearest; the last term is half a step where bf16 is subnormal.
double bf16_error(const EncodedValue& value) {
  return std::fabs(value.x()) / 256 + 0x1p-134;
}

// Values in {-m, 0, m}; the scalar is m.
double threelc_error(const EncodedValue& value) {
  return scalar_of(value) / 2;
}

// Each value is sent as the mean, or not at all.
double sbc_error(const EncodedValue& value) {
  const double x = value.x();
  return std::fmax(std::fabs(x), std::fabs(x - static_cast<double>(scalar_of(value))));
}

// What is left is one rounded subtraction: half a step of the result, which is no larger than this.
double sbc_conservation(const EncodedValue& value) {
  const double x = value.x();
  return std::fabs(x - static_cast<double>(scalar_of(value))) * 0x1p-24;
}

// Rounding moves a value by half of the lowest bit that it keeps, and cutting, where rounding could overflow,
// by less than all of it; what lies below the normal numbers is flushed.
double gcomp_error(const EncodedValue& value) {
  const std::string spec = value.codec.spec();
  const std::size_t at = spec.find("cut=") + 4;
  const int bits = std::isdigit(static_cast<unsigned char>(spec[at])) != 0 ? std::stoi(spec.substr(at)) : 0;
  const int half = std::fabs(value.x()) < 0x1p127 ? 1 : 0;
  const double cut = bits == 0 ? 0 : std::ldexp(std::fabs(value.x()), bits - 23 - half);
  return std::fabs(value.x()) < 0x1p-126 && !value.codec.info().lossless ? 0x1p-126 : cut;
}

// A value is dropped, or coded as the next of sum / b^L below it, so that it is off by less than 1 - 1/b of
// itself. Which ones are dropped is tested in fastsgd_test.cc.
double fastsgd_error(const EncodedValue& value) {
  return std::fabs(value.x());
}

// Half a step, the scalar, and the rounding of 127 steps to float32.
double int8_error(const EncodedValue& value) {
  return static_cast<double>(scalar_of(value)) * (0.5 + 0x1p-17);
}

// What an unbiased value is multiplied with at most: of n elements at least 2/3 k n are sent, and a stratum
// has no more than one element beyond the mean. 0 where nothing is scaled.
double randomk_factor(const EncodedValue& value) {
  const std::string spec = value.codec.spec();
  if (spec.find("unbiased=on") == std::string::npos) return 0;
  return 1.5 / std::stod(spec.substr(spec.find("k=") + 2)) + 1;
}

double randomk_error(const EncodedValue& value) {
  return std::fabs(value.x()) * std::fmax(1, randomk_factor(value));
}

// What is left of a scaled value is one rounded subtraction.
double randomk_conservation(const EncodedValue& value) {
  return std::fabs(value.x()) * randomk_factor(value) * 0x1p-23;
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
      {.id = 4,
       .name = "sbc",
       .default_pattern = "gather",
       .error_bound = sbc_error,
       .conservation_bound = sbc_conservation,
       .tiny_signs = {1, 0, 0, 0},
       .specs = {"sbc:p=0.1%", "sbc:p=0.25", "sbc:p=0.999"},
       .hostile_specs = {"sbc:p=0.25"}},
      {.id = 5,
       .name = "gcomp",
       .default_pattern = "ring",
       .error_bound = gcomp_error,
       .conservation_bound = nothing,
       .tiny_signs = {0, 0, 0, 0},
       .specs = {"gcomp:cut=0", "gcomp:cut=6", "gcomp:cut=12", "gcomp:cut=18", "gcomp:lossless=on"},
       .hostile_specs = {"gcomp:cut=12", "gcomp:lossless=on"}},
      {.id = 6,
       .name = "fastsgd",
       .default_pattern = "gather",
       .error_bound = fastsgd_error,
       .conservation_bound = nothing,
       .specs = {"fastsgd:tau=128", "fastsgd:keep=30%,residual=on", "fastsgd:b=2,tau=40,l=5",
                 "fastsgd:b=1.02,tau=2047,l=1"},
       .hostile_specs = {"fastsgd:tau=128", "fastsgd:b=2,tau=40,l=5", "fastsgd:b=1.02,tau=2047,l=1"}},
      {.id = 7,
       .name = "int8",
       .default_pattern = "direct",
       .error_bound = int8_error,
       .conservation_bound = nothing},
      {.id = 8,
       .name = "randomk",
       .default_pattern = "gather",
       .error_bound = randomk_error,
       .conservation_bound = randomk_conservation,
       .tiny_signs = {1, 0, 0, 0},  // one place of four is drawn, with the stream of these tests the first
       .specs = {"randomk:k=0.1%", "randomk:k=25%", "randomk:k=10%,unbiased=on"},
       .hostile_specs = {"randomk:k=25%"}},
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
