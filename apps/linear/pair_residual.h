// Error feedback of pairs: what a codec left out of a rank's gradient waits here, and goes with a later one.
//
// Kept as pairs in the order of keys, so that it takes 8 bytes for each key at which something waits, and as
// many again while it changes, however many keys there are. Those are keys of the rank's own rows, and of
// them the ones whose last value was cut or dropped.
//
// What waits at a key goes with the next value there. If all of it joined each message, FastSGD's threshold,
// a share of the sum, would rise with what waits: beyond b^tau keys of like values none would ever be sent.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "deltawire/tensor.h"
#include "linear/checkpoint_file.h"

namespace deltawire::linear {

class PairResidual {
 public:
  // values[i] += what waits at keys[i], one rounding each. Keys grow strictly, here and below.
  void add_at(std::span<const std::uint32_t> keys, std::span<float> values) const;

  // From now on left[i] waits at keys[i], and nothing where it is 0. What waits at other keys stays.
  void put(std::span<const std::uint32_t> keys, std::span<const float> left);

  const Pairs& waiting() const noexcept { return waiting_; }
  void clear() noexcept;

  // As arrays of a checkpoint. Errors of load, which changes nothing then: those of CheckpointReader;
  // kCorrupt for keys that don't grow strictly or aren't below `dimension`, and for values that aren't finite
  // or are 0.
  Status save(CheckpointWriter& out) const;
  Status load(CheckpointReader& in, std::uint64_t dimension);

 private:
  Pairs waiting_;
  Pairs next_;  // its memory
};

}  // namespace deltawire::linear
