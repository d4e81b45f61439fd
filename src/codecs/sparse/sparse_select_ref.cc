// The largest values of each sign, and their sum. What looks at single values is in sparse_filter_*.cc and
// sparse_threshold_*.cc.
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/prefetch.h"
#include "codecs/kernels/lanes.h"
#include "codecs/sparse/sparse_ops.h"

namespace deltawire::sparse::DELTAWIRE_TARGET {

namespace {

// The positive and the negative candidates, cut down to the largest whenever they fill their room.
struct Lists {
  Candidates of[2];
  std::uint32_t below[2] = {};  // only larger magnitudes can still be among the largest
  std::uint64_t keep = 0;
  std::uint32_t* spare = nullptr;

  void keep_largest(Candidates& list, std::uint32_t& list_below) noexcept {
    if (list.count <= keep) return;
    const Threshold threshold = find_threshold(list.magnitudes, list.count, keep, spare);
    drop_smaller(list, threshold);
    // What comes later stands behind its equals that are kept.
    list_below = threshold.magnitude;
  }

  void keep_largest() noexcept {
    for (int i = 0; i < 2; ++i) keep_largest(of[i], below[i]);
  }

  // What a block finds has room then.
  void cut_down() noexcept {
    for (int i = 0; i < 2; ++i) {
      if (of[i].count > most_candidates(keep)) keep_largest(of[i], below[i]);
    }
  }
};

void scan_block(const SelectInput& input, Block block, Lists& lists) noexcept {
  block.below[0] = lists.below[0];
  block.below[1] = lists.below[1];
  find_candidates(input, block, lists.of);
  lists.cut_down();
}

void scan(const SelectInput& input, Lists& lists) noexcept {
  const bool streamed = input.left != nullptr && input.count * sizeof(float) >= kStreamedBytes;
  Block block;
  // The first block ends where a line of the cache begins.
  block.count = kSelectBlock;
  if (streamed) {
    const auto address = bit_cast<std::uintptr_t>(input.left);
    block.count -= static_cast<std::uint32_t>(address / sizeof(float) % kVectorSlack);
  }
  while (block.at < input.count) {
    const std::uint64_t rest = input.count - block.at;
    if (rest < block.count) block.count = static_cast<std::uint32_t>(rest);
    scan_block(input, block, lists);
    block.at += block.count;
    block.count = kSelectBlock;
    block.streamed = streamed;
  }
  if (streamed) end_stream();
  lists.keep_largest();
}

void prefetch_sample(const SelectInput& input, std::uint64_t at) noexcept {
  prefetch_far(input.in + at);
  if (input.residual != nullptr) prefetch_far(input.residual + at);
}

// Sets where the lists begin to look, from samples: low enough that, most of the time, `keep` lie above. A
// bad guess costs a second scan and changes nothing else.
void guess_thresholds(const SelectInput& input, Lists& lists) noexcept {
  constexpr std::uint64_t kAhead = 48;
  const std::uint64_t stride = sample_stride(input.count);
  const std::uint64_t expected = input.keep / stride;
  if (expected + expected / 4 + 24 > input.keep) return;
  lists.keep = expected + expected / 4 + 24;
  const SelectInput read_only{input.in, input.residual, nullptr, input.count, lists.keep};
  for (std::uint64_t i = 0; i < kAhead; ++i) prefetch_sample(input, sampled_element(i, stride));
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    if (i + kAhead < kSamples) prefetch_sample(input, sampled_element(i + kAhead, stride));
    scan_block(read_only, {sampled_element(i, stride), kSampleGroup, {}, false}, lists);
  }
  lists.keep_largest();
  for (int i = 0; i < 2; ++i) {
    // The least magnitude that was kept is to be found again.
    lists.below[i] = lists.of[i].count == lists.keep && lists.below[i] > 0 ? lists.below[i] - 1 : 0;
    lists.of[i].count = 0;
  }
  lists.keep = input.keep;
}

// The upper 16 bits of some elements' magnitudes, 0 where x has the other sign.
struct Tops {
  std::int16_t of[2][kSelectBlock];  // positive and negative
  std::uint64_t count = 0;
};

// For each sign the largest number that at least `keep` tops are equal to or above; 0 if there is none.
void find_common(const Tops& tops, std::uint64_t keep, std::int16_t* found) noexcept {
  found[0] = found[1] = 0;
  for (int bit = 1 << 14; bit > 0; bit /= 2) {
    const auto positive = static_cast<std::int16_t>(found[0] | bit);
    const auto negative = static_cast<std::int16_t>(found[1] | bit);
    std::int16_t equal_or_above[2] = {};  // of kSelectBlock at most
    for (std::uint64_t i = 0; i < tops.count; ++i) {
      equal_or_above[0] = static_cast<std::int16_t>(equal_or_above[0] + (tops.of[0][i] >= positive ? 1 : 0));
      equal_or_above[1] = static_cast<std::int16_t>(equal_or_above[1] + (tops.of[1][i] >= negative ? 1 : 0));
    }
    if (static_cast<std::uint64_t>(equal_or_above[0]) >= keep) found[0] = positive;
    if (static_cast<std::uint64_t>(equal_or_above[1]) >= keep) found[1] = negative;
  }
}

// In smaller parts: what `keep` of the first elements are above, so many are above in all. Half of a
// magnitude's bits will do, and of every few elements the largest alone: two that are sent seldom meet there.
void start_thresholds(const SelectInput& input, Lists& lists) noexcept {
  const std::uint64_t count = input.count < kSelectBlock ? input.count : kSelectBlock;
  if (input.keep > count / 4) return;
  float x[kSelectBlock];
  std::memcpy(x, input.in, count * sizeof(float));
  if (input.residual != nullptr) {
    for (std::uint64_t i = 0; i < count; ++i) x[i] += input.residual[i];
  }
  Tops tops;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto bits = bit_cast<std::int32_t>(x[i]);
    const auto other = bit_cast<std::int32_t>(bit_cast<std::uint32_t>(x[i]) ^ kSignBit);
    tops.of[0][i] = static_cast<std::int16_t>((bits > 0 ? bits : 0) >> 16);
    tops.of[1][i] = static_cast<std::int16_t>((other > 0 ? other : 0) >> 16);
  }
  for (tops.count = count; tops.count % 2 == 0 && tops.count >= 8 * input.keep;) {
    tops.count /= 2;
    for (auto& sign : tops.of) {
      for (std::uint64_t i = 0; i < tops.count; ++i) {
        const std::int16_t second = sign[tops.count + i];
        sign[i] = sign[i] > second ? sign[i] : second;
      }
    }
  }
  std::int16_t common[2];
  find_common(tops, input.keep, common);
  for (int i = 0; i < 2; ++i) {
    const auto least = static_cast<std::uint32_t>(common[i]) << 16;
    lists.below[i] = least > 0 ? least - 1 : 0;
  }
}

void select(const SelectInput& input, Candidates& positive, Candidates& negative, std::uint32_t* spare) {
  Lists lists{{{positive.positions, positive.magnitudes, 0}, {negative.positions, negative.magnitudes, 0}},
              {},
              input.keep,
              spare};
  if (sample_stride(input.count) >= kLeastStride) {
    guess_thresholds(input, lists);
  } else {
    start_thresholds(input, lists);
  }
  scan(input, lists);
  // Of a sign of which the guess missed some, all are looked at again; the other's list is whole.
  bool missed = false;
  for (int i = 0; i < 2; ++i) {
    const bool is_whole = lists.of[i].count == lists.keep || lists.below[i] == 0;
    missed |= !is_whole;
    lists.below[i] = is_whole ? kMagnitudeMask : 0;
    if (!is_whole) lists.of[i].count = 0;
  }
  if (missed) {
    SelectInput again = input;
    if (input.left != nullptr) again = {input.left, nullptr, nullptr, input.count, input.keep};
    scan(again, lists);
  }
  positive = lists.of[0];
  negative = lists.of[1];
}

constexpr std::uint64_t kSumBlock = 4096;
constexpr std::uint32_t kSumLanes = 64;

double sum_block(const std::uint32_t* magnitudes, std::uint64_t count) noexcept {
  double lanes[kSumLanes] = {};
  std::uint64_t at = 0;
  for (; count - at >= kSumLanes; at += kSumLanes) {
    for (std::uint64_t i = 0; i < kSumLanes; ++i) lanes[i] += bit_cast<float>(magnitudes[at + i]);
  }
  for (std::uint64_t i = 0; at + i < count; ++i) lanes[i] += bit_cast<float>(magnitudes[at + i]);
  return folded(lanes);
}

double sum(const std::uint32_t* magnitudes, std::uint64_t count) {
  double total = 0;
  for (std::uint64_t at = 0; at < count; at += kSumBlock) {
    const std::uint64_t left = count - at;
    total += sum_block(magnitudes + at, left < kSumBlock ? left : kSumBlock);
  }
  return total;
}

void add(const float* in, float* residual, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) residual[i] += in[i];
}

void subtract(float* left, const std::uint32_t* positions, std::uint64_t count, float mean) {
  constexpr std::uint64_t kAhead = 256;
  std::uint64_t i = 0;
  for (; i + kAhead < count; ++i) {
    prefetch_far(left + positions[i + kAhead]);
    left[positions[i]] -= mean;
  }
  for (; i < count; ++i) left[positions[i]] -= mean;
}

}  // namespace

extern constexpr Kernels kKernels = {select,
                                     sum,
                                     add,
                                     subtract,
                                     encode_chunk,
                                     golomb_bytes,
                                     interpolate_chunk,
                                     decode_chunk,
                                     find_threshold,
                                     collect,
                                     encode_values,
                                     find_bad_value,
                                     decode_values,
                                     subtract_elements,
                                     scatter};

}  // namespace deltawire::sparse::DELTAWIRE_TARGET
