// The numbers that codecs are measured with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace deltawire::bench {

struct Input {
  std::string name;
  std::vector<float> values;
  std::vector<float> significance;  // of each value, for codecs that ask for it; may be empty
};

// `count` values, the same for every program and run. Names:
//   normal      normally distributed, standard deviation 1e-3
//   laplace     Laplace-distributed: more small values, longer tails
//   uniform     in (-1, 1): a dense tensor in which every other element counts
//   layers      normal and Laplace in turn, blocks of different scale, as a model's layers lie in a bucket
//   zeros       layers, of which every other value is 0 (ReLU, embeddings)
//   random      random bits of finite numbers: nothing can be gained
//   clicks      Laplace-distributed, of scales that are distributed log-normally: a linear model's sparse
//               gradient
//   weights     normal, with significances as SGD at rate 0.01 gives them for weights of 0.05
// or the name of a file of little-endian float32 (a recorded gradient), repeated until there are enough.
// Throws std::invalid_argument where there is no such input.
Input make_input(const std::string& name, std::size_t count);

// Keys of a key-value tensor, the same for every program and run: 1 % of all elements are one.
std::vector<std::uint32_t> keys_for(std::size_t pairs);

}  // namespace deltawire::bench
