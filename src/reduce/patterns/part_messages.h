// Parts on their way in messages of a bounded number of elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/tensor.h"

namespace deltawire {

// The parts that travel as one message: all dense, or all in key-value form.
struct PartMessage {
  std::vector<Named> parts = {};
  std::vector<std::size_t> tensors = {};  // by part: the one of the bucket that it is a part of
  std::uint32_t hash = 0;                 // MessageLayout::hash_of(parts), as the caller has them
  std::vector<Pairs> means = {};          // of key-value parts, one for each; empty where the parts are dense
  std::vector<std::vector<Pairs>> addends = {};  // by rank, in order: what the means lack yet; of each part

  bool has_keys() const noexcept { return parts.front().tensor.has_keys(); }
  MessageLayout layout() const noexcept { return {parts, hash}; }
  std::uint64_t raw_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const Named& part : parts) sum += part.tensor.elements() * dtype_bytes(part.tensor.dtype);
    return sum;
  }

  // The parts, with their means where these are lists.
  std::vector<Named> filled() {
    std::vector<Named> all = parts;
    for (std::size_t i = 0; i < means.size(); ++i) {
      all[i].tensor.values = means[i].values.data();
      all[i].tensor.keys = means[i].keys.data();
      all[i].tensor.count = means[i].keys.size();
    }
    return all;
  }
};

class PartMessages {
 public:
  void clear() {
    messages_.clear();
    elements_ = 0;
  }

  // Goes into the last message if that has room and is of this form, else into a new one, alone if it must.
  void add(const Named& part, std::size_t tensor, std::uint64_t most_elements) {
    const std::uint64_t count = part.tensor.elements();
    const bool fits = !messages_.empty() && messages_.back().has_keys() == part.tensor.has_keys() &&
                      elements_ + count <= most_elements;
    if (!fits) {
      messages_.emplace_back();
      elements_ = 0;
    }
    messages_.back().parts.push_back(part);
    messages_.back().tensors.push_back(tensor);
    if (part.tensor.has_keys()) messages_.back().means.emplace_back();
    elements_ += count;
  }

  // Those of the same parts elsewhere.
  void take_hashes(const PartMessages& other) noexcept {
    for (std::size_t i = 0; i < messages_.size(); ++i) messages_[i].hash = other.messages_[i].hash;
  }

  // After the last part.
  void hash_layouts() {
    for (PartMessage& message : messages_) message.hash = MessageLayout::hash_of(message.parts);
  }

  std::size_t size() const noexcept { return messages_.size(); }
  bool empty() const noexcept { return messages_.empty(); }
  PartMessage& operator[](std::size_t message) { return messages_[message]; }
  PartMessage& back() { return messages_.back(); }
  auto begin() noexcept { return messages_.begin(); }
  auto end() noexcept { return messages_.end(); }

 private:
  std::vector<PartMessage> messages_;
  std::uint64_t elements_ = 0;  // of the last message
};

}  // namespace deltawire
