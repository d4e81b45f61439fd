// What Session and ElasticSession answer alike.
#pragma once

#include <span>

#include "base/errors.h"
#include "deltawire/reducer.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

inline tl::unexpected<Error> refused_in_child() {
  return wrong_state("this process was forked from a rank; only the rank itself can exchange");
}

inline Status mask_all(Reducer& reducer, std::span<const Named> momenta) {
  for (const Named& momentum : momenta) {
    auto* const values = static_cast<float*>(momentum.tensor.values);
    RETURN_IF_ERROR(reducer.mask_sent(momentum.name, {values, momentum.tensor.count}));
  }
  return {};
}

}  // namespace deltawire
