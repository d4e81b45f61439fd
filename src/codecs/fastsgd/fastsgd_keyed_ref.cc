// Reference kernel: the values of keys that have been decoded before.
#include <cstdint>

#include "codecs/fastsgd/fastsgd_codes_ops.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

template <Sink kSink>
Fault place(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& part) noexcept {
  DecodeTarget target = part;  // a copy that no store can alias
  CodeReader values(rules, chunk.head, target.scale, chunk.values);
  for (std::uint32_t i = 0; i < chunk.head.pairs; ++i) {
    float value = 0;
    if (!values.next(value)) return Fault::kCode;
    put_pair<kSink>(chunk.keys[i], value, target);
  }
  part.pairs = target.pairs;
  if (!values.fill_range()) return Fault::kCodeRange;
  return values.at_clean_end() ? Fault::kNone : Fault::kPadding;
}

}  // namespace

Fault place_values(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& target) {
  switch (target.sink) {
    case Sink::kDense: return place<Sink::kDense>(chunk, rules, target);
    case Sink::kDenseAdd: return place<Sink::kDenseAdd>(chunk, rules, target);
    case Sink::kPairs: return place<Sink::kPairs>(chunk, rules, target);
    default: return place<Sink::kNothing>(chunk, rules, target);
  }
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
