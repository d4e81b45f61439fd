// Sends steps one after another through a channel with residuals, as training does.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
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
  static Result<Replay> make(std::string_view codecs, const Policy& policy) {
    Replay replay;
    ASSIGN_OR_RETURN(replay.channel_, make_channel(codecs, ChannelOptions{.policy = policy}));
    return replay;
  }

  // `number`: the step number of the messages, which grows from call to call. Errors: those of
  // Channel::encode and decode.
  Result<ReplayedStep> take(const InputStep& step, std::uint64_t number) {
    const MessageId id{.step = number, .rank = 0, .world = 1};
    Parts parts(step, *channel_, number);
    ASSIGN_OR_RETURN(const auto pieces, channel_->encode(parts.sent(), id));
    ReplayedStep report;
    report.bytes = bytes_of(pieces);
    report.values = step.values();
    RETURN_IF_ERROR(channel_->decode(pieces, parts.slots(), id, Into::kOverwrite, 1.0F));
    channel_->commit();
    for (std::size_t i = 0; i < step.tensors.size(); ++i) {
      report.errors.add(parts.decoded()[i], step.tensors[i].values);
    }
    given_ += report.errors.input_norm();
    add_up(parts, step);
    report.so_far = error_of_sums();
    return report;
  }

  // ||sum of outputs - sum of inputs|| / ||sum of inputs||, over all steps so far.
  double error_of_sums() const {
    double squared_error = 0;
    double squared_input = 0;
    for (const auto& [name, sums] : sums_) {
      for (std::size_t k = 0; k < sums.in.size(); ++k) {
        const double x = sums.in[k];
        if (!std::isfinite(x)) continue;
        squared_error += (sums.out[k] - x) * (sums.out[k] - x);
        squared_input += x * x;
      }
    }
    return std::sqrt(share_of(squared_error, squared_input));
  }

  // The part of the input that is neither in the output nor in a residual, over tensors that have one: 0
  // except for rounding.
  double lost_share() const {
    double squares = 0;
    for (const auto& [name, sums] : sums_) {
      const std::span<const float> residual = channel().residual(name, 0);
      for (std::size_t k = 0; k < residual.size(); ++k) {
        const double lost = sums.in[k] - sums.out[k] - residual[k];
        squares += lost * lost;
      }
    }
    return share_of(std::sqrt(squares), given_);
  }

  const Channel& channel() const noexcept { return *channel_; }

 private:
  struct Sums {
    std::vector<double> in;
    std::vector<double> out;
  };

  Replay() = default;

  void add_up(const Parts& parts, const InputStep& step) {
    for (std::size_t i = 0; i < step.tensors.size(); ++i) {
      const std::vector<float>& values = step.tensors[i].values;
      const std::vector<float>& decoded = parts.decoded()[i];
      Sums& sums = sums_[step.tensors[i].name];
      sums.in.resize(values.size());
      sums.out.resize(values.size());
      for (std::size_t k = 0; k < values.size(); ++k) {
        sums.in[k] += values[k];
        sums.out[k] += decoded[k];
      }
    }
  }

  std::unique_ptr<Channel> channel_;
  std::map<std::string, Sums> sums_;  // by tensor
  double given_ = 0;                  // sum of the steps' norms
};

}  // namespace deltawire::cli
