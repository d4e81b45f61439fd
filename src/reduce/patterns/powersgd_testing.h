// For tests of `powersgd`: tensors of every kind, and the algorithm without transport, buckets or tricks,
// which the reducer must equal bit for bit.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "deltawire/reducer.h"
#include "reduce/sequential_testing.h"

namespace deltawire::testing {

struct ShapedTensor {
  std::string name;
  std::vector<std::uint64_t> dims;
  bool is_compressed = false;  // with rank 4 and 256 elements at least

  std::uint64_t elements() const;
  std::uint64_t rows() const { return dims[0]; }
  std::uint64_t columns() const { return elements() / dims[0]; }
};

// Matrices and convolutions that get smaller, and what does not: too thin, too small, no matrix, empty.
const std::vector<ShapedTensor>& shaped_tensors();
std::vector<Named> named_shaped(Tensors& tensors);
Tensors shaped_gradients(int rank, std::uint64_t step);

// With rank 4 and the default policy.
class PowerSgdModel {
 public:
  PowerSgdModel(std::string codec, int world) : codec_(std::move(codec)), world_(world) {}

  // The means of a step that counts; residuals and Qs go on.
  Tensors mean(const std::vector<Tensors>& inputs, std::uint64_t step);

  // A step that is folded back: its input comes with the next step's.
  void fold(const std::vector<Tensors>& inputs);

  // Of a compressed tensor; empty before its first step.
  std::vector<float> residual(int rank, std::size_t tensor) const;

 private:
  struct Matrix {
    std::vector<std::vector<float>> residuals;  // by rank
    std::vector<float> start;
  };

  Matrix& matrix_of(std::size_t tensor);
  static void add(const std::vector<std::vector<float>>& shares, std::vector<std::vector<float>>& sums);
  std::vector<float> mean_of_matrix(const std::vector<std::vector<float>>& inputs, std::size_t tensor,
                                    std::uint64_t step);
  std::vector<float> exchange(const std::string& name, const std::vector<std::vector<float>>& shares,
                              std::uint64_t step) const;

  std::string codec_;
  int world_;
  std::map<std::size_t, Matrix> matrices_;
  std::map<std::size_t, std::vector<std::vector<float>>>
      waiting_;  // of tensors that aren't compressed, by rank
};

// The residuals in a saved reducer, by name (docs/reference/format.md, "Channel state").
std::map<std::string, std::vector<float>> saved_residuals(const std::vector<std::byte>& state);

}  // namespace deltawire::testing
