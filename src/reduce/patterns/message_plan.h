// Which parts of a bucket's tensors travel together, in what order: for `direct` and `gather`. Parts are
// sorted into lists of messages by their owner, dense ones first and then those in key-value form. A message
// has a bounded number of elements. Which ranks send the messages of a list, and where, the pattern knows.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/tensor.h"
#include "reduce/bucket_tensors.h"
#include "reduce/patterns/owners.h"

namespace deltawire {

// The parts that travel as one message: all dense, or all in key-value form.
struct PartMessage {
  std::vector<Named> parts = {};          // in the caller's memory; of pairs those that this rank has
  std::vector<Named> means = {};          // the same parts in staging memory; of pairs without memory
  std::vector<std::size_t> tensors = {};  // by part: its tensor in the bucket
  std::uint64_t elements = 0;
  std::uint32_t hash = 0;  // MessageLayout::hash_of(parts), also for means: ranks must agree on
                           // the tensors' dtypes, not on what means are formed in

  bool has_keys() const noexcept {
    assert(!parts.empty());
    return parts.front().tensor.has_keys();
  }
  MessageLayout layout() const noexcept { return {parts, hash}; }
  MessageLayout mean_layout() const noexcept { return {means, hash}; }
  std::uint64_t raw_bytes() const noexcept;

  // The length that a message of these parts may have, whoever sends it. Nobody knows how many pairs another
  // rank has: at most one for each element, and what a message can hold.
  std::uint64_t longest(const Channel& channel, std::uint64_t step) const;
};

// The parts of a tensor, in order. `owner` is the list that a part goes to.
struct TensorParts {
  std::vector<OwnedRange> ranges;
  KeyPartition keys{0, 1};  // for a tensor in key-value form, whose ranges are those of its places
};

class MessagePlan {
 public:
  struct Place {
    std::size_t list, message;
  };
  struct KeyedPart {
    Place place;
    std::size_t part;
  };
  // A tensor in key-value form.
  struct KeyedTensor {
    std::size_t tensor = 0;  // of the bucket
    KeyPartition keys{0, 1};
    PartitionedPairs pairs = {};  // this rank's
    std::vector<KeyedPart> parts = {};
  };

  // Cuts the tensors into parts, and these into messages of at most `most` elements; then place().
  void cut(std::span<const Named> tensors, std::size_t lists, const MostElements& most,
           const std::function<TensorParts(const Named&)>& parts_of);

  // For the tensors that were cut last: dense parts are where the values lie now, and this rank's pairs go to
  // the parts that their keys belong to.
  void place(std::span<const Named> tensors);

  // Places the means of dense parts, after tensors.stage(): of all, or of a message.
  void place_means(const BucketTensors& tensors) noexcept;
  void place_means(const BucketTensors& tensors, const Place& place) noexcept;
  // The same of a message whose means lie one behind the other.
  void place_means(const Place& place, const float* means) noexcept;

  std::size_t lists() const noexcept { return lists_.size(); }
  std::span<const PartMessage> list(std::size_t owner) const noexcept { return lists_[owner]; }
  std::uint64_t dense_elements(std::size_t owner) const noexcept {
    std::uint64_t elements = 0;
    for (const PartMessage& message : list(owner)) elements += message.has_keys() ? 0 : message.elements;
    return elements;
  }
  const PartMessage& message(const Place& place) const noexcept { return lists_[place.list][place.message]; }
  std::span<const KeyedTensor> keyed() const noexcept { return keyed_; }

  // kLimit where a message of this rank's is too long for any transport.
  Status check_bounds(const Channel& channel, std::uint64_t step) const;

 private:
  KeyedPart add(std::size_t list, const Named& part, std::size_t tensor, std::uint64_t most_elements);

  std::vector<std::vector<PartMessage>> lists_;
  std::vector<KeyedTensor> keyed_;  // in their order
};

}  // namespace deltawire
