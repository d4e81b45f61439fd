// Residuals as bytes and back (docs/reference/format.md, "Channel state").
#pragma once

#include <cstdint>
#include <vector>

#include "channel/residual_store.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

std::vector<std::byte> save_residuals(const ResidualStore& store, std::uint64_t params_hash);

// Fills `store`, which must be empty; on error its content is unspecified.
Status load_residuals(Bytes state, std::uint64_t params_hash, ResidualStore& store);

}  // namespace deltawire
