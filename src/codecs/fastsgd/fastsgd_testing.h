// fastsgd once more, slow and in one piece, from spec.md: what the tests compare the codec's bytes with. It
// shares no code with the codec.
#pragma once

#include <cstdint>
#include <vector>

#include "codecs/codec_testing.h"

namespace deltawire::testing {

struct FastsgdModel {
  float b = 1.1F;
  int tau = -1;  // -1: auto
  float keep = 0.25F;
  int l = 2;

  // What L = code stands for, given the sum.
  float value(float sum, int code) const;

  // The largest L that is sent for these values.
  int threshold(const std::vector<float>& values, float sum) const;

  Encoded encode(const std::vector<float>& values) const;
  std::vector<float> decode(const Encoded& part, std::uint64_t count) const;
};

// The sum of magnitudes in the tree that spec.md states, rounded to float32.
float fastsgd_sum(const std::vector<float>& values);

}  // namespace deltawire::testing
