#include "reduce/patterns/message_plan.h"

#include <algorithm>
#include <string>

#include "deltawire/transport.h"

namespace deltawire {
namespace {

// A part in key-value form, without pairs.
Named empty_part(const Named& tensor, const OwnedRange& range) {
  Named part{tensor.name, {nullptr, 0, tensor.tensor.dtype, nullptr, range.count}, range.first};
  if (range.count == tensor.tensor.dimension) part.tensor.dims = tensor.tensor.dims;
  part.elements_of_whole = tensor.whole_elements();
  part.dims_of_whole = static_cast<std::uint32_t>(tensor.whole_dims());
  part.name_hash = tensor.name_hash;
  return part;
}

}  // namespace

std::uint64_t PartMessage::raw_bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const Named& part : parts) sum += part.tensor.elements() * dtype_bytes(part.tensor.dtype);
  return sum;
}

std::uint64_t PartMessage::longest(const Channel& channel, std::uint64_t step) const {
  if (!has_keys()) return channel.message_bound(layout(), step);
  std::vector<Named> full = parts;
  for (Named& part : full) part.tensor.count = part.tensor.dimension;
  return std::min(channel.message_bound({full, hash}, step), kMessageBytesMax);
}

void MessagePlan::cut(std::span<const Named> tensors, std::size_t lists, const MostElements& most,
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

// A part goes into the last message if that has room and is of its form, else into a new one, alone if it
// must.
MessagePlan::KeyedPart MessagePlan::add(std::size_t list, const Named& part, std::size_t tensor,
                                        std::uint64_t most_elements) {
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

void MessagePlan::place(std::span<const Named> tensors) {
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

void MessagePlan::place_means(const BucketTensors& tensors) noexcept {
  for (std::size_t list = 0; list < lists_.size(); ++list) {
    for (std::size_t message = 0; message < lists_[list].size(); ++message)
      place_means(tensors, {list, message});
  }
}

void MessagePlan::place_means(const BucketTensors& tensors, const Place& place) noexcept {
  PartMessage& message = lists_[place.list][place.message];
  if (message.has_keys()) return;
  for (std::size_t i = 0; i < message.means.size(); ++i) {
    const std::size_t tensor = message.tensors[i];
    move_part(message.means[i], tensors.all()[tensor], tensors.mean_of(tensor).data());
  }
}

void MessagePlan::place_means(const Place& place, const float* means) noexcept {
  for (Named& mean : lists_[place.list][place.message].means) {
    mean.tensor.values = const_cast<float*>(means);  // others' are only read
    means += mean.tensor.count;
  }
}

Status MessagePlan::check_bounds(const Channel& channel, std::uint64_t step) const {
  for (const auto& messages : lists_) {
    for (const PartMessage& message : messages) {
      const std::uint64_t bound_bytes = channel.message_bound(message.layout(), step);
      if (bound_bytes <= kMessageBytesMax) continue;
      return fail(ErrorCode::kLimit, "the message that begins with '" +
                                         std::string(message.parts.front().name) + "' may have " +
                                         std::to_string(bound_bytes) + " bytes, but a message has at most " +
                                         std::to_string(kMessageBytesMax) + "; split the tensor");
    }
  }
  return {};
}

}  // namespace deltawire
