// How `direct` spreads the keys of a tensor over its owners: not in ranges, as it cuts dense tensors, but as
// cards are dealt.
//
// Features are mostly numbered by how often they come, or as they first come, so that a range of low keys has
// most pairs: of 8 ranges, one had 6.8 times its share of a batch of RCV1. Dealt out one by one, all hands
// have as many of the frequent keys. A hash of each key would balance as well, but the keys of a hand would
// lie N times as far apart, and cost log2(N) bits more each. In a deal the key itself is divided by N: the
// hand's places are as dense as the tensor's keys, and cost what those cost.
//
// Deal g, of keys N g ... N g + N - 1, gives one key to each hand, and begins with another hand in every
// deal, so that data whose features come in a pattern of N are spread as well.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "deltawire/tensor.h"
#include "reduce/patterns/owners.h"

namespace deltawire {

// A bijection of the keys of a tensor: hand after hand, in the order of keys within each.
class KeyDeal {
 public:
  // REQUIRES: hands of 1 ... 65,535; count below 2^32.
  KeyDeal(std::uint64_t count, std::uint32_t hands) noexcept
      : count_(count), hands_(hands), inverse_((std::uint64_t{1} << 32) / hands) {}

  std::uint32_t hands() const noexcept { return hands_; }

  struct Place {
    std::uint32_t hand;
    std::uint32_t at;  // of the hand's keys, in order
  };
  Place place_of(std::uint32_t key) const noexcept {
    // What key / hands comes to, or one less.
    auto deal = static_cast<std::uint32_t>((key * inverse_) >> 32);
    std::uint32_t turn = key - deal * hands_;
    if (turn >= hands_) {
      ++deal;
      turn -= hands_;
    }
    const std::uint32_t hand = turn + begins_with(deal);
    return {hand < hands_ ? hand : hand - hands_, deal};
  }
  std::uint32_t key_at(const Place& place) const noexcept {
    const std::uint32_t begin = begins_with(place.at);
    return place.at * hands_ + (place.hand >= begin ? place.hand - begin : place.hand + hands_ - begin);
  }

  // Where a hand begins, of all keys hand after hand; first(hands()) is the end. Of several hands places
  // count from 1, where no range of a dense tensor begins: so ranks that have a tensor in different forms are
  // told.
  std::uint64_t first(std::uint32_t hand) const noexcept {
    const std::uint64_t deals = count_ / hands_;
    // The last deal isn't whole: it goes to the hands [begin, end), from 0 again after the last one.
    const std::uint64_t begin = begins_with(static_cast<std::uint32_t>(deals));
    const std::uint64_t end = begin + count_ % hands_;
    const std::uint64_t straight = std::min<std::uint64_t>(end, hand) - std::min<std::uint64_t>(begin, hand);
    const std::uint64_t again = end > hands_ ? std::min<std::uint64_t>(end - hands_, hand) : 0;
    return (hands_ > 1 ? 1 : 0) + deals * hand + straight + again;
  }

  // Whose places [first(hand), first(hand + 1)) the one at `at` is of. REQUIRES: there is such a hand.
  std::uint32_t hand_at(std::uint64_t at) const noexcept {
    auto hand = static_cast<std::uint32_t>((at - first(0)) / (count_ / hands_ + 1));
    while (first(hand + 1) <= at) ++hand;
    return hand;
  }

 private:
  // The hand that gets the first key of a deal (docs/reference/format.md, "Parts").
  std::uint32_t begins_with(std::uint32_t deal) const noexcept {
    const std::uint64_t mixed = (std::uint64_t{deal} * 0x9E3779B97F4A7C15U) >> 32;
    return static_cast<std::uint32_t>((mixed * hands_) >> 32);
  }

  std::uint64_t count_;
  std::uint32_t hands_;
  std::uint64_t inverse_;  // 2^32 / hands, rounded down
};

// Who owns which part of a tensor in key-value form, in `direct`: ranges of places, hand after hand, as
// KeyDeal has them. Tensors below kWholeTensorElements are one hand.
KeyDeal deal_of(std::uint64_t count, int world_size) noexcept;
std::vector<OwnedRange> dealt_ranges(std::string_view name, std::uint64_t count, int world_size,
                                     std::uint64_t most_elements);

// A tensor's pairs, sorted into hands.
class DealtPairs {
 public:
  // With one hand the pairs stay where they are. Keys that don't grow strictly, or lie beyond the dimension,
  // stay together, so that the encoder of the first part meets and refuses them.
  void assign(const TensorSlot& tensor, const KeyDeal& deal);

  // Makes the part hold the pairs of these places, keys counted from its first. Valid until the next assign.
  void take(const OwnedRange& range, TensorSlot& part);

 private:
  void sort_into_hands();

  KeyDeal deal_{0, 1};
  TensorSlot whole_;
  bool is_legal_ = true;
  std::vector<std::uint16_t> hand_of_;               // by pair
  std::vector<std::size_t> begins_;                  // by hand, of the pairs
  std::vector<std::uint32_t> places_;                // of the pairs, hand after hand
  std::vector<std::byte> values_;                    // as well
  std::vector<std::vector<std::uint32_t>> counted_;  // keys of parts that begin within a hand
};

}  // namespace deltawire
