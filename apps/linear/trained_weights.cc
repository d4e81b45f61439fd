#include "linear/trained_weights.h"

namespace deltawire::linear {

Result<TrainedWeights> TrainedWeights::make(const OptimizerSettings& settings, std::uint64_t dimension,
                                            std::optional<double> average_power) {
  auto optimizer = LazyOptimizer::make(settings, dimension);
  if (!optimizer) return forward_error(optimizer);
  TrainedWeights weights(*std::move(optimizer), dimension);
  weights.keeps_averages_ = average_power.has_value();
  if (average_power) weights.optimizer_.keep_average(*average_power);
  return weights;
}

double TrainedWeights::update_results() {
  const double squares = optimizer_.squares_of_results(weights_);
  if (keeps_averages_) averages_.resize(weights_.size());
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    averages_[i] = optimizer_.result(static_cast<std::uint32_t>(i), weights_);
  }
  return squares;
}

Status TrainedWeights::save(CheckpointWriter& out) const {
  const Status done = out.values(std::span<const float>(weights_));
  return done ? optimizer_.save(out) : done;
}

Status TrainedWeights::load(CheckpointReader& in) {
  const Status done = in.values_into(std::span<float>(weights_));
  return done ? optimizer_.load(in) : done;
}

}  // namespace deltawire::linear
