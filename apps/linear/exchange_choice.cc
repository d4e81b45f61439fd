#include "linear/exchange_choice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "deltawire/reducer.h"
#include "linear/epoch_rows.h"
#include "linear/key_set.h"
#include "reduce/patterns/owners.h"

namespace deltawire::linear {
namespace {

constexpr double kWorthTwoWays = 0.8;

constexpr std::uint64_t kBits = 65536;
constexpr unsigned kBitsOfNumber = 32;  // a float64 holds them exactly

std::uint64_t mix(std::uint64_t key) noexcept {
  key *= 0x9E3779B97F4A7C15U;
  key = (key ^ (key >> 32)) * 0xD6E8FEB86659FD93U;
  return key ^ (key >> 32);
}

// Over all ranks.
struct Totals {
  double rows = 0;
  std::uint64_t dimension = 0;
};

Result<Totals> totals_of(const TrainSettings& settings, const BlockStore& data, Exchange& exchange) {
  const StoreTotals& own = data.totals();
  const auto all = exchange.gather(
      std::vector<double>{static_cast<double>(own.rows[0]), static_cast<double>(own.keys_end)});
  if (!all) return forward_error(all);
  Totals totals;
  for (std::size_t i = 0; i < all->size(); i += 2) {
    totals.rows += (*all)[i];
    totals.dimension = std::max(totals.dimension, static_cast<std::uint64_t>((*all)[i + 1]));
  }
  totals.dimension = std::max<std::uint64_t>(1, totals.dimension + (settings.bias ? 1 : 0));
  return totals;
}

// The distinct keys of this rank's rows in the first batch.
Result<std::vector<std::uint32_t>> first_keys(const TrainSettings& settings, double share, BlockStore& data,
                                              int rank) {
  EpochRows rows(data, settings.seed + 0x10001 * static_cast<std::uint64_t>(rank), 0);
  auto left = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(data.totals().rows[0])));
  KeySet seen(data.totals().keys_end);
  std::vector<std::uint32_t> fresh;
  while (left > 0) {
    const auto taken = rows.take(left, [&](const RowBlock& block, std::span<const std::uint32_t> numbers) {
      fresh.clear();
      seen.add_rows(block, numbers, fresh);
    });
    if (!taken) return forward_error(taken);
    if (*taken == 0) break;
    left -= *taken;
  }
  std::vector<std::uint32_t> keys;
  seen.visit([&](std::uint32_t key) { keys.push_back(key); });
  return keys;
}

bool takes_pairs(std::string_view codec, std::uint64_t dimension) {
  const auto reducer = make_reducer("direct(" + std::string(codec) + ")");
  Named tensor{.name = kGradientName, .tensor = {}};
  tensor.tensor.count = dimension;
  return reducer && (*reducer)->explain(std::span(&tensor, 1), 0).front().takes_pairs;
}

}  // namespace

double direct_to_gather(const Overlap& overlap, int world) noexcept {
  return overlap.own > 0 ? (overlap.own + overlap.distinct) / (world * overlap.own) : 1;
}

Result<Overlap> measure_overlap(std::span<const std::uint32_t> keys, Exchange& exchange) {
  const auto counts = exchange.sums(std::vector<double>{static_cast<double>(keys.size())});
  if (!counts) return forward_error(counts);
  // Samples one key of 2^skip, about as many as there are bits.
  unsigned skip = 0;
  while (std::ldexp((*counts)[0], -static_cast<int>(skip)) > static_cast<double>(kBits)) ++skip;
  std::vector<double> own(kBits / kBitsOfNumber, 0);
  std::vector<std::uint32_t> bits(own.size(), 0);
  for (const std::uint32_t key : keys) {
    const std::uint64_t mixed = mix(key);
    if ((mixed & ((std::uint64_t{1} << skip) - 1)) != 0) continue;
    const std::uint64_t bit = (mixed >> 40) % kBits;
    bits[bit / kBitsOfNumber] |= std::uint32_t{1} << (bit % kBitsOfNumber);
  }
  std::ranges::copy(bits, own.begin());
  const auto all = exchange.gather(own);
  if (!all) return forward_error(all);
  std::ranges::fill(bits, 0U);
  for (std::size_t i = 0; i < all->size(); ++i) {
    bits[i % bits.size()] |= static_cast<std::uint32_t>((*all)[i]);
  }
  int ones = 0;
  for (const std::uint32_t word : bits) ones += std::popcount(word);
  const double empty = std::max(1.0, static_cast<double>(kBits) - ones) / static_cast<double>(kBits);
  return Overlap{
      .own = (*counts)[0] / exchange.world(),
      .distinct = std::ldexp(-std::log(empty) * static_cast<double>(kBits), static_cast<int>(skip))};
}

Result<ExchangeChoice> choose_exchange(std::string_view codec, const TrainSettings& settings,
                                       BlockStore& data, Exchange& exchange) {
  const auto totals = totals_of(settings, data, exchange);
  if (!totals) return forward_error(totals);
  ExchangeChoice choice{.spec = std::string(codec), .reason = {}, .measured = false, .overlap = {}};
  if (!takes_pairs(codec, totals->dimension)) {
    choice.reason = "the codec's own pattern, since it takes no pairs of key and value";
  } else if (exchange.world() == 1) {
    choice.reason = "one worker sends nothing";
  } else if (exchange.world() < 3) {
    choice.reason = "fewer than 3 ranks have nothing to gain by owners";
  } else if (totals->dimension < kWholeTensorElements) {
    choice.reason = "fewer than " + std::to_string(kWholeTensorElements) + " weights would have one owner";
  } else {
    const double rows = std::max(1.0, totals->rows);
    const double share = settings.batch <= 1 ? settings.batch : std::min(1.0, settings.batch / rows);
    const auto keys = first_keys(settings, share, data, exchange.rank());
    if (!keys) return forward_error(keys);
    const auto overlap = measure_overlap(*keys, exchange);
    if (!overlap) return forward_error(overlap);
    choice.measured = true;
    choice.overlap = *overlap;
    const bool direct = direct_to_gather(*overlap, exchange.world()) < kWorthTwoWays;
    choice.spec = (direct ? "direct(" : "gather(") + std::string(codec) + ")";
    choice.reason = direct ? "it sends less" : "owners would not save enough for their second way";
  }
  if (Status started = exchange.start(choice.spec); !started) return forward_error(started);
  choice.spec = exchange.spec();
  return choice;
}

}  // namespace deltawire::linear
