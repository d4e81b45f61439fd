#include "cli/measure/replay.h"

#include <cmath>
#include <cstddef>
#include <span>

#include "base/errors.h"

namespace deltawire::cli {
Result<Replay> Replay::make(std::string_view codecs, const Policy& policy) {
  Replay replay;
  ASSIGN_OR_RETURN(replay.channel_, make_channel(codecs, ChannelOptions{.policy = policy}));
  return replay;
}

Result<ReplayedStep> Replay::take(const InputStep& step, std::uint64_t number) {
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

void Replay::add_up(const Parts& parts, const InputStep& step) {
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

double Replay::error_of_sums() const {
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

double Replay::lost_share() const {
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

}  // namespace deltawire::cli
