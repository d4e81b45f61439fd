// Steps, one after another, through channels with their residuals: what training would get.
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
  ErrorSums errors;          // of what came out of this step, against what went in
  double so_far = 0;         // Replay::error_of_sums() after it
  double residual_norm = 0;  // of the first rank
};

// Each of `ranks` has a channel of its own, and encodes the same gradients; what comes out is the mean of
// what they sent. So ranks differ in what they draw by chance, and in nothing else.
class Replay {
 public:
  static Result<Replay> make(std::string_view codecs, const Policy& policy, int ranks);

  // `number` is the step that the messages say they are: it grows from call to call. Errors: those of
  // Channel::encode and decode.
  Result<ReplayedStep> take(const InputStep& step, std::uint64_t number);

  // ||sum of what came out - sum of what went in|| / ||sum of what went in||, over all steps so far. 1 minus
  // this is what has arrived.
  double error_of_sums() const;

  // What neither came out nor waits in a residual, of all tensors that have one, relative to what went in: 0
  // but for rounding. Of one rank.
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
  std::vector<std::vector<float>> means_;  // of the step that is under way
  double given_ = 0;                       // sum of the steps' norms
};

}  // namespace deltawire::cli
