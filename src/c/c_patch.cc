// Patches through the C interface.
#include <cstdint>

#include "call.h"
#include "deltawire/deltawire.h"
#include "deltawire/patch.h"

using namespace deltawire;     // NOLINT(google-build-using-namespace)
using namespace deltawire::c;  // NOLINT(google-build-using-namespace)

namespace {

constexpr bool is(int number, WeightType type) noexcept {
  return number == static_cast<int>(type);
}
static_assert(is(DELTAWIRE_WEIGHTS_F32, WeightType::kFloat32) &&
              is(DELTAWIRE_WEIGHTS_BF16, WeightType::kBFloat16) &&
              is(DELTAWIRE_WEIGHTS_F16, WeightType::kFloat16) &&
              is(DELTAWIRE_WEIGHTS_F8_E4M3, WeightType::kFloat8E4M3) &&
              is(DELTAWIRE_WEIGHTS_F8_E5M2, WeightType::kFloat8E5M2) &&
              is(DELTAWIRE_WEIGHTS_I8, WeightType::kInt8) && is(DELTAWIRE_WEIGHTS_I16, WeightType::kInt16) &&
              is(DELTAWIRE_WEIGHTS_I32, WeightType::kInt32));

// Numbers outside the enum become 0, which is none of its values either.
WeightType weight_type(std::int32_t number) noexcept {
  return static_cast<WeightType>(number >= 0 && number <= UINT8_MAX ? number : 0);
}

}  // namespace

extern "C" {

std::int32_t deltawire_patch_make(const void* old_weights, const void* new_weights,
                                  std::uint64_t weight_bytes, std::int32_t type, deltawire_bytes** patch,
                                  deltawire_error* error) {
  return call(error, [&] {
    require(patch, "patch");
    *patch = nullptr;
    const Bytes from = bytes_at(old_weights, weight_bytes, "old_weights");
    const Bytes to = bytes_at(new_weights, weight_bytes, "new_weights");
    *patch =
        new deltawire_bytes{value_of(make_patch(from, to, weight_type(type), Workers::of_process().get()))};
  });
}

std::int32_t deltawire_patch_apply(const void* patch, std::uint64_t patch_bytes, const void* old_weights,
                                   std::uint64_t weight_bytes, std::int32_t type, void* new_weights,
                                   deltawire_error* error) {
  return call(error, [&] {
    if (weight_bytes != 0) require(new_weights, "new_weights");
    const MutBytes out(static_cast<std::byte*>(new_weights), weight_bytes);
    const Bytes changes = bytes_at(patch, patch_bytes, "patch");
    const Bytes from = bytes_at(old_weights, weight_bytes, "old_weights");
    value_of(apply_patch(changes, from, weight_type(type), out, Workers::of_process().get()));
  });
}

std::int32_t deltawire_patch_verify(const void* patch, std::uint64_t patch_bytes, const void* old_weights,
                                    std::uint64_t weight_bytes, std::int32_t type, deltawire_error* error) {
  return call(error, [&] {
    const Bytes changes = bytes_at(patch, patch_bytes, "patch");
    const Bytes from = bytes_at(old_weights, weight_bytes, "old_weights");
    value_of(verify_patch(changes, from, weight_type(type), Workers::of_process().get()));
  });
}

std::int32_t deltawire_weights_digest(const void* weights, std::uint64_t weight_bytes, std::int32_t type,
                                      std::uint64_t* digest, deltawire_error* error) {
  return call(error, [&] {
    require(digest, "digest");
    const Bytes bytes = bytes_at(weights, weight_bytes, "weights");
    *digest = value_of(weights_digest(bytes, weight_type(type), Workers::of_process().get()));
  });
}

}  // extern "C"
