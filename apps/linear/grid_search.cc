#include "linear/grid_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/random.h"
#include "linear/lazy_optimizer.h"

namespace deltawire::linear {
namespace {

constexpr double kRowsMin = 1000;
constexpr std::size_t kSampleBlockBytes = std::size_t{1} << 20;
constexpr std::uint64_t kSampleStream = 0x6F1D;  // apart from those of shuffles
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

void add_row(const RowBlock& from, std::size_t row, RowBlock& to) {
  const std::size_t first = from.first_of(row);
  const std::size_t end = from.ends[row];
  to.keys.insert(to.keys.end(), from.keys.begin() + static_cast<std::ptrdiff_t>(first),
                 from.keys.begin() + static_cast<std::ptrdiff_t>(end));
  to.values.insert(to.values.end(), from.values.begin() + static_cast<std::ptrdiff_t>(first),
                   from.values.begin() + static_cast<std::ptrdiff_t>(end));
  to.labels.push_back(from.labels[row]);
  to.ends.push_back(static_cast<std::uint32_t>(to.keys.size()));
}

// Samples each row with probability `share`, held-out ones too.
Result<BlockStore> sample_of(BlockStore& data, double share, std::uint64_t memory_bytes, std::uint64_t seed) {
  BlockStore sample(memory_bytes);
  RowBlock blocks[2];
  std::uint64_t number = 0;
  const CounterRng random(seed, kSampleStream);
  for (std::size_t i = 0; i < data.entries().size(); ++i) {
    const auto block = data.load(i);
    if (!block) return forward_error(block);
    const bool held_out = data.entries()[i].held_out != 0;
    RowBlock& into = blocks[held_out ? 1 : 0];
    for (std::size_t row = 0; row < (*block)->rows(); ++row) {
      if (random.uniform_at(number++) >= share) continue;
      add_row(**block, row, into);
      if (into.bytes() < kSampleBlockBytes) continue;
      if (Status added = sample.add(into, held_out); !added) return forward_error(added);
    }
  }
  for (const bool held_out : {false, true}) {
    if (Status added = sample.add(blocks[held_out ? 1 : 0], held_out); !added) return forward_error(added);
  }
  return sample;
}

// Trains with one pair and evaluates it.
Result<GridPoint> try_pair(const TrainSettings& settings, const GridSettings& grid, BlockStore& rows,
                           Exchange& exchange) {
  GridPoint point{settings.optimizer.learning_rate, settings.rate_decay, kNone, 0};
  // For instance a rate too large for this L2. Other pairs may still work.
  if (!LazyOptimizer::make(settings.optimizer, 0)) return point;
  const auto count = [&point](const EpochReport& report) { point.epochs = report.epoch; };
  exchange.refuse_large(true);
  const auto model = Trainer(settings, rows, exchange).run({.epoch = count, .interrupted = grid.interrupted});
  exchange.refuse_large(false);
  if (model) {
    const EpochReport& last = model->epochs.back();
    point.loss = std::isfinite(last.test_loss) ? last.test_loss : last.objective;
  } else if (model.error().code != ErrorCode::kRange) {
    return forward_error(model);
  }
  return point;
}

// A sample may fail to train where all the data would not.
tl::unexpected<Error> of_sample(Error error) {
  if (error.code == ErrorCode::kInvalidArgument) {
    error.message += "; it may be the grid's sample alone: take a larger one (--grid-sample)";
  }
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace

Grid grid_for(OptimizerKind kind) {
  Grid grid{{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1}, {0, 0.1, 1}};
  if (kind == OptimizerKind::kSgd) {
    for (double& rate : grid.rates) rate *= 10;
  }
  return grid;
}

Result<GridReport> search_grid(const TrainSettings& train, const GridSettings& settings, BlockStore& data,
                               Exchange& exchange) {
  const StoreTotals& own = data.totals();
  const auto rows =
      exchange.sums(std::vector<double>{static_cast<double>(own.rows[0]), static_cast<double>(own.rows[1])});
  if (!rows) return forward_error(rows);
  const double all = std::max((*rows)[0], 1.0);
  GridReport report;
  report.share = std::clamp(std::max(settings.share, kRowsMin / all), 0.0, 1.0);
  report.judged_by_test = (*rows)[1] > 0;
  std::optional<BlockStore> sample;
  if (report.share < 1) {
    const std::uint64_t seed = train.seed + 0x10001 * static_cast<std::uint64_t>(exchange.rank());
    auto taken = sample_of(data, report.share, settings.memory_bytes, seed);
    if (!taken) return forward_error(taken);
    sample.emplace(*std::move(taken));
  }
  BlockStore& tried_on = sample ? *sample : data;
  const auto drawn = exchange.sums(std::vector<double>{static_cast<double>(tried_on.totals().rows[0])});
  if (!drawn) return forward_error(drawn);
  report.rows = static_cast<std::uint64_t>(drawn->front());
  const auto begin = exchange.save();
  if (!begin) return forward_error(begin);
  const std::uint64_t steps = exchange.steps();
  TrainSettings pair = train;
  if (train.batch > 1) pair.batch = std::min(train.batch / all, 1.0);
  double least = std::numeric_limits<double>::infinity();
  for (const double decay : settings.grid.decays) {
    for (const double rate : settings.grid.rates) {
      pair.optimizer.learning_rate = rate;
      pair.rate_decay = decay;
      auto point = try_pair(pair, settings, tried_on, exchange);
      if (!point) return sample ? of_sample(point.error()) : forward_error(point);
      if (Status again = exchange.load(*begin, steps); !again) return forward_error(again);
      if (point->loss < least) {
        least = point->loss;
        report.best = report.tried.size();
      }
      report.tried.push_back(*point);
      settings.tried(*point);
    }
  }
  if (std::isfinite(least)) return report;
  return fail(ErrorCode::kRange,
              "no learning rate of the grid gives a finite loss; look at the data, or name a rate (--lr)");
}

}  // namespace deltawire::linear
