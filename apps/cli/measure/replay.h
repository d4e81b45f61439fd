// Sends steps one after another through channels with residuals, as training does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/measure/errors.h"
#include "cli/measure/input.h"
#include "deltawire/channel.h"

namespace deltawire::cli {

struct ReplayedStep {
  std::uint64_t bytes = 0;  // of one rank's message
  std::uint64_t values = 0;
  ErrorSums errors;          // of this step's output against its input
  double so_far = 0;         // Replay::error_of_sums() after it
  double residual_norm = 0;  // of rank 0
};

// Each of `ranks` ranks has a channel and encodes the same gradients; the output is the mean of what they
// sent. So ranks differ only in the random numbers of stochastic codecs.
class Replay {
 public:
  static Result<Replay> make(std::string_view codecs, const Policy& policy, int ranks);

  // `number`: the step number of the messages, which grows from call to call. Errors: those of
  // Channel::encode and decode.
  Result<ReplayedStep> take(const InputStep& step, std::uint64_t number);

  // ||sum of outputs - sum of inputs|| / ||sum of inputs||, over all steps so far.
  double error_of_sums() const;

  // The part of the input that is neither in the output nor in a residual, over tensors that have one: 0
  // except for rounding. For one rank only.
  double lost_share() const;

  const Channel& channel() const noexcept { return *channels_.front(); }

 private:
  struct Sums {
    std::vector<double> in;
    std::vector<double> out;
  };

  Replay() = default;
  Result<std::uint64_t> send(std::size_t rank, const InputStep& step, std::uint64_t number);
  void add_up(const InputStep& step);

  std::vector<std::unique_ptr<Channel>> channels_;
  std::map<std::string, Sums> sums_;       // by tensor
  std::vector<std::vector<float>> means_;  // of the present step
  double given_ = 0;                       // sum of the steps' norms
};

}  // namespace deltawire::cli
