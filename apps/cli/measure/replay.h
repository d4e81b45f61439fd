// Sends steps one after another through a channel with residuals, as training does.
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
  std::uint64_t bytes = 0;  // of the message
  std::uint64_t values = 0;
  ErrorSums errors;   // of this step's output against its input
  double so_far = 0;  // Replay::error_of_sums() after it
};

class Replay {
 public:
  static Result<Replay> make(std::string_view codecs, const Policy& policy);

  // `number`: the step number of the messages, which grows from call to call. Errors: those of
  // Channel::encode and decode.
  Result<ReplayedStep> take(const InputStep& step, std::uint64_t number);

  // ||sum of outputs - sum of inputs|| / ||sum of inputs||, over all steps so far.
  double error_of_sums() const;

  // The part of the input that is neither in the output nor in a residual, over tensors that have one: 0
  // except for rounding.
  double lost_share() const;

  const Channel& channel() const noexcept { return *channel_; }

 private:
  struct Sums {
    std::vector<double> in;
    std::vector<double> out;
  };

  Replay() = default;
  void add_up(const Parts& parts, const InputStep& step);

  std::unique_ptr<Channel> channel_;
  std::map<std::string, Sums> sums_;  // by tensor
  double given_ = 0;                  // sum of the steps' norms
};

}  // namespace deltawire::cli
