#include "reduce/patterns/merge_pairs.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace deltawire {
namespace {

constexpr std::uint64_t kWord = 64;
constexpr std::uint64_t kGroup = kWord * kWord;  // keys that a word of groups_ stands for

// A window has 2^12 to 2^18 keys: 16 KiB, in the first cache, to 1 MiB, and enough pairs that its own
// costs do not count.
constexpr std::uint64_t kShortest = kGroup;
constexpr std::uint64_t kLongest = kWord * kGroup;
constexpr std::uint64_t kPairsOfWindow = 2048;

constexpr std::size_t kBuffered = 2 * kGroup;

std::uint64_t window_keys(std::span<const PairStream> streams, std::uint64_t pairs) {
  std::uint64_t first = ~std::uint64_t{0};
  std::uint64_t end = 0;
  for (const PairStream& stream : streams) {
    if (stream.count == 0) continue;
    first = std::min<std::uint64_t>(first, stream.keys[0]);
    end = std::max<std::uint64_t>(end, std::uint64_t{stream.keys[stream.count - 1]} + 1);
  }
  const std::uint64_t keys_of_pairs = (end - first) / std::max<std::uint64_t>(1, pairs / kPairsOfWindow);
  return std::clamp(std::bit_floor(std::max<std::uint64_t>(1, keys_of_pairs)), kShortest, kLongest);
}

}  // namespace

void PairMerger::merge(std::span<const PairStream> streams, Pairs& sum) {
  sum.keys.clear();
  sum.values.clear();
  left_.clear();
  std::size_t pairs = 0;
  std::size_t most = 0;
  for (const PairStream& stream : streams) {
    if (stream.count == 0) continue;
    pairs += stream.count;
    most = std::max(most, stream.count);
    left_.push_back(stream);
  }
  sum.keys.reserve(most);
  sum.values.reserve(most);
  if (left_.size() > 1) {
    const std::uint64_t window = window_keys(left_, pairs);
    make_room(window);
    is_clean_ = false;
    while (left_.size() > 1) {
      std::uint64_t next = ~std::uint64_t{0};
      for (const PairStream& stream : left_) next = std::min<std::uint64_t>(next, stream.keys[0]);
      const std::uint64_t begin = next / window * window;
      lay_out(begin, begin + window);
      take_up(begin, begin + window, sum);
      std::erase_if(left_, [](const PairStream& stream) { return stream.count == 0; });
    }
    hand_over(sum);
    is_clean_ = true;
  }
  for (const PairStream& last : left_) {
    sum.keys.insert(sum.keys.end(), last.keys, last.keys + last.count);
    sum.values.insert(sum.values.end(), last.values, last.values + last.count);
  }
}

void PairMerger::make_room(std::uint64_t keys) {
  if (is_clean_ && window_.size() >= keys) return;
  merged_ = 0;
  window_.assign(std::max<std::size_t>(keys, window_.size()), -0.0F);
  seen_.assign(window_.size() / kWord, 0);
  groups_.assign(window_.size() / kGroup, 0);
  keys_.resize(kBuffered);
  values_.resize(kBuffered);
}

// Adds up what all streams have of these keys.
void PairMerger::lay_out(std::uint64_t begin, std::uint64_t end) {
  assert(end - begin <= window_.size());
  float* const window = window_.data();
  std::uint64_t* const seen = seen_.data();
  std::uint64_t* const groups = groups_.data();
  for (PairStream& stream : left_) {
    std::size_t i = 0;
    for (; i < stream.count && stream.keys[i] < end; ++i) {
      const std::uint64_t at = stream.keys[i] - begin;
      window[at] += stream.values[i];
      seen[at / kWord] |= std::uint64_t{1} << (at % kWord);
      groups[at / kGroup] |= std::uint64_t{1} << (at / kWord % kWord);
    }
    stream.keys += i;
    stream.values += i;
    stream.count -= i;
  }
}

// Takes the pairs out of the window, in the order of keys.
void PairMerger::take_up(std::uint64_t begin, std::uint64_t end, Pairs& sum) {
  assert((end - begin) % kGroup == 0 && (end - begin) / kGroup <= groups_.size());
  for (std::size_t group = 0; group < (end - begin) / kGroup; ++group) {
    if (groups_[group] == 0) continue;
    if (merged_ > kBuffered - kGroup) hand_over(sum);
    std::uint32_t* const keys = keys_.data();
    float* const values = values_.data();
    std::size_t merged = merged_;
    for (std::uint64_t words = std::exchange(groups_[group], 0); words != 0; words &= words - 1) {
      const std::size_t word = kWord * group + static_cast<std::size_t>(std::countr_zero(words));
      for (std::uint64_t bits = std::exchange(seen_[word], 0); bits != 0; bits &= bits - 1) {
        const std::size_t at = kWord * word + static_cast<std::size_t>(std::countr_zero(bits));
        keys[merged] = static_cast<std::uint32_t>(begin + at);
        values[merged] = std::exchange(window_[at], -0.0F);
        ++merged;
      }
    }
    merged_ = merged;
  }
}

void PairMerger::hand_over(Pairs& sum) {
  assert(merged_ <= kBuffered && sum.keys.size() == sum.values.size());
  sum.keys.insert(sum.keys.end(), keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(merged_));
  sum.values.insert(sum.values.end(), values_.begin(),
                    values_.begin() + static_cast<std::ptrdiff_t>(merged_));
  merged_ = 0;
}

}  // namespace deltawire
