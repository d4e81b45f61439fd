// What methods are measured on: tensors of one or more steps, in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/outcome.h"
#include "cli/trace/trace_reader.h"

namespace deltawire::cli {

struct InputTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::vector<float> values;        // of all elements
  std::vector<float> significance;  // of all elements, or empty: not known
  bool pairs = false;               // recorded as the two below, and zero elsewhere
  std::vector<std::uint32_t> keys;
  std::vector<float> pair_values;
};

struct InputStep {
  std::uint64_t step = 1;
  std::vector<InputTensor> tensors;  // without those that had no gradient

  std::uint64_t values() const noexcept;
};

struct Input {
  std::string name;   // as the user gave it
  std::string about;  // in words: what it is, and its seed
  std::vector<InputStep> steps;

  std::uint64_t values() const noexcept;  // of all steps
};

// What can be said of an input without encoding it. Of all steps, and of finite values but for `not_finite`.
struct InputFacts {
  std::uint64_t tensors = 0;  // of the step that has most
  std::uint64_t values = 0;
  std::uint64_t zeros = 0;
  std::uint64_t not_finite = 0;
  std::uint64_t pairs = 0;  // keys of tensors in key-value form
  double largest = 0;
  double norm = 0;  // L2
};
InputFacts facts_of(const Input& input);

// A step of a trace, in dense form too. kLimit's failure: a tensor of pairs so large that this needs more
// than a GiB.
Outcome<InputStep> input_step(const Trace& trace, std::size_t index);

// What stands behind --input: a trace's folder, a .npy or .dw file, "-" (a .npy from standard input), or
// synthetic:NAME. `small`: a synthetic input that doesn't say its length is short.
Outcome<Input> load_input(const std::string& text, bool small);

}  // namespace deltawire::cli
