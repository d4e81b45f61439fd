// The codecs that know keys: how a part gets to their kernels, and from these to dense slots and to pairs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "codecs/kernels/pairs.h"
#include "deltawire/codec.h"

namespace deltawire {

inline PairInput pair_input(const PartSource& part) noexcept {
  return {part.in, part.residual, part.left, part.view.has_keys() ? part.view.keys : nullptr, part.count};
}

inline constexpr std::uint64_t kMaxPairElements = 0xFFFFFFFF;  // so that 32 bits hold each key

inline Status check_pair_count(std::string_view codec, std::uint64_t pairs, std::uint64_t elements) {
  if (pairs <= elements && elements <= kMaxPairElements) return {};
  return corrupt(std::string(codec) + ": " + std::to_string(pairs) + " pairs for " +
                 std::to_string(elements) + " elements: there are no more than these, and fewer than 2^32");
}

// `Target` is a PairTarget, or one with more to it.
template <class Target>
class PairCodec : public Codec {
 protected:
  using Codec::Codec;

  // All that can be said without a look at the pairs, before a slot of that many elements is touched.
  virtual Status check_part(const PartView& in, std::uint64_t elements) const = 0;

  // REQUIRES: check_part() for target.dimension.
  virtual Status decode_chunks(const PartView& in, Target& target) const = 0;

 private:
  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const final {
    RETURN_IF_ERROR(check_part(in, out.count));
    if (!out.accumulate) std::fill_n(out.slot, out.count, 0.0F);
    Target target{PairTarget{.sink = out.accumulate ? Sink::kDenseAdd : Sink::kDense,
                             .scale = out.scale,
                             .values = out.slot,
                             .dimension = out.count}};
    return decode_chunks(in, target);
  }

  Result<std::uint64_t> do_decode_pairs(const PartView& in, const TensorSlot& out, float scale) const final {
    RETURN_IF_ERROR(check_part(in, out.dimension));
    Target target{PairTarget{.sink = Sink::kPairs,
                             .scale = scale,
                             .values = static_cast<float*>(out.values),
                             .keys = out.keys,
                             .capacity = out.count,
                             .dimension = out.dimension}};
    RETURN_IF_ERROR(decode_chunks(in, target));
    return target.pairs;
  }
};

}  // namespace deltawire
