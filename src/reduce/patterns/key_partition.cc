#include "reduce/patterns/key_partition.h"

#include <cstring>
#include <span>
#include <type_traits>

#include "wire/hashes.h"

namespace deltawire {
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
