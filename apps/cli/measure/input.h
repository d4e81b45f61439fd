// The input of a measurement: tensors of one or more steps, in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/outcome.h"
#include "cli/trace/trace.h"
#include "deltawire/channel.h"

namespace deltawire::cli {

struct InputTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::vector<float> values;        // of all elements
  std::vector<float> significance;  // of all elements; empty if unknown
  bool pairs = false;               // recorded as keys and pair_values; zero elsewhere
  std::vector<std::uint32_t> keys;
  std::vector<float> pair_values;
};

struct InputStep {
  std::uint64_t step = 1;
  std::vector<InputTensor> tensors;  // only those with a gradient

  std::uint64_t values() const noexcept;
};

struct Input {
  std::string name;   // as the user gave it
  std::string about;  // one line for people: what it is, and its seed
  std::vector<InputStep> steps;

  std::uint64_t values() const noexcept;  // of all steps
};

// Statistics over all steps. All but `not_finite` are of finite values.
struct InputFacts {
  std::uint64_t tensors = 0;  // in the step with the most
  std::uint64_t values = 0;
  std::uint64_t zeros = 0;
  std::uint64_t not_finite = 0;
  std::uint64_t pairs = 0;  // keys of tensors in key-value form
  double largest = 0;
  double norm = 0;  // L2
};
InputFacts facts_of(const Input& input);

// A step of a trace, its pairs in dense form as well. Fails for pairs whose dense form would need more than a
// GiB.
InputStep input_step(const Trace& trace, std::size_t index);

// Loads the value of --input: a trace's folder, a .npy or .dw file, "-" (a .npy from standard input), or
// synthetic:NAME. `small`: a synthetic input without n= is short.
Input load_input(const std::string& text, bool small);

inline constexpr std::string_view kSyntheticPrefix = "synthetic:";

// "synthetic:NAME" or "synthetic:NAME:n=65536,seed=7": random values, the same everywhere for the same text.
// Failures (exit status 2) list the names.
Input synthetic_input(const std::string& text, bool small);

// One line for each name, which describes its values.
std::string synthetic_names();

// All elements of a tensor, as a Channel takes them to encode. Views the tensor.
Named dense_part(const InputTensor& tensor);

// The tensors of a step as a Channel takes them, and memory for the decoded values. Pairs are passed in
// key-value form if the channel takes it, else dense; all decode to dense form. Views the step's values.
class Parts {
 public:
  // `number`: the step number of the message.
  Parts(const InputStep& step, const Channel& channel, std::uint64_t number);

  const MessageLayout& sent() const noexcept { return sent_layout_; }
  const MessageLayout& slots() const noexcept { return slot_layout_; }
  const std::vector<std::vector<float>>& decoded() const noexcept { return decoded_; }  // of each tensor

 private:
  std::vector<std::vector<float>> decoded_;
  std::vector<Named> sent_;
  std::vector<Named> slots_;
  MessageLayout sent_layout_;
  MessageLayout slot_layout_;
};

std::uint64_t bytes_of(std::span<const Bytes> pieces) noexcept;

}  // namespace deltawire::cli
