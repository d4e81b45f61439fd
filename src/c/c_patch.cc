// Patches through the C interface.
#include <cstdint>
#include <span>
#include <vector>

#include "call.h"
#include "deltawire/deltawire.h"
#include "deltawire/patch.h"

using deltawire::Bytes;
using deltawire::Result;
using deltawire::Status;
using deltawire::WeightType;
using deltawire::Workers;
using namespace deltawire::c;  // NOLINT(google-build-using-namespace)

namespace {

Result<Bytes> bytes_at(const void* memory, std::uint64_t count, const char* argument) {
  if (memory == nullptr && count != 0) return deltawire::forward_error(null_argument(argument));
  return Bytes(static_cast<const std::byte*>(memory), count);
}

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

// Calls use(patch, old_weights, type).
template <class Use>
Status with_patch(const void* patch, std::uint64_t patch_bytes, const void* old_weights,
                  std::uint64_t weight_bytes, std::int32_t type, const Use& use) {
  const auto from_patch = bytes_at(patch, patch_bytes, "patch");
  if (!from_patch) return deltawire::forward_error(from_patch);
  const auto from = bytes_at(old_weights, weight_bytes, "old_weights");
  if (!from) return deltawire::forward_error(from);
  return use(*from_patch, *from, weight_type(type));
}

}  // namespace

extern "C" {

std::int32_t deltawire_patch_make(const void* old_weights, const void* new_weights,
                                  std::uint64_t weight_bytes, std::int32_t type, deltawire_bytes** patch,
                                  deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (patch == nullptr) return null_argument("patch");
    *patch = nullptr;
    const auto from = bytes_at(old_weights, weight_bytes, "old_weights");
    if (!from) return deltawire::forward_error(from);
    const auto to = bytes_at(new_weights, weight_bytes, "new_weights");
    if (!to) return deltawire::forward_error(to);
    auto made = deltawire::make_patch(*from, *to, weight_type(type), Workers::of_process().get());
    if (!made) return deltawire::forward_error(made);
    *patch = new deltawire_bytes{*std::move(made)};
    return {};
  });
}

std::int32_t deltawire_patch_apply(const void* patch, std::uint64_t patch_bytes, const void* old_weights,
                                   std::uint64_t weight_bytes, std::int32_t type, void* new_weights,
                                   deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (new_weights == nullptr && weight_bytes != 0) return null_argument("new_weights");
    const deltawire::MutBytes out(static_cast<std::byte*>(new_weights), weight_bytes);
    return with_patch(patch, patch_bytes, old_weights, weight_bytes, type,
                      [&](Bytes from_patch, Bytes from, WeightType weights) {
                        return deltawire::apply_patch(from_patch, from, weights, out,
                                                      Workers::of_process().get());
                      });
  });
}

std::int32_t deltawire_patch_verify(const void* patch, std::uint64_t patch_bytes, const void* old_weights,
                                    std::uint64_t weight_bytes, std::int32_t type, deltawire_error* error) {
  return call(error, [&] {
    return with_patch(patch, patch_bytes, old_weights, weight_bytes, type,
                      [](Bytes from_patch, Bytes from, WeightType weights) {
                        return deltawire::verify_patch(from_patch, from, weights,
                                                       Workers::of_process().get());
                      });
  });
}

std::int32_t deltawire_weights_digest(const void* weights, std::uint64_t weight_bytes, std::int32_t type,
                                      std::uint64_t* digest, deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (digest == nullptr) return null_argument("digest");
    const auto bytes = bytes_at(weights, weight_bytes, "weights");
    if (!bytes) return deltawire::forward_error(bytes);
    const auto hashed = deltawire::weights_digest(*bytes, weight_type(type), Workers::of_process().get());
    if (!hashed) return deltawire::forward_error(hashed);
    *digest = *hashed;
    return {};
  });
}

}  // extern "C"
