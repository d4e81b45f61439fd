// The exchange in which weights live at owners, as text: "owners(fastsgd)", "owners(fastsgd back bf16)".
#pragma once

#include <string>
#include <string_view>

#include "deltawire/result.h"

namespace deltawire::linear {

struct OwnerSpec {
  std::string gradients;         // the codec that they travel to owners by
  std::string weights = "fp32";  // and weights back

  std::string text() const;
};

bool names_owners(std::string_view spec) noexcept;

// Codecs canonical. REQUIRES: names_owners(spec). Errors: kInvalidArgument for codecs that are none; that
// keep for later what they leave out of a gradient, since messages are of other keys in each step; or that
// leave out weights.
Result<OwnerSpec> parse_owner_spec(std::string_view spec);

}  // namespace deltawire::linear
