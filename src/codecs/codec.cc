// What a codec need not implement.
#include "deltawire/codec.h"

#include <string>

namespace deltawire {

Result<std::uint64_t> Codec::decode_pairs(const PartView&, const TensorSlot&, float) const {
  return fail(ErrorCode::kInvalidArgument,
              "codec " + std::string(info().name) + " has no key-value form; decode into a dense tensor");
}

}  // namespace deltawire
