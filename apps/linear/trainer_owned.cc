// Training where weights live at owners: what of them a rank needs, it pulls.
#include <algorithm>
#include <bit>
#include <optional>

#include "linear/seconds_since.h"
#include "linear/trainer.h"

namespace deltawire::linear {
namespace {

// Keys that are asked for at once where they may be all there are. A multiple of 64.
constexpr std::uint64_t kKeysAtOnce = std::uint64_t{1} << 22;

void append_keys(std::span<const std::uint64_t> seen, std::size_t first_word,
                 std::vector<std::uint32_t>& keys) {
  for (std::size_t word = 0; word < seen.size(); ++word) {
    for (std::uint64_t bits = seen[word]; bits != 0; bits &= bits - 1) {
      keys.push_back(static_cast<std::uint32_t>(64 * (first_word + word) +
                                                static_cast<unsigned>(std::countr_zero(bits))));
    }
  }
}

}  // namespace

void Trainer::count(const OwnedCost& cost) {
  EpochReport& report = progress_.report;
  report.encode_seconds += cost.encode_seconds;
  report.exchange_seconds += cost.exchange_seconds;
  report.decode_seconds += cost.decode_seconds;
  report.update_seconds += cost.update_seconds;
  progress_.bytes += cost.bytes_sent;
  progress_.weights += cost.weights_bytes;
}

// The weights of the next `count` rows. Their keys stay marked, for the gradient.
Status Trainer::pull_batch(EpochRows& order, std::uint64_t count) {
  const auto begin = Clock::now();
  if (settings_.bias && count > 0) mark_bias();
  while (count > 0) {
    const auto taken = order.take(
        count, [&](const RowBlock& block, std::span<const std::uint32_t> rows) { mark_keys(block, rows); });
    if (!taken) return forward_error(taken);
    if (*taken == 0) break;
    count -= *taken;
  }
  pulled_.clear();
  append_keys(seen_, 0, pulled_);
  progress_.report.compute_seconds += seconds_since(begin);
  const auto cost = owned_->pull(pulled_, weights_);
  if (!cost) return forward_error(cost);
  this->count(*cost);
  return {};
}

Status Trainer::push_gradient() {
  const auto cost = owned_->push(gradient_);
  if (!cost) return forward_error(cost);
  count(*cost);
  return {};
}

// All weights that this rank's rows have, exact; the sum of squares of all owners'. Rows stay as they are, so
// that owners need to be told the keys once.
Result<double> Trainer::pull_evaluated(EpochReport& report) {
  for (std::size_t i = 0; i < data_.entries().size(); ++i) {
    const auto block = data_.load(i);
    if (!block) return forward_error(block);
    for (const std::uint32_t key : (*block)->keys) {
      if (key < dimension_) seen_[key / 64] |= std::uint64_t{1} << (key % 64);
    }
  }
  if (settings_.bias) mark_bias();
  std::uint64_t bytes = 0;
  if (Status pulled = pull_marked(KeyLists::kKept, bytes); !pulled) return forward_error(pulled);
  const auto sums =
      exchange_.sums(std::vector<double>{static_cast<double>(bytes), owned_->squares_of_results()});
  if (!sums) return forward_error(sums);
  report.evaluation_bytes = (*sums)[0] / exchange_.world();
  return (*sums)[1];
}

// Rank 0 gets all weights.
Status Trainer::pull_model() {
  if (exchange_.rank() == 0) {
    for (std::uint64_t key = 0; key < dimension_; ++key) seen_[key / 64] |= std::uint64_t{1} << (key % 64);
  }
  std::uint64_t bytes = 0;
  return pull_marked(KeyLists::kNew, bytes);
}

// What all marked keys are judged by, or the model is of, and they are marked no more; in as many turns on
// all ranks, each with a list of its own.
Status Trainer::pull_marked(KeyLists lists, std::uint64_t& bytes) {
  constexpr std::size_t kWords = kKeysAtOnce / 64;
  for (std::size_t first = 0; first < seen_.size(); first += kWords) {
    const auto words = std::span(seen_).subspan(first, std::min(kWords, seen_.size() - first));
    pulled_.clear();
    append_keys(words, first, pulled_);
    std::ranges::fill(words, std::uint64_t{0});
    std::optional<std::uint32_t> list;
    if (lists == KeyLists::kKept) list = static_cast<std::uint32_t>(first / kWords);
    const auto cost = owned_->pull_results(pulled_, weights_, list);
    if (!cost) return forward_error(cost);
    bytes += cost->bytes_sent;
  }
  return {};
}

}  // namespace deltawire::linear
