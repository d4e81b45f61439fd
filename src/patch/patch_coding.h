// Patches with chosen kernels and chunks: what the public calls, and tests of each target, are made of.
#pragma once

#include <cstdint>
#include <vector>

#include "codecs/target_id.h"
#include "deltawire/patch.h"
#include "patch/patch_head.h"
#include "patch/patch_ops.h"

namespace deltawire::patch {

// A tensor and what its chunks are coded with.
struct Weights {
  Bytes bytes;
  WeightType type = WeightType::kFloat32;
};

struct Means {
  TargetId target = TargetId::kReference;
  Workers* workers = nullptr;
};

// The public functions, for new patches with chunks of 2^chunk_bits elements.
Result<std::vector<std::byte>> make(const Weights& from, Bytes to, unsigned chunk_bits, const Means& means);
Status apply(Bytes patch, const Weights& from, MutBytes out, const Means& means);
Status verify(Bytes patch, const Weights& from, const Means& means);

// The target that deltawire runs on this machine.
Result<TargetId> target_in_use();

}  // namespace deltawire::patch
