// sketchml once more, slow and in one piece, from spec.md: what the tests compare the codec with. It shares
// no code with the codec.
#pragma once

#include <cstdint>
#include <vector>

#include "codecs/codec_testing.h"

namespace deltawire::testing {

struct SketchmlModel {
  int q = 256;
  int r = 8;
  int rows = 2;
  float cols = 0.3F;

  struct Result {
    Encoded part;
    std::vector<float> decoded;
    std::vector<float> of_bucket;  // each value's own bucket's mean
    std::vector<float> least;      // the smallest mean of its group
  };
  Result encode(const std::vector<float>& values, std::uint32_t seed) const;
};

// The cell's column, of so many.
std::uint32_t sketchml_column(std::uint32_t seed, std::uint32_t key, int row, std::uint32_t columns);

}  // namespace deltawire::testing
