// Decoding for AVX2: values by a look into their table each.
#include "codecs/fastsgd/fastsgd_decode_avx2.h"

#include <cstdint>

#include "codecs/fastsgd/fastsgd_decode_ops.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

void open_values(ValueStream& values, const DecodeRules& rules, const Head& head, float scale) {
  fill_values(values, rules, head, scale);
}

void read_values(ValueStream& values, std::uint32_t count, float* out) {
  read_one_by_one(values, count, out);
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
