#include "cli/measure/parts.h"

namespace deltawire::cli {
namespace {

std::vector<std::vector<float>> room_for(const InputStep& step) {
  std::vector<std::vector<float>> room;
  for (const InputTensor& tensor : step.tensors) room.emplace_back(tensor.values.size());
  return room;
}

Named dense_part(const InputTensor& tensor) {
  // Encoding only reads the values; Named serves both directions.
  Named part{tensor.name, TensorSlot{const_cast<float*>(tensor.values.data()), tensor.values.size()}};
  part.tensor.dims = tensor.shape;
  if (!tensor.significance.empty()) part.tensor.significance = tensor.significance.data();
  return part;
}

Named pairs_part(const InputTensor& tensor) {
  Named part = dense_part(tensor);
  part.tensor.values = const_cast<float*>(tensor.pair_values.data());
  part.tensor.count = tensor.pair_values.size();
  part.tensor.keys = const_cast<std::uint32_t*>(tensor.keys.data());
  part.tensor.dimension = tensor.values.size();
  return part;
}

// The key-value form has no residual, so what would keep one gets all elements.
bool goes_as_pairs(const InputTensor& tensor, const Channel& channel, std::uint64_t number) {
  if (!tensor.pairs || tensor.values.empty()) return false;
  return channel.takes_pairs(pairs_part(tensor), number);
}

std::vector<Named> sent_parts(const InputStep& step, const Channel& channel, std::uint64_t number) {
  std::vector<Named> parts;
  for (const InputTensor& tensor : step.tensors) {
    parts.push_back(goes_as_pairs(tensor, channel, number) ? pairs_part(tensor) : dense_part(tensor));
  }
  return parts;
}

std::vector<Named> slot_parts(const InputStep& step, std::vector<std::vector<float>>& room) {
  std::vector<Named> parts;
  for (std::size_t i = 0; i < room.size(); ++i) {
    Named part = dense_part(step.tensors[i]);
    part.tensor.values = room[i].data();
    part.tensor.significance = nullptr;
    parts.push_back(part);
  }
  return parts;
}

}  // namespace

Parts::Parts(const InputStep& step, const Channel& channel, std::uint64_t number)
    : decoded_(room_for(step)),
      sent_(sent_parts(step, channel, number)),
      slots_(slot_parts(step, decoded_)),
      sent_layout_(sent_),
      slot_layout_(slots_) {}

std::uint64_t bytes_of(std::span<const Bytes> pieces) noexcept {
  std::uint64_t sum = 0;
  for (const Bytes piece : pieces) sum += piece.size();
  return sum;
}

}  // namespace deltawire::cli
