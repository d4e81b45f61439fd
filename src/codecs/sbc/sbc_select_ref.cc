// Reference kernels: the largest values of each sign, and their sum. Positions are coded in sbc_code_ref.cc.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "codecs/kernels/lanes.h"
#include "codecs/sbc/sbc_ops.h"

namespace deltawire::sbc::DELTAWIRE_TARGET {

namespace {

// The `keep`-th largest of some magnitudes, and how many of its equals are among the `keep`.
struct Threshold {
  std::uint32_t magnitude = 0;
  std::uint64_t ties = 0;
};

// Radix selection, from the highest of three digits down: linear whatever the values are.
// REQUIRES: 1 <= keep <= count.
Threshold find_threshold(const std::uint32_t* magnitudes, std::uint64_t count, std::uint64_t keep) noexcept {
  struct Digit {
    unsigned shift;
    std::uint32_t values;
  };
  constexpr Digit kDigits[] = {{20, 2048}, {10, 1024}, {0, 1024}};  // a magnitude has 31 bits
  std::uint32_t counts[2048];
  std::uint32_t threshold = 0;  // its digits so far
  for (const auto& [shift, values] : kDigits) {
    std::memset(counts, 0, sizeof counts);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint32_t rest = (magnitudes[i] - threshold) >> shift;
      if (rest < values) ++counts[rest];  // what is smaller than the digits so far wraps round
    }
    std::uint32_t digit = values - 1;
    while (counts[digit] < keep) keep -= counts[digit--];
    threshold += digit << shift;
  }
  return {threshold, keep};
}

// Candidates of one sign, cut down to the largest whenever they fill their room.
struct List {
  Candidates all;
  std::uint32_t below = 0;  // only larger magnitudes can still be among the largest

  // Written whether it is one or not, as no branch can foretell it. REQUIRES: room for one more.
  void offer(std::uint64_t position, std::uint32_t magnitude) noexcept {
    all.positions[all.count] = static_cast<std::uint32_t>(position);
    all.magnitudes[all.count] = magnitude;
    all.count += magnitude > below ? 1 : 0;
  }

  void keep_largest(std::uint64_t keep) noexcept {
    if (all.count <= keep) return;
    const Threshold threshold = find_threshold(all.magnitudes, all.count, keep);
    std::uint64_t ties = threshold.ties;
    std::uint64_t kept = 0;
    for (std::uint64_t i = 0; i < all.count; ++i) {
      const std::uint32_t magnitude = all.magnitudes[i];
      if (magnitude < threshold.magnitude) continue;
      if (magnitude == threshold.magnitude) {
        if (ties == 0) continue;
        --ties;
      }
      all.positions[kept] = all.positions[i];
      all.magnitudes[kept++] = magnitude;
    }
    all.count = kept;
    // What comes later stands behind its equals that are kept.
    below = threshold.magnitude;
  }
};

// x of a block as bits; returns whether any magnitude is above `below`.
bool load_block(const SelectInput& input, std::uint64_t at, std::uint32_t below,
                std::uint32_t* bits) noexcept {
  float x[kSelectBlock];
  if (input.residual != nullptr) {
    for (std::uint64_t i = 0; i < kSelectBlock; ++i) x[i] = input.in[at + i] + input.residual[at + i];
  } else {
    std::memcpy(x, input.in + at, sizeof x);
  }
  std::memcpy(bits, x, sizeof x);
  // As signed numbers, which every vector unit compares; magnitudes have 31 bits.
  std::int32_t any = 0;
  for (std::uint64_t i = 0; i < kSelectBlock; ++i) {
    any |= static_cast<std::int32_t>(bits[i] & ~kSignBit) > static_cast<std::int32_t>(below) ? -1 : 0;
  }
  return any != 0;
}

// The positive and the negative candidates.
struct Lists {
  List of[2];
  std::uint64_t room = 0;  // of each
  std::uint64_t keep = 0;

  void add(std::uint64_t position, std::uint32_t x_bits) noexcept {
    of[x_bits >> 31].offer(position, x_bits & ~kSignBit);
  }

  void make_room() noexcept {
    for (List& list : of) {
      if (room - list.all.count < kSelectBlock) list.keep_largest(keep);
    }
  }

  void keep_largest() noexcept {
    for (List& list : of) list.keep_largest(keep);
  }
};

// Adds the candidates of the block at `at`.
void scan_block(const SelectInput& input, std::uint64_t at, Lists& lists) noexcept {
  const std::uint32_t lower = lists.of[0].below < lists.of[1].below ? lists.of[0].below : lists.of[1].below;
  std::uint32_t bits[kSelectBlock];
  if (!load_block(input, at, lower, bits)) return;
  lists.make_room();
  // Without a branch for each element: which of them are candidates can't be foretold.
  std::uint32_t found[kSelectBlock];
  std::uint32_t finds = 0;
  for (std::uint32_t i = 0; i < kSelectBlock; ++i) {
    found[finds] = i;
    finds += (bits[i] & ~kSignBit) > lower ? 1U : 0U;
  }
  for (std::uint32_t i = 0; i < finds; ++i) lists.add(at + found[i], bits[found[i]]);
}

void scan(const SelectInput& input, Lists& lists) noexcept {
  std::uint64_t at = 0;
  for (; input.count - at >= kSelectBlock; at += kSelectBlock) scan_block(input, at, lists);
  lists.make_room();
  for (; at < input.count; ++at) {
    const float x = input.residual != nullptr ? input.in[at] + input.residual[at] : input.in[at];
    lists.add(at, bit_cast<std::uint32_t>(x));
  }
  lists.keep_largest();
}

// Sets where the lists begin to look from blocks spread over the part: low enough that, most of the time,
// `keep` lie above. A bad guess costs a second scan and changes nothing else.
void guess_thresholds(const SelectInput& input, Lists& lists) noexcept {
  constexpr std::uint64_t kBlocks = 2048;
  constexpr std::uint64_t kLeastStride = 4;  // in blocks
  const std::uint64_t stride = input.count / (kBlocks * kSelectBlock);
  if (stride < kLeastStride) return;
  const std::uint64_t expected = input.keep / stride;
  if (expected + expected / 4 + 24 > input.keep) return;
  lists.keep = expected + expected / 4 + 24;
  for (std::uint64_t i = 0; i < kBlocks; ++i) scan_block(input, i * stride * kSelectBlock, lists);
  lists.keep_largest();
  for (List& list : lists.of) {
    // The least magnitude that was kept is to be found again.
    list.below = list.all.count == lists.keep && list.below > 0 ? list.below - 1 : 0;
    list.all.count = 0;
  }
}

void select(const SelectInput& input, Candidates& positive, Candidates& negative) {
  Lists lists{
      {{{positive.positions, positive.magnitudes, 0}, 0}, {{negative.positions, negative.magnitudes, 0}, 0}},
      candidate_room(input.count, input.keep),
      input.keep};
  guess_thresholds(input, lists);
  lists.keep = input.keep;
  scan(input, lists);
  bool missed = false;
  for (const List& list : lists.of) missed |= list.all.count < lists.keep && list.below > 0;
  if (missed) {
    for (List& list : lists.of) {
      list.below = 0;
      list.all.count = 0;
    }
    scan(input, lists);
  }
  positive = lists.of[0].all;
  negative = lists.of[1].all;
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

}  // namespace

extern constexpr Kernels kKernels = {select, sum, add, encode_chunk, decode_chunk};

}  // namespace deltawire::sbc::DELTAWIRE_TARGET
