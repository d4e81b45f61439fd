// Which parts of a bucket's tensors travel together, in what order: for `direct` and `gather`. Parts are
// sorted into lists of messages by their owner, dense ones first and then those in key-value form. A message
// has a bounded number of elements. Which ranks send the messages of a list, and where, the pattern knows.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"
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

  std::uint64_t raw_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const Named& part : parts) sum += part.tensor.elements() * dtype_bytes(part.tensor.dtype);
    return sum;
  }

  // The length that a message of these parts may have, whoever sends it. Nobody knows how many pairs another
  // rank has: at most one for each element, and what a message can hold.
  std::uint64_t longest(const Channel& channel, std::uint64_t step) const {
    if (!has_keys()) return channel.message_bound(layout(), step);
    std::vector<Named> full = parts;
    for (Named& part : full) part.tensor.count = part.tensor.dimension;
    return std::min(channel.message_bound({full, hash}, step), kMessageBytesMax);
  }
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
           const std::function<TensorParts(const Named&)>& parts_of) {
    lists_.assign(lists, {});
    keyed_.clear();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].tensor.has_keys()) continue;
      for (const OwnedRange& range : parts_of(tensors[i]).ranges) {
        const Named part = part_of(tensors[i], range.first, range.count, nullptr);
        add(static_cast<std::size_t>(range.owner), part, i, most.dense);
      }
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].tensor.has_keys()) continue;
      const TensorParts parts = parts_of(tensors[i]);
      KeyedTensor& keyed = keyed_.emplace_back();
      keyed.tensor = i;
      keyed.keys = parts.keys;
      for (const OwnedRange& range : parts.ranges) {
        keyed.parts.push_back(
            add(static_cast<std::size_t>(range.owner), empty_part(tensors[i], range), i, most.pairs));
      }
    }
    for (auto& messages : lists_) {
      for (PartMessage& message : messages) message.hash = MessageLayout::hash_of(message.parts);
    }
    place(tensors);
  }

  // For the tensors that were cut last: dense parts are where the values lie now, and this rank's pairs go to
  // the parts that their keys belong to.
  void place(std::span<const Named> tensors) {
    for (auto& messages : lists_) {
      for (PartMessage& message : messages) {
        if (message.has_keys()) continue;
        for (std::size_t i = 0; i < message.parts.size(); ++i) {
          const Named& tensor = tensors[message.tensors[i]];
          move_part(message.parts[i], tensor, tensor.tensor.values);
        }
      }
    }
    for (KeyedTensor& keyed : keyed_) {
      keyed.pairs.assign(tensors[keyed.tensor].tensor, keyed.keys);
      for (const KeyedPart& at : keyed.parts) {
        Named& part = lists_[at.place.list][at.place.message].parts[at.part];
        keyed.pairs.take({part.first, part.tensor.dimension}, part.tensor);
      }
    }
  }

  // Places the means of dense parts, after tensors.stage(): of all, or of a message.
  void place_means(const BucketTensors& tensors) noexcept {
    for (std::size_t list = 0; list < lists_.size(); ++list) {
      for (std::size_t message = 0; message < lists_[list].size(); ++message)
        place_means(tensors, {list, message});
    }
  }

  void place_means(const BucketTensors& tensors, const Place& place) noexcept {
    PartMessage& message = lists_[place.list][place.message];
    if (message.has_keys()) return;
    for (std::size_t i = 0; i < message.means.size(); ++i) {
      const std::size_t tensor = message.tensors[i];
      move_part(message.means[i], tensors.all()[tensor], tensors.mean_of(tensor).data());
    }
  }

  // The same of a message whose means lie one behind the other.
  void place_means(const Place& place, const float* means) noexcept {
    for (Named& mean : lists_[place.list][place.message].means) {
      mean.tensor.values = const_cast<float*>(means);  // others' are only read
      means += mean.tensor.count;
    }
  }

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
  Status check_bounds(const Channel& channel, std::uint64_t step) const {
    for (const auto& messages : lists_) {
      for (const PartMessage& message : messages) {
        const std::uint64_t bound_bytes = channel.message_bound(message.layout(), step);
        if (bound_bytes <= kMessageBytesMax) continue;
        return fail(ErrorCode::kLimit,
                    "the message that begins with '" + std::string(message.parts.front().name) +
                        "' may have " + std::to_string(bound_bytes) + " bytes, but a message has at most " +
                        std::to_string(kMessageBytesMax) + "; split the tensor");
      }
    }
    return {};
  }

 private:
  // A part in key-value form, without pairs.
  static Named empty_part(const Named& tensor, const OwnedRange& range) {
    Named part{tensor.name, {nullptr, 0, tensor.tensor.dtype, nullptr, range.count}, range.first};
    if (range.count == tensor.tensor.dimension) part.tensor.dims = tensor.tensor.dims;
    part.elements_of_whole = tensor.whole_elements();
    part.dims_of_whole = static_cast<std::uint32_t>(tensor.whole_dims());
    part.name_hash = tensor.name_hash;
    return part;
  }

  // A part goes into the last message if that has room and is of its form, else into a new one, alone if it
  // must.
  KeyedPart add(std::size_t list, const Named& part, std::size_t tensor, std::uint64_t most_elements) {
    assert(list < lists_.size());
    std::vector<PartMessage>& messages = lists_[list];
    const bool fits = !messages.empty() && messages.back().has_keys() == part.tensor.has_keys() &&
                      messages.back().elements + part.tensor.elements() <= most_elements;
    PartMessage& message = fits ? messages.back() : messages.emplace_back();
    message.parts.push_back(part);
    message.means.push_back(staged_part(part));
    message.tensors.push_back(tensor);
    message.elements += part.tensor.elements();
    assert(message.parts.size() == message.means.size() && message.parts.size() == message.tensors.size());
    return {{list, messages.size() - 1}, message.parts.size() - 1};
  }

  std::vector<std::vector<PartMessage>> lists_;
  std::vector<KeyedTensor> keyed_;  // in their order
};

}  // namespace deltawire
