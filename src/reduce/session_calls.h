// What Session and ElasticSession answer alike.
#pragma once

#include <span>

#include "deltawire/reducer.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

inline tl::unexpected<Error> refused_in_child() {
  return fail(ErrorCode::kState, "this process was forked from a rank; only the rank itself can exchange");
}

inline Status mask_all(Reducer& reducer, std::span<const Named> momenta) {
  for (const Named& momentum : momenta) {
    auto* const values = static_cast<float*>(momentum.tensor.values);
    Status masked = reducer.mask_sent(momentum.name, {values, momentum.tensor.count});
    if (!masked) return masked;
  }
  return {};
}

}  // namespace deltawire
