// The sum of key-value tensors: sorted lists merged into one, at the speed of memory.
//
// A merge by comparisons asks at each pair which list comes next, which no processor can guess. Here a window
// of keys is laid out flat: each list's pairs are added where their keys say, list after list, bits say which
// keys were seen, and the bits, read in order, are the merged list. So a pair costs two short loops without a
// branch that depends on data, however many lists there are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/tensor.h"

namespace deltawire {

// A list that stays where it is. Its keys grow strictly.
struct PairStream {
  PairStream(const Pairs& list) noexcept  // NOLINT(google-explicit-constructor)
      : keys(list.keys.data()), values(list.values.data()), count(list.keys.size()) {}

  const std::uint32_t* keys;
  const float* values;
  std::size_t count;
};

// Holds the memory that merging takes, 1.2 MB at most, from the first merge on. Thread rule: one thread at a
// time.
class PairMerger {
 public:
  // sum = the sum of all streams, a key's values added in the order of streams, in float32; a key that only
  // one has keeps its value, bit for bit. The dimension of `sum` stays as it is, and its memory is of no
  // stream. REQUIRES: the floating-point mode of FloatEnvironment.
  void merge(std::span<const PairStream> streams, Pairs& sum);

 private:
  void make_room(std::uint64_t keys);
  void lay_out(std::uint64_t begin, std::uint64_t end);
  void take_up(std::uint64_t begin, std::uint64_t end, Pairs& sum);
  void hand_over(Pairs& sum);

  std::vector<PairStream> left_;       // of the streams
  std::vector<float> window_;          // by key; -0 where none was seen, since -0 + x is x for every x
  std::vector<std::uint64_t> seen_;    // bits: a key of the window
  std::vector<std::uint64_t> groups_;  // bits: a word of seen_ that isn't 0
  std::vector<std::uint32_t> keys_;    // merged, not yet in the sum
  std::vector<float> values_;
  std::size_t merged_ = 0;
  bool is_clean_ = true;  // no merge has ended midway, for want of memory
};

}  // namespace deltawire
