#include "reduce/patterns/owners.h"

#include <cstring>
#include <span>
#include <type_traits>

#include "base/checked.h"
#include "wire/hashes.h"

namespace deltawire {

Named part_of(const Named& whole, std::uint64_t first, std::uint64_t count, void* values) {
  assert(first <= whole.tensor.count && count <= whole.tensor.count - first);
  Named part{whole.name, {nullptr, count, whole.tensor.dtype}, whole.first + first};
  move_part(part, whole, values);
  if (count == whole.tensor.count) part.tensor.dims = whole.tensor.dims;
  part.elements_of_whole = whole.whole_elements();
  part.dims_of_whole = static_cast<std::uint32_t>(whole.whole_dims());
  part.name_hash = whole.name_hash;
  part.is_transient = whole.is_transient;
  return part;
}

Named staged_part(Named part) noexcept {
  part.summed_dtype = part.own_dtype();
  part.tensor.dtype = DType::kF32;
  return part;
}

void move_part(Named& part, const Named& whole, void* values) noexcept {
  assert(part.first >= whole.first);
  const std::uint64_t skipped = part.first - whole.first;
  const float* significance = whole.tensor.significance;
  const std::uint64_t skipped_bytes = skipped * dtype_bytes(part.tensor.dtype);
  part.tensor.values = values == nullptr ? nullptr : static_cast<std::byte*>(values) + skipped_bytes;
  part.tensor.significance = significance == nullptr ? nullptr : significance + skipped;
}

std::vector<OwnedRange> owned_ranges(std::string_view name, std::uint64_t count, int world_size,
                                     std::uint64_t most_elements) {
  assert(world_size >= 1 && most_elements > 0);
  if (count == 0) return {};
  const auto world = static_cast<std::uint64_t>(world_size);
  // The hash spreads the small tensors over the ranks; the pieces of a large one go round from there.
  const std::uint64_t start = digest64(std::as_bytes(std::span(name)), 0) % world;
  std::vector<OwnedRange> ranges;
  const auto add = [&](std::uint64_t first, std::uint64_t end, std::uint64_t owner) {
    for (std::uint64_t at = first; at < end; at += most_elements) {
      ranges.push_back({at, std::min(most_elements, end - at), static_cast<int>(owner)});
    }
  };
  if (count < kWholeTensorElements) {
    add(0, count, start);
    return ranges;
  }
  const std::uint64_t rows = ceil_div(count, kCutElements);
  std::uint64_t first = 0;
  for (std::uint64_t i = 0; i < world; ++i) {
    const std::uint64_t end = std::min(count, kCutElements * ((i + 1) * rows / world));
    add(first, end, (start + i) % world);
    first = end;
  }
  assert(first == count);
  return ranges;
}

namespace {

bool are_legal(const TensorSlot& tensor) noexcept {
  const std::span keys(tensor.keys, tensor.count);
  const bool grow = std::ranges::adjacent_find(keys, std::ranges::greater_equal()) == keys.end();
  return grow && (keys.empty() || keys.back() < tensor.dimension);
}

}  // namespace

KeyPartition key_partition_of(std::uint64_t count, int world_size) noexcept {
  return {count, count < kWholeTensorElements ? 1U : static_cast<std::uint32_t>(world_size)};
}

std::vector<OwnedRange> owned_key_ranges(std::string_view name, std::uint64_t count, int world_size,
                                         std::uint64_t most_elements) {
  if (count == 0) return {};
  const auto world = static_cast<std::uint64_t>(world_size);
  const std::uint64_t start = digest64(std::as_bytes(std::span(name)), 0) % world;
  const KeyPartition partition = key_partition_of(count, world_size);
  std::vector<OwnedRange> ranges;
  for (std::uint32_t shard = 0; shard < partition.shards(); ++shard) {
    const std::uint64_t end = partition.first(shard + 1);
    for (std::uint64_t at = partition.first(shard); at < end; at += most_elements) {
      ranges.push_back({at, std::min(most_elements, end - at), static_cast<int>((start + shard) % world)});
    }
  }
  return ranges;
}

void PartitionedPairs::assign(const TensorSlot& tensor, const KeyPartition& partition) {
  partition_ = partition;
  whole_ = tensor;
  counted_.clear();
  is_legal_ = are_legal(tensor);
  begins_.assign(partition.shards() + 1, 0);
  begins_.back() = tensor.count;
  if (is_legal_ && partition.shards() > 1) sort_into_shards();
}

void PartitionedPairs::sort_into_shards() {
  const std::size_t count = whole_.count;
  const std::size_t width = dtype_bytes(whole_.dtype);
  shard_of_.resize(count);
  places_.resize(count);
  values_.resize(count * width);
  begins_.back() = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t shard = partition_.place_of(whole_.keys[i]).shard;
    shard_of_[i] = static_cast<std::uint16_t>(shard);
    ++begins_[shard + 1];
  }
  for (std::size_t shard = 1; shard < begins_.size(); ++shard) begins_[shard] += begins_[shard - 1];
  assert(begins_.front() == 0 && begins_.back() == count);
  std::vector<std::size_t> next(begins_.begin(), begins_.end() - 1);
  const auto* values = static_cast<const std::byte*>(whole_.values);
  const auto sort_values_of = [&](auto bytes) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = next[shard_of_[i]]++;
      places_[at] = partition_.place_of(whole_.keys[i]).at;
      std::memcpy(values_.data() + at * bytes(), values + i * bytes(), bytes());
    }
  };
  if (width == 4) {
    sort_values_of(std::integral_constant<std::size_t, 4>());
  } else {
    sort_values_of(std::integral_constant<std::size_t, 2>());
  }
}

void PartitionedPairs::take(const OwnedRange& range, TensorSlot& part) {
  part.values = nullptr;
  part.keys = nullptr;
  part.count = 0;
  if (!is_legal_) {
    if (range.first > partition_.first(0)) return;
    part.values = whole_.values;
    part.keys = whole_.keys;
    part.count = whole_.count;
    return;
  }
  const std::uint32_t shard = partition_.shard_at(range.first);
  const bool sorted = partition_.shards() > 1;
  std::uint32_t* const keys = sorted ? places_.data() : whole_.keys;
  auto* const values = sorted ? values_.data() : static_cast<std::byte*>(whole_.values);
  const std::uint64_t first = range.first - partition_.first(shard);
  const std::span own(keys + begins_[shard], begins_[shard + 1] - begins_[shard]);
  const auto begin = std::ranges::lower_bound(own, first);
  const auto end = std::lower_bound(begin, own.end(), first + range.count);
  part.count = static_cast<std::uint64_t>(end - begin);
  part.keys = std::to_address(begin);
  part.values = values + static_cast<std::size_t>(part.keys - keys) * dtype_bytes(whole_.dtype);
  if (first == 0) return;
  auto& counted = counted_.emplace_back(begin, end);
  for (std::uint32_t& key : counted) key -= static_cast<std::uint32_t>(first);
  part.keys = counted.data();
}

}  // namespace deltawire
