#include "reduce/ring_bucket.h"

#include <algorithm>

#include "reduce/owners.h"

namespace deltawire {
namespace {

// Fills messages one after another.
class PieceRow {
 public:
  explicit PieceRow(std::vector<RingPiece>& row) : row_(row) {}

  void add(const Named& part) {
    if (row_.empty() || elements_ + part.tensor.count > kRingPieceElements) {
      row_.emplace_back();
      elements_ = 0;
    }
    row_.back().push_back(part);
    elements_ += part.tensor.count;
  }

 private:
  std::vector<RingPiece>& row_;
  std::uint64_t elements_ = 0;
};

}  // namespace

void RingBucket::cut() {
  partitions.resize(static_cast<std::size_t>(world()));
  std::vector<PieceRow> rows;
  for (auto& partition : partitions) {
    partition.clear();
    rows.emplace_back(partition);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Named& tensor = tensors[i];
    for (const OwnedRange& range : owned_ranges(tensor.name, tensor.tensor.count, world())) {
      for (std::uint64_t done = 0; done < range.count; done += kRingPieceElements) {
        const std::uint64_t first = range.first + done;
        TensorSlot slot{staged_of(i) + first, std::min(kRingPieceElements, range.count - done), DType::kF32};
        if (tensor.tensor.significance != nullptr) slot.significance = tensor.tensor.significance + first;
        rows[static_cast<std::size_t>(range.owner)].add({tensor.name, slot, tensor.first + first});
      }
    }
  }
}

}  // namespace deltawire
