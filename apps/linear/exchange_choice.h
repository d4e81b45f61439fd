// Chooses the pattern of the gradient exchange from the data, before training begins.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "linear/block_store.h"
#include "linear/exchange.h"
#include "linear/trainer.h"

namespace deltawire::linear {

// The pairs of the first batch.
struct Overlap {
  double own = 0;       // of a rank, on average
  double distinct = 0;  // distinct keys of all ranks together
};

// The bytes that a rank sends with `direct`, divided by those with `gather`, for the same codec. With
// `direct` a rank sends its own pairs to owners and its part of the merged list to all others; with `gather`,
// its own pairs to all others.
double direct_to_gather(const Overlap& overlap, int world) noexcept;

// The number of distinct keys in all ranks' lists, to about 1 %, by linear counting (K. Whang, B.
// Vander-Zanden, H. Taylor, "A Linear-Time Probabilistic Counting Algorithm for Database Applications", 1990,
// equation 3) of a sample. Sends 16 KiB to each rank. Collective, between steps. Errors: those of
// Exchange::gather.
Result<Overlap> measure_overlap(std::span<const std::uint32_t> keys, Exchange& exchange);

struct ExchangeChoice {
  std::string spec;    // of the reducer
  std::string reason;  // one line for people
  bool measured = false;
  Overlap overlap;  // if measured
};

// Chooses the pattern for a codec that names none: for pairs with more than one owner, `direct` if it would
// send less than 0.8 of `gather`'s bytes (which are encoded once and sent once, not twice), else `gather`;
// otherwise the codec's own. The choice depends on data, world, batch and seed only, so that a resumed
// training makes the same one. Starts the exchange. Collective: all ranks with the same settings, each with
// its rows. Errors: those of Exchange and of BlockStore::load.
Result<ExchangeChoice> choose_exchange(std::string_view codec, const TrainSettings& settings,
                                       BlockStore& data, Exchange& exchange);

}  // namespace deltawire::linear
