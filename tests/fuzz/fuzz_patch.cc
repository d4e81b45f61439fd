// A patch from anywhere, for the weights that the seeds were made from.
#include <cstdlib>
#include <set>
#include <vector>

#include "deltawire/patch.h"
#include "patch_inputs.h"

namespace deltawire {
namespace {

std::set<WeightType> applied;  // of the seeds

// Weights change as a whole or not at all.
void apply(Bytes patch) {
  const auto info = inspect_patch(patch);
  if (!info) return;
  const fuzz::PatchSides sides = fuzz::patch_sides(info->type);
  std::vector<std::byte> weights = sides.from;
  const Status done = apply_patch(patch, weights, info->type, weights);
  if (weights != (done ? sides.to : sides.from) && *weights_digest(weights, info->type) != info->new_digest) {
    std::abort();
  }
  if (done) applied.insert(info->type);
  if (verify_patch(patch, sides.from, info->type).has_value() != done.has_value()) std::abort();
}

// The same patch with sound checksums, so that the checks behind them are reached.
void apply_repaired(Bytes patch) {
  std::vector<std::byte> repaired(patch.begin(), patch.end());
  fuzz::repair_patch(repaired);
  apply(repaired);
}

}  // namespace
}  // namespace deltawire

// Each of them takes memory for a whole chunk.
extern "C" {
extern const int fuzz_rounds;
const int fuzz_rounds = 1000;
}

extern "C" void fuzz_after_seeds() {
  if (deltawire::applied.size() != std::size(deltawire::fuzz::kPatchTypes)) std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const deltawire::Bytes patch = std::as_bytes(std::span(data, size));
  deltawire::apply(patch);
  deltawire::apply_repaired(patch);
  return 0;
}
