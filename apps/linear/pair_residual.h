// Error feedback for pairs: keeps what a codec left out of a rank's gradient, and adds it to a later
// gradient.
//
// The residual is a list of pairs in the order of keys. It takes 8 bytes for each key with a residual, and as
// many again while it changes, however large the dimension. Such keys belong to the rank's own rows, and
// their last value was rounded or dropped.
//
// The residual of a key is sent with the next value at that key. If all residuals joined each message,
// FastSGD's threshold, which is proportional to the sum, would rise with them: beyond b^tau keys with similar
// values none would ever be sent.
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
  // values[i] += the residual of keys[i], rounded once. Keys grow strictly, here and below.
  void add_at(std::span<const std::uint32_t> keys, std::span<float> values) const;

  // Sets the residual of keys[i] to left[i]; 0 removes it. Other keys keep theirs.
  void put(std::span<const std::uint32_t> keys, std::span<const float> left);

  const Pairs& waiting() const noexcept { return waiting_; }
  void clear() noexcept;

  // As arrays of a checkpoint. load changes nothing if it fails. Its errors: those of CheckpointReader;
  // kCorrupt for keys that don't grow strictly or aren't below `dimension`, and for values that are 0 or not
  // finite.
  Status save(CheckpointWriter& out) const;
  Status load(CheckpointReader& in, std::uint64_t dimension);

 private:
  Pairs waiting_;
  Pairs next_;  // scratch
};

}  // namespace deltawire::linear
