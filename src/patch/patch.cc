#include "deltawire/patch.h"

#include "base/errors.h"
#include "codecs/dispatch.h"
#include "codecs/kernel_table.h"
#include "patch/patch_coding.h"

namespace deltawire {

namespace patch {

DELTAWIRE_KERNELS(reference, avx2, avx512, neon)

Result<TargetId> target_in_use() {
  ASSIGN_OR_RETURN(const auto name, kernel_target_in_use());
  return choose_target(name, kernel_targets());
}

namespace {

constexpr const char* kDoing = "coding a patch";

}  // namespace

}  // namespace patch

std::string_view weight_type_name(WeightType type) noexcept {
  switch (type) {
    case WeightType::kFloat32: return "float32";
    case WeightType::kBFloat16: return "bfloat16";
    case WeightType::kFloat16: return "float16";
    case WeightType::kFloat8E4M3: return "float8_e4m3";
    case WeightType::kFloat8E5M2: return "float8_e5m2";
    case WeightType::kInt8: return "int8";
    case WeightType::kInt16: return "int16";
    case WeightType::kInt32: return "int32";
  }
  return "unknown";
}

std::uint64_t weight_bytes(WeightType type) noexcept {
  return patch::element_of(type).bytes;
}

Result<std::vector<std::byte>> make_patch(Bytes old_weights, Bytes new_weights, WeightType type,
                                          Workers* workers) {
  ASSIGN_OR_RETURN(const auto target, patch::target_in_use());
  return or_no_memory(patch::kDoing, [&] {
    return patch::make({old_weights, type}, new_weights, patch::kMaxChunkBits, {target, workers});
  });
}

Status apply_patch(Bytes patch, Bytes old_weights, WeightType type, MutBytes out, Workers* workers) {
  ASSIGN_OR_RETURN(const auto target, patch::target_in_use());
  return or_no_memory(patch::kDoing,
                      [&] { return patch::apply(patch, {old_weights, type}, out, {target, workers}); });
}

Status verify_patch(Bytes patch, Bytes old_weights, WeightType type, Workers* workers) {
  ASSIGN_OR_RETURN(const auto target, patch::target_in_use());
  return or_no_memory(patch::kDoing,
                      [&] { return patch::verify(patch, {old_weights, type}, {target, workers}); });
}

}  // namespace deltawire
