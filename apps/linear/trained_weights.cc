#include "linear/trained_weights.h"

#include <algorithm>
#include <utility>

#include "linear/key_set.h"
#include "linear/lazy_optimizer.h"
#include "linear/owned_weights.h"
#include "linear/seconds_since.h"

namespace deltawire::linear {
namespace {

// All weights on every rank, stepped by all ranks in the same way.
class ReplicatedWeights final : public TrainedWeights {
 public:
  ReplicatedWeights(const Settings& settings, LazyOptimizer optimizer, Exchange& exchange)
      : TrainedWeights(settings.dimension), optimizer_(std::move(optimizer)), exchange_(exchange) {
    keeps_averages_ = settings.average_power.has_value();
    if (keeps_averages_) optimizer_.keep_average(*settings.average_power);
  }

  Status set_learning_rate(double rate) override { return optimizer_.set_learning_rate(rate); }
  bool needs_pull() const noexcept override { return false; }
  Status pull(std::span<const std::uint32_t> keys, StepCost&) override {
    bring_up(keys);
    return {};
  }
  void bring_up(std::span<const std::uint32_t> keys) override { optimizer_.bring_up(keys, weights_); }

  Status step(Pairs& gradient, StepCost& cost) override {
    const auto report = exchange_.average(gradient);
    if (!report) return forward_error(report);
    const auto updating = Clock::now();
    optimizer_.step(gradient, weights_);
    cost.update_seconds += seconds_since(updating);
    cost.encode_seconds += report->encode_seconds;
    cost.exchange_seconds += report->exchange_seconds;
    cost.decode_seconds += report->decode_seconds;
    cost.bytes_sent += report->bytes_sent;
    return {};
  }

  Result<Evaluated> update_results(BlockStore&) override {
    const double squares = optimizer_.squares_of_results(weights_);
    if (keeps_averages_) averages_.resize(weights_.size());
    for (std::size_t i = 0; i < averages_.size(); ++i) {
      averages_[i] = optimizer_.result(static_cast<std::uint32_t>(i), weights_);
    }
    return Evaluated{.squares = squares, .bytes = 0};
  }
  std::span<const float> results() const noexcept override {
    return averages_.empty() ? weights_ : averages_;
  }

  void add_results(double factor, std::span<double> sums) const override {
    if (exchange_.rank() != 0) return;
    const std::span<const float> values = results();
    for (std::size_t key = 0; key < sums.size(); ++key)
      sums[key] += factor * static_cast<double>(values[key]);
  }

  Result<std::vector<float>> take_model() override {
    return std::move(averages_.empty() ? weights_ : averages_);
  }

  std::uint64_t state_bytes() const noexcept override {
    return 4 * weights_.size() + optimizer_.state_bytes();
  }

  Status save(CheckpointWriter& out) const override {
    const Status done = out.values(std::span<const float>(weights_));
    return done ? optimizer_.save(out) : done;
  }
  Status load(CheckpointReader& in) override {
    const Status done = in.values_into(std::span<float>(weights_));
    return done ? optimizer_.load(in) : done;
  }

 private:
  LazyOptimizer optimizer_;
  Exchange& exchange_;
  bool keeps_averages_ = false;
  std::vector<float> averages_;  // as of the last update_results()
};

// A view of weights at their owners.
class PulledWeights final : public TrainedWeights {
 public:
  PulledWeights(const Settings& settings, std::unique_ptr<OwnedWeights> owned, Exchange& exchange)
      : TrainedWeights(settings.dimension),
        owned_(std::move(owned)),
        exchange_(exchange),
        bias_(settings.bias),
        keys_(settings.dimension) {
    if (settings.average_power) owned_->keep_average(*settings.average_power);
  }

  Status set_learning_rate(double rate) override { return owned_->set_learning_rate(rate); }
  bool needs_pull() const noexcept override { return true; }
  Status pull(std::span<const std::uint32_t> keys, StepCost& cost) override {
    return add_cost(owned_->pull(keys, weights_), cost);
  }
  void bring_up(std::span<const std::uint32_t>) override {}  // pull() has

  Status step(Pairs& gradient, StepCost& cost) override { return add_cost(owned_->push(gradient), cost); }

  // The rows do not change, so owners need to be told their keys only once.
  Result<Evaluated> update_results(BlockStore& data) override {
    for (std::size_t i = 0; i < data.entries().size(); ++i) {
      const auto block = data.load(i);
      if (!block) return forward_error(block);
      for (const std::uint32_t key : (*block)->keys) {
        if (key < weights_.size()) keys_.add(key);
      }
    }
    if (bias_) keys_.add(static_cast<std::uint32_t>(weights_.size() - 1));
    StepCost cost;
    if (Status pulled = pull_results(KeyLists::kKept, cost); !pulled) return forward_error(pulled);
    const auto sums = exchange_.sums(
        std::vector<double>{static_cast<double>(cost.bytes_sent), owned_->squares_of_results()});
    if (!sums) return forward_error(sums);
    return Evaluated{.squares = (*sums)[1], .bytes = (*sums)[0] / exchange_.world()};
  }
  std::span<const float> results() const noexcept override { return weights_; }

  void add_results(double factor, std::span<double> sums) const override {
    owned_->add_results(factor, sums);
  }

  Result<std::vector<float>> take_model() override {
    if (exchange_.rank() == 0) {
      for (std::uint64_t key = 0; key < weights_.size(); ++key) keys_.add(static_cast<std::uint32_t>(key));
    }
    StepCost cost;
    if (Status pulled = pull_results(KeyLists::kNew, cost); !pulled) return forward_error(pulled);
    return std::move(weights_);
  }

  std::uint64_t state_bytes() const noexcept override { return owned_->state_bytes(); }
  Status save(CheckpointWriter& out) const override { return owned_->save(out); }
  Status load(CheckpointReader& in) override { return owned_->load(in); }

 private:
  enum class KeyLists : std::uint8_t { kNew, kKept };  // at owners

  // Limits the memory of requests that may be for all keys. A multiple of 64.
  static constexpr std::uint64_t kKeysAtOnce = std::uint64_t{1} << 22;

  static Status add_cost(const Result<StepCost>& of_call, StepCost& cost) {
    if (!of_call) return forward_error(of_call);
    cost += *of_call;
    return {};
  }

  // Pulls the results of keys_ and empties it, in the same number of turns on all ranks, each with its own
  // list.
  Status pull_results(KeyLists lists, StepCost& cost) {
    for (std::uint64_t first = 0; first < weights_.size(); first += kKeysAtOnce) {
      pulled_.clear();
      keys_.remove(first, first + kKeysAtOnce, [&](std::uint32_t key) { pulled_.push_back(key); });
      std::optional<std::uint32_t> list;
      if (lists == KeyLists::kKept) list = static_cast<std::uint32_t>(first / kKeysAtOnce);
      if (Status done = add_cost(owned_->pull_results(pulled_, weights_, list), cost); !done) return done;
    }
    return {};
  }

  std::unique_ptr<OwnedWeights> owned_;
  Exchange& exchange_;
  bool bias_;
  KeySet keys_;
  std::vector<std::uint32_t> pulled_;
};

}  // namespace

Result<std::unique_ptr<TrainedWeights>> TrainedWeights::make(const Settings& settings, Exchange& exchange) {
  if (exchange.owners()) {
    auto owned = OwnedWeights::make(settings.optimizer, settings.dimension, exchange);
    if (!owned) return forward_error(owned);
    return std::make_unique<PulledWeights>(settings, *std::move(owned), exchange);
  }
  auto optimizer = LazyOptimizer::make(settings.optimizer, settings.dimension);
  if (!optimizer) return forward_error(optimizer);
  return std::make_unique<ReplicatedWeights>(settings, *std::move(optimizer), exchange);
}

}  // namespace deltawire::linear
