// By which pattern gradients travel: what the data say before training begins.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "linear/block_store.h"
#include "linear/exchange.h"
#include "linear/trainer.h"

namespace deltawire::linear {

// Pairs of the first batch.
struct Overlap {
  double own = 0;       // of a rank, the mean
  double distinct = 0;  // keys of all ranks together
};

// Bytes that a rank sends by `direct` over those by `gather`, both in the same code: a rank sends its own
// pairs to owners and, of the merged list, its share to all others; or its own pairs to all others.
double direct_to_gather(const Overlap& overlap, int world) noexcept;

// How many keys all ranks' lists have together, to about 1 %, by linear counting (K. Whang, B. Vander-Zanden,
// H. Taylor, "A Linear-Time Probabilistic Counting Algorithm for Database Applications", 1990, equation 3)
// of a sample. 16 KiB to each rank. Collective, between steps. Errors: those of Exchange::gather.
Result<Overlap> measure_overlap(std::span<const std::uint32_t> keys, Exchange& exchange);

struct ExchangeChoice {
  std::string spec;    // of the reducer
  std::string reason;  // one line, for people
  bool measured = false;
  Overlap overlap;  // where it was measured
};

// The pattern for a codec that names none: `direct` where keys and values travel, dealt to more than one
// owner, and where it would send less than 0.8 of `gather`'s bytes, which are coded once and take one way,
// not two; else the codec's own. It is a function of data, world, batch and seed, so a training that goes on
// from a checkpoint chooses alike. Starts the exchange. Collective: all ranks with the same settings, each
// with its rows. Errors: those of Exchange and of BlockStore::load.
Result<ExchangeChoice> choose_exchange(std::string_view codec, const TrainSettings& settings,
                                       BlockStore& data, Exchange& exchange);

}  // namespace deltawire::linear
