#include "linear/owned_weights.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/float_environment.h"
#include "linear/all_to_all.h"
#include "linear/seconds_since.h"
#include "reduce/patterns/owners.h"

namespace deltawire::linear {
namespace {

constexpr std::uint16_t kWeightsStage = 0;
constexpr std::uint16_t kGradientsStage = 1;

Named named(std::vector<float>& values) {
  return {.name = kGradientName, .tensor = {.values = values.data(), .count = values.size()}};
}

// No error feedback: a codec with a residual would need the same keys in every step.
Result<std::unique_ptr<Channel>> open_channel(std::string_view codec, std::uint64_t seed) {
  ChannelOptions options;
  options.error_feedback = false;
  options.revert = Revert::kExact;
  options.seed = seed;
  return make_channel(codec, options);
}

}  // namespace

Result<std::unique_ptr<OwnedWeights>> OwnedWeights::make(const OptimizerSettings& settings,
                                                         std::uint64_t dimension, Exchange& exchange) {
  const KeyPartition partition(dimension, static_cast<std::uint32_t>(exchange.world()));
  const auto owner = static_cast<std::uint32_t>(exchange.rank());
  auto optimizer = LazyOptimizer::make(settings, partition.first(owner + 1) - partition.first(owner));
  if (!optimizer) return forward_error(optimizer);
  std::unique_ptr<OwnedWeights> owned(new OwnedWeights(*std::move(optimizer), partition, exchange));
  const auto open = [&](const std::string& codec, std::unique_ptr<Channel>& channel) -> Status {
    auto opened = open_channel(codec, exchange.seed());
    if (!opened) return forward_error(opened);
    channel = *std::move(opened);
    return {};
  };
  Status done = open(exchange.owners()->gradients, owned->gradients_);
  if (done) done = open(exchange.owners()->weights, owned->coded_);
  if (done) done = open("zstd", owned->exact_);
  if (!done) return forward_error(done);
  return owned;
}

OwnedWeights::OwnedWeights(LazyOptimizer optimizer, KeyPartition partition, Exchange& exchange)
    : optimizer_(std::move(optimizer)),
      partition_(partition),
      exchange_(exchange),
      requests_(partition, exchange),
      out_(world()),
      in_(world()),
      left_(world()),
      lists_(world()) {
  const auto owner = static_cast<std::uint32_t>(rank());
  weights_.resize(partition_.first(owner + 1) - partition_.first(owner));
}

Result<StepCost> OwnedWeights::pull(std::span<const std::uint32_t> keys, std::span<float> view) {
  keys_.assign(keys.begin(), keys.end());
  return pull_values(keys, view, {.channel = *coded_, .results = false, .list = {}});
}

Result<StepCost> OwnedWeights::pull_results(std::span<const std::uint32_t> keys, std::span<float> view,
                                            std::optional<std::uint32_t> list) {
  return pull_values(keys, view, {.channel = *exact_, .results = true, .list = list});
}

Result<StepCost> OwnedWeights::pull_values(std::span<const std::uint32_t> keys, std::span<float> view,
                                           const Pull& pull) {
  StepCost cost;
  Status done = requests_.ask(keys, pull.list, cost);
  if (done) done = answer(pull, cost);
  if (!done) return forward_error(done);
  const auto scattering = Clock::now();
  std::vector<std::size_t> next(world(), 0);
  for (const std::uint32_t key : keys) {
    const KeyPartition::Place place = partition_.place_of(key);
    view[key] = place.shard == rank() ? value_at(place.at, pull) : in_[place.shard][next[place.shard]++];
  }
  cost.decode_seconds += seconds_since(scattering);
  return cost;
}

// Sends each rank the values that it has requested, and receives this rank's into in_, by owner.
Status OwnedWeights::answer(const Pull& pull, StepCost& cost) {
  const auto updating = Clock::now();
  for (std::size_t peer = 0; peer < world(); ++peer) {
    optimizer_.bring_up(requests_.asked_by(peer), weights_);
    out_[peer].clear();
    in_[peer].clear();
    if (peer == rank()) continue;
    for (const std::uint32_t place : requests_.asked_by(peer)) out_[peer].push_back(value_at(place, pull));
    in_[peer].resize(requests_.asked_of(peer).size());
  }
  cost.update_seconds += seconds_since(updating);
  const std::uint64_t before = cost.bytes_sent;
  const Status done = exchange_values(pull.channel, kWeightsStage, 1.0F, cost);
  cost.weights_bytes += cost.bytes_sent - before;
  return done;
}

// Encodes and sends out_, receives and decodes in_, times `scale`. Empty lists are not sent.
Status OwnedWeights::exchange_values(Channel& channel, std::uint16_t stage, float scale, StepCost& cost) {
  const auto encoding = Clock::now();
  const std::uint64_t step = exchange_.steps();
  const auto id_of = [&](std::size_t sender) {
    return MessageId{.step = step,
                     .rank = static_cast<std::uint16_t>(sender),
                     .world = static_cast<std::uint16_t>(world()),
                     .stage = stage};
  };
  PeerMessages messages(exchange_.world());
  std::vector<std::vector<std::byte>> arrived(world());
  for (std::size_t peer = 0; peer < world(); ++peer) {
    if (peer == rank()) continue;
    if (const Named part = named(in_[peer]); part.tensor.count > 0) {
      arrived[peer].resize(channel.message_bound(std::span(&part, 1), step));
      messages.receive[peer] = arrived[peer];
    }
    const Named part = named(out_[peer]);
    if (part.tensor.count == 0) continue;
    const auto pieces = channel.encode(std::span(&part, 1), id_of(rank()));
    if (!pieces) return forward_error(pieces);
    if (stage == kGradientsStage && exchange_.residual() != nullptr) {
      if (Status noted = note_losses(peer, *pieces, id_of(rank())); !noted) return noted;
    }
    messages.send[peer].assign(pieces->begin(), pieces->end());
    for (const Bytes piece : *pieces) cost.bytes_sent += piece.size();
  }
  cost.encode_seconds += seconds_since(encoding);
  const auto sending = Clock::now();
  const auto bytes = exchange_.all_to_all(messages);
  channel.commit();
  if (!bytes) return forward_error(bytes);
  cost.exchange_seconds += seconds_since(sending);
  const auto decoding = Clock::now();
  for (std::size_t peer = 0; peer < world(); ++peer) {
    const Named part = named(in_[peer]);
    if (peer == rank() || part.tensor.count == 0) continue;
    const Status decoded = channel.decode(Bytes(arrived[peer]).first((*bytes)[peer]), std::span(&part, 1),
                                          id_of(peer), Into::kOverwrite, scale);
    if (!decoded) return decoded;
  }
  cost.decode_seconds += seconds_since(decoding);
  return {};
}

Result<StepCost> OwnedWeights::push(const Pairs& gradient) {
  StepCost cost;
  const auto begin = Clock::now();
  for (std::size_t peer = 0; peer < world(); ++peer) {
    out_[peer].clear();
    in_[peer].assign(peer == rank() ? 0 : requests_.asked_by(peer).size(), 0.0F);
  }
  std::vector<float> values(keys_.size(), 0.0F);
  std::size_t next = 0;
  for (std::size_t i = 0; i < keys_.size() && next < gradient.keys.size(); ++i) {
    if (gradient.keys[next] == keys_[i]) values[i] = gradient.values[next++];
  }
  if (exchange_.residual() != nullptr) exchange_.residual()->add_at(keys_, values);
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    out_[partition_.place_of(keys_[i]).shard].push_back(values[i]);
  }
  // The mean as `gather` computes it: scale each rank's values, then add them.
  const float scale = 1.0F / static_cast<float>(world());
  in_[rank()] = std::exchange(out_[rank()], {});
  for (float& value : in_[rank()]) value *= scale;
  cost.encode_seconds += seconds_since(begin);
  if (Status done = exchange_values(*gradients_, kGradientsStage, scale, cost); !done) {
    return forward_error(done);
  }
  if (exchange_.residual() != nullptr) keep_losses();
  step(cost);
  exchange_.count_step();
  return cost;
}

// Computes what the message in `pieces` leaves out.
Status OwnedWeights::note_losses(std::size_t peer, std::span<const Bytes> pieces, const MessageId& id) {
  sent_.resize(out_[peer].size());
  const Named part = named(sent_);
  Status decoded = gradients_->decode(pieces, std::span(&part, 1), id, Into::kOverwrite, 1.0F);
  if (!decoded) return decoded;
  const FloatEnvironment environment;
  left_[peer] = out_[peer];
  for (std::size_t i = 0; i < sent_.size(); ++i) left_[peer][i] -= sent_[i];
  return {};
}

// Puts what was left out into the residual. An owner takes its own gradient without loss.
void OwnedWeights::keep_losses() {
  std::vector<std::size_t> next(world(), 0);
  std::vector<float> left;
  left.reserve(keys_.size());
  for (const std::uint32_t key : keys_) {
    const std::size_t owner = partition_.place_of(key).shard;
    left.push_back(owner == rank() ? 0.0F : left_[owner][next[owner]++]);
  }
  exchange_.residual()->put(keys_, left);
}

void OwnedWeights::step(StepCost& cost) {
  const auto begin = Clock::now();
  const FloatEnvironment environment;
  std::vector<PairStream> streams;
  for (std::size_t peer = 0; peer < world(); ++peer) {
    Pairs& list = lists_[peer];
    list.keys.clear();
    list.values.clear();
    for (std::size_t i = 0; i < in_[peer].size(); ++i) {
      if (in_[peer][i] == 0) continue;
      list.keys.push_back(requests_.asked_by(peer)[i]);
      list.values.push_back(in_[peer][i]);
    }
    streams.emplace_back(list);
  }
  mean_.dimension = weights_.size();
  merger_.merge(streams, mean_);
  cost.decode_seconds += seconds_since(begin);
  const auto updating = Clock::now();
  optimizer_.step(mean_, weights_);
  cost.update_seconds += seconds_since(updating);
}

void OwnedWeights::add_results(double factor, std::span<double> sums) const {
  const auto owner = static_cast<std::uint32_t>(rank());
  for (std::uint32_t at = 0; at < weights_.size(); ++at) {
    sums[partition_.key_at({owner, at})] += factor * static_cast<double>(optimizer_.result(at, weights_));
  }
}

Status OwnedWeights::save(CheckpointWriter& out) const {
  const Status done = out.values(std::span<const float>(weights_));
  return done ? optimizer_.save(out) : done;
}

Status OwnedWeights::load(CheckpointReader& in) {
  const Status done = in.values_into(std::span(weights_));
  return done ? optimizer_.load(in) : done;
}

}  // namespace deltawire::linear
