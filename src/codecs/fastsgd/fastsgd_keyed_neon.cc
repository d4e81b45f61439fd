#include "codecs/fastsgd/fastsgd_keyed_ops.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

Fault place_values(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& target) {
  return place_in_tiles(chunk, rules, target);
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
