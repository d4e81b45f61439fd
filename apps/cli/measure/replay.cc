#include "cli/measure/replay.h"

#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "cli/measure/input.h"

namespace deltawire::cli {
namespace {

double squared_norm(std::span<const float> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

}  // namespace

Result<Replay> Replay::make(std::string_view codecs, const Policy& policy, int ranks) {
  Replay replay;
  for (int rank = 0; rank < ranks; ++rank) {
    auto channel = make_channel(codecs, ChannelOptions{.policy = policy});
    if (!channel) return forward_error(channel);
    replay.channels_.push_back(std::move(*channel));
  }
  return replay;
}

Result<std::uint64_t> Replay::send(std::size_t rank, const InputStep& step, std::uint64_t number) {
  Channel& channel = *channels_[rank];
  const MessageId id{.step = number,
                     .rank = static_cast<std::uint16_t>(rank),
                     .world = static_cast<std::uint16_t>(channels_.size())};
  Parts parts(step, channel, number);
  const auto pieces = channel.encode(parts.sent(), id);
  if (!pieces) return forward_error(pieces);
  const std::uint64_t bytes = bytes_of(*pieces);
  const float share = 1.0F / static_cast<float>(channels_.size());
  if (Status decoded = channel.decode(*pieces, parts.slots(), id, Into::kOverwrite, share); !decoded) {
    return forward_error(decoded);
  }
  channel.commit();
  means_.resize(step.tensors.size());
  for (std::size_t i = 0; i < means_.size(); ++i) {
    const std::span<const float> decoded = parts.decoded(i);
    if (rank == 0) means_[i].assign(decoded.size(), 0.0F);
    for (std::size_t k = 0; k < decoded.size(); ++k) means_[i][k] += decoded[k];
  }
  return bytes;
}

Result<ReplayedStep> Replay::take(const InputStep& step, std::uint64_t number) {
  ReplayedStep report;
  for (std::size_t rank = 0; rank < channels_.size(); ++rank) {
    const auto bytes = send(rank, step, number);
    if (!bytes) return forward_error(bytes);
    report.bytes += *bytes;
  }
  report.bytes /= channels_.size();
  report.values = step.values();
  for (std::size_t i = 0; i < means_.size(); ++i) report.errors.add(means_[i], step.tensors[i].values);
  given_ += report.errors.input_norm();
  add_up(step);
  report.so_far = error_of_sums();
  double residuals = 0;
  for (const auto& [name, sums] : sums_) residuals += squared_norm(channel().residual(name, 0));
  report.residual_norm = std::sqrt(residuals);
  return report;
}

void Replay::add_up(const InputStep& step) {
  for (std::size_t i = 0; i < means_.size(); ++i) {
    const std::vector<float>& values = step.tensors[i].values;
    Sums& sums = sums_[step.tensors[i].name];
    sums.in.resize(values.size());
    sums.out.resize(values.size());
    for (std::size_t k = 0; k < values.size(); ++k) {
      sums.in[k] += values[k];
      sums.out[k] += means_[i][k];
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
